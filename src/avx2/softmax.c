/* SPDX-License-Identifier: MIT
 *
 * AVX2 softmax over a block of keys.
 */
#include <string.h>

#include "softmax_row.h"
#include "vec.h"

/* Vectors in flight: enough to cover the latency of 2^x's chain of a dozen operations. */
enum { UNROLL = 4 };

/* What the terms and masks of a row are; constants where they are inlined. */
struct kind {
    bool keep, added, bias, alibi;
};

static inline __m256i load_bytes(const uint8_t *bytes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
}

/* The keep bytes of the keys j .. j + 7 that lie in the range; 0 for others. */
static inline __m256i load_range(const struct mha_softmax_row *row, size_t j) {
    uint8_t bytes[LANES] = {0};
    for (size_t i = 0; i < LANES; i++) {
        bytes[i] = j + i >= row->begin && j + i < row->end ? row->keep[j + i] : 0;
    }
    return load_bytes(bytes);
}

/* t of scores j .. j + 7, -inf where masked. distance: of the query from each key. whole: all
 * lie in the range; else mask selects those that do, and no other is read. */
static ALWAYS_INLINE vec scaled_scores(const struct mha_softmax_row *row, const float *s, size_t j,
                                       bool whole, __m256i mask, vec scale, vec distance,
                                       struct kind kind) {
    vec masked = vec_set(-INFINITY);
    vec t = whole ? vec_load(s + j) : _mm256_maskload_ps(s + j, mask);
    if (kind.added) {
        vec term = vec_mul(vec_set(-row->slope), vec_abs(distance));
        if (kind.bias) {
            vec bias = whole ? vec_load(row->bias + j) : _mm256_maskload_ps(row->bias + j, mask);
            term = kind.alibi ? vec_add(term, bias) : bias;
        }
        t = vec_fma(t, scale, term);
        t = _mm256_blendv_ps(t, masked, _mm256_cmp_ps(term, masked, _CMP_EQ_OQ));
    }
    if (kind.keep) {
        __m256i kept = whole ? load_bytes(row->keep + j) : load_range(row, j);
        __m256i drop = _mm256_cmpeq_epi32(kept, _mm256_setzero_si256());
        t = _mm256_blendv_ps(t, masked, _mm256_castsi256_ps(drop));
    }
    return whole ? t : _mm256_blendv_ps(masked, t, _mm256_castsi256_ps(mask));
}

/* Scores to t in place, from begin to end - 1. Gives the maximum of t. */
static ALWAYS_INLINE float scale_keys(const struct mha_softmax *x,
                                      const struct mha_softmax_row *row, float *s,
                                      struct kind kind) {
    vec scale = vec_set(x->scale), max[UNROLL];
    UNROLLED
    for (size_t u = 0; u < UNROLL; u++) {
        max[u] = vec_set(-INFINITY);
    }
    size_t j = row->begin / LANES * LANES;
    vec ahead = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    vec distance = vec_sub(vec_set(row->position - (float)j), ahead), step = vec_set((float)LANES);
    while (j < row->end) {
        if (j >= row->begin && j + UNROLL * LANES <= row->end) {
            UNROLLED
            for (size_t u = 0; u < UNROLL; u++) {
                vec t =
                    scaled_scores(row, s, j, true, _mm256_setzero_si256(), scale, distance, kind);
                max[u] = _mm256_max_ps(t, max[u]); /* gives the second for NaN */
                if (kind.keep || kind.added) {
                    vec_store(s + j, t);
                }
                distance = vec_sub(distance, step);
                j += LANES;
            }
        } else {
            __m256i mask = lane_mask(j, row->begin, row->end);
            vec t = scaled_scores(row, s, j, false, mask, scale, distance, kind);
            max[0] = _mm256_max_ps(t, max[0]);
            _mm256_maskstore_ps(s + j, mask, t);
            distance = vec_sub(distance, step);
            j += LANES;
        }
    }
    vec m = _mm256_max_ps(_mm256_max_ps(max[0], max[1]), _mm256_max_ps(max[2], max[3]));
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
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

/* t to p of the 16 keys from j on, and onto the sum's lanes; an edge of the range lies in them. */
static ALWAYS_INLINE void exp_edge(const struct mha_softmax_row *row, float *s, size_t j,
                                   vec factor, vec base, vec sum[2]) {
    for (size_t h = 0; h < 2; h++, j += LANES) {
        __m256i mask = lane_mask(j, row->begin, row->end);
        vec t = _mm256_blendv_ps(vec_set(-INFINITY), _mm256_maskload_ps(s + j, mask),
                                 _mm256_castsi256_ps(mask));
        vec p = vec_exp2(vec_mul(vec_sub(t, base), factor));
        _mm256_maskstore_ps(s + j, mask, p);
        sum[h] = vec_add(sum[h], p);
    }
}

/* t to p in place, zeros elsewhere. Gives the row's sum. */
static float exp_row(const struct mha_softmax *x, const struct mha_softmax_row *row, float *s,
                     float max) {
    /* A row that attends to nothing has no maximum; 0 keeps 2^-inf = 0 there. */
    vec base = vec_set(max == -INFINITY ? 0.0f : max), factor = vec_set(x->factor);
    vec sum[2] = {vec_set(0.0f), vec_set(0.0f)};
    size_t j = row->begin / MHA_PANEL * MHA_PANEL;
    if (row->begin > 0) {
        memset(s, 0, row->begin * sizeof *s);
    }
    if (j < row->begin) {
        exp_edge(row, s, j, factor, base, sum);
        j += MHA_PANEL;
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
            sum[u % 2] = vec_add(sum[u % 2], p[u]);
        }
    }
    for (; j < row->end; j += MHA_PANEL) {
        exp_edge(row, s, j, factor, base, sum);
    }
    if (row->end < x->keys) {
        memset(s + row->end, 0, (x->keys - row->end) * sizeof *s);
    }
    vec eight = vec_add(sum[0], sum[1]);
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    half = _mm_add_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

/* All maxima first: the exponentials then wait for none of them. */
void mha_avx2_softmax(const struct mha_softmax *x) {
    for (size_t i = 0; i < x->rows; i++) {
        float max = scale_row(x, &x->row[i], x->scores + i * x->stride);
        x->max[i] = mha_softmax_max(x, &x->row[i], max);
    }
    for (size_t i = 0; i < x->rows; i++) {
        x->sum[i] = exp_row(x, &x->row[i], x->scores + i * x->stride, x->max[i]);
    }
}
