/* SPDX-License-Identifier: MIT
 *
 * AVX-512 softmax over a block of keys.
 */
#include "softmax_row.h"
#include "vec.h"

/* Vectors in flight: enough to cover the latency of 2^x's chain of a dozen operations. */
enum { UNROLL = 4 };

/* What the terms and masks of a row are; constants where they are inlined. */
struct kind {
    bool keep, added, bias, alibi;
};

/* t of scores j .. j + 15, of which only those in lanes are read; -inf where masked. distance:
 * of the query from each key. */
static ALWAYS_INLINE vec scaled_scores(const struct mha_softmax_row *row, const float *s, size_t j,
                                       __mmask16 lanes, vec scale, vec distance, struct kind kind) {
    vec masked = _mm512_set1_ps(-INFINITY);
    vec t = _mm512_mask_loadu_ps(masked, lanes, s + j);
    if (kind.keep) {
        __m128i keep = _mm_maskz_loadu_epi8(lanes, row->keep + j);
        lanes = _mm_test_epi8_mask(keep, keep);
        t = kind.added ? t : _mm512_mask_mov_ps(masked, lanes, t);
    }
    if (!kind.added) {
        return t;
    }
    vec term = vec_mul(_mm512_set1_ps(-row->slope), vec_abs(distance));
    if (kind.bias) {
        vec bias = _mm512_maskz_loadu_ps(lanes, row->bias + j);
        term = kind.alibi ? vec_add(term, bias) : bias;
    }
    lanes = _mm512_mask_cmp_ps_mask(lanes, term, masked, _CMP_NEQ_UQ);
    return _mm512_mask_mov_ps(masked, lanes, vec_fma(t, scale, term));
}

/* Scores to t in place, from the vector of begin to that of end - 1. Gives the maximum of t. */
static ALWAYS_INLINE float scale_keys(const struct mha_softmax *x,
                                      const struct mha_softmax_row *row, float *s,
                                      struct kind kind) {
    vec scale = vec_set(x->scale), max[UNROLL];
    UNROLLED
    for (size_t u = 0; u < UNROLL; u++) {
        max[u] = vec_set(-INFINITY);
    }
    size_t j = row->begin / LANES * LANES;
    vec ahead = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    vec distance = vec_sub(vec_set(row->position - (float)j), ahead), step = vec_set((float)LANES);
    while (j < row->end) {
        if (j >= row->begin && j + UNROLL * LANES <= row->end) {
            UNROLLED
            for (size_t u = 0; u < UNROLL; u++) {
                vec t = scaled_scores(row, s, j, ALL_LANES, scale, distance, kind);
                max[u] = _mm512_max_ps(t, max[u]); /* gives the second for NaN */
                if (kind.keep || kind.added) {
                    vec_store(s + j, t);
                }
                distance = vec_sub(distance, step);
                j += LANES;
            }
        } else {
            __mmask16 lanes = first_lanes(row->end - j);
            if (j < row->begin) {
                lanes = (__mmask16)(lanes & ~first_lanes(row->begin - j));
            }
            vec t = scaled_scores(row, s, j, lanes, scale, distance, kind);
            max[0] = _mm512_max_ps(t, max[0]);
            _mm512_mask_storeu_ps(s + j, first_lanes(x->keys - j), t);
            distance = vec_sub(distance, step);
            j += LANES;
        }
    }
    return _mm512_reduce_max_ps(
        _mm512_max_ps(_mm512_max_ps(max[0], max[1]), _mm512_max_ps(max[2], max[3])));
}

static float scale_row(const struct mha_softmax *x, const struct mha_softmax_row *row, float *s) {
    if (!x->added) {
        return row->keep ? scale_keys(x, row, s, (struct kind){.keep = true})
                         : scale_keys(x, row, s, (struct kind){.keep = false});
    }
    if (!row->bias) {
        return row->keep ? scale_keys(x, row, s, (struct kind){true, true, false, true})
                         : scale_keys(x, row, s, (struct kind){false, true, false, true});
    }
    if (row->slope != 0.0f) {
        return row->keep ? scale_keys(x, row, s, (struct kind){true, true, true, true})
                         : scale_keys(x, row, s, (struct kind){false, true, true, true});
    }
    return row->keep ? scale_keys(x, row, s, (struct kind){true, true, true, false})
                     : scale_keys(x, row, s, (struct kind){false, true, true, false});
}

/* t to p in place, zeros elsewhere. Gives the row's sum: a lane of the vector is a lane of the
 * contract. */
static float exp_row(const struct mha_softmax *x, const struct mha_softmax_row *row, float *s,
                     float max) {
    /* A row that attends to nothing has no maximum; 0 keeps 2^-inf = 0 there. */
    vec base = vec_set(max == -INFINITY ? 0.0f : max), factor = vec_set(x->factor);
    vec sum = vec_set(0.0f);
    size_t j = 0;
    for (; j + LANES <= row->begin; j += LANES) {
        vec_store(s + j, vec_set(0.0f));
    }
    for (; j + UNROLL * LANES <= row->end; j += UNROLL * LANES) {
        vec p[UNROLL];
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            p[u] = vec_mul(vec_sub(vec_load(s + j + u * LANES), base), factor);
        }
        vec_exp2s(p, UNROLL);
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            vec_store(s + j + u * LANES, p[u]);
            sum = vec_add(sum, p[u]);
        }
    }
    for (; j < row->end; j += LANES) {
        __mmask16 lanes = first_lanes(x->keys - j);
        vec t = _mm512_mask_loadu_ps(vec_set(-INFINITY), lanes, s + j);
        vec p = vec_exp2(vec_mul(vec_sub(t, base), factor));
        _mm512_mask_storeu_ps(s + j, lanes, p);
        sum = vec_add(sum, p);
    }
    for (; j < x->keys; j += LANES) {
        _mm512_mask_storeu_ps(s + j, first_lanes(x->keys - j), vec_set(0.0f));
    }
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    quarter = _mm_add_ss(quarter, _mm_movehdup_ps(quarter));
    return _mm_cvtss_f32(quarter);
}

/* All maxima first: the exponentials then wait for none of them. */
void mha_avx512_softmax(const struct mha_softmax *x) {
    for (size_t i = 0; i < x->rows; i++) {
        float max = scale_row(x, &x->row[i], x->scores + i * x->stride);
        x->max[i] = mha_softmax_max(x, &x->row[i], max);
    }
    for (size_t i = 0; i < x->rows; i++) {
        x->sum[i] = exp_row(x, &x->row[i], x->scores + i * x->stride, x->max[i]);
    }
}
