/* SPDX-License-Identifier: MIT
 *
 * AVX-512 softmax over a block of keys, and what streaming attention does with its results.
 */
#include <math.h>
#include <stdbool.h>

#include "avx512.h"

/* Vectors in flight: enough to cover the latency of exp's chain of a dozen operations. */
enum { UNROLL = 4 };

/* Scale and mask of scores j .. j + 15, of which only those in lanes are looked at; the
 * others become -inf. has_keep and has_bias are constants where it is inlined. */
static ALWAYS_INLINE __m512 scaled_scores(const struct mha_softmax_row *row, size_t j,
                                          __mmask16 lanes, const float *s, __m512 scale,
                                          bool has_keep, bool has_bias) {
    __m512 masked = _mm512_set1_ps(-INFINITY);
    __m512 t = _mm512_maskz_loadu_ps(lanes, s + j);
    if (has_keep) {
        __m128i keep = _mm_maskz_loadu_epi8(lanes, row->keep + j);
        lanes = _mm_test_epi8_mask(keep, keep);
    }
    if (!has_bias) {
        return _mm512_mask_mul_ps(masked, lanes, t, scale);
    }
    __m512 bias = _mm512_mask_loadu_ps(masked, lanes, row->bias + j);
    lanes = _mm512_cmp_ps_mask(bias, masked, _CMP_NEQ_UQ);
    return _mm512_mask_mov_ps(masked, lanes, _mm512_fmadd_ps(t, scale, bias));
}

/* Scaled and masked scores in place, from the vector of begin to that of end - 1. Gives the
 * row's maximum. */
static ALWAYS_INLINE float scale_row(size_t keys, float *s, float scale,
                                     const struct mha_softmax_row *row, bool has_keep,
                                     bool has_bias) {
    __m512 factor = _mm512_set1_ps(scale);
    __m512 max[UNROLL];
    UNROLLED
    for (size_t u = 0; u < UNROLL; u++) {
        max[u] = _mm512_set1_ps(-INFINITY);
    }
    size_t j = row->begin / MHA_PANEL * MHA_PANEL;
    while (j < row->end) {
        if (j >= row->begin && j + UNROLL * MHA_PANEL <= row->end) {
            UNROLLED
            for (size_t u = 0; u < UNROLL; u++) {
                __m512 t = scaled_scores(row, j, ALL_LANES, s, factor, has_keep, has_bias);
                max[u] = _mm512_max_ps(t, max[u]); /* gives the second for NaN */
                _mm512_storeu_ps(s + j, t);
                j += MHA_PANEL;
            }
        } else {
            __mmask16 lanes = first_lanes(row->end - j);
            if (j < row->begin) {
                lanes = (__mmask16)(lanes & ~first_lanes(row->begin - j));
            }
            __m512 t = scaled_scores(row, j, lanes, s, factor, has_keep, has_bias);
            max[0] = _mm512_max_ps(t, max[0]);
            _mm512_mask_storeu_ps(s + j, first_lanes(keys - j), t);
            j += MHA_PANEL;
        }
    }
    max[0] = _mm512_max_ps(_mm512_max_ps(max[0], max[1]), _mm512_max_ps(max[2], max[3]));
    return _mm512_reduce_max_ps(max[0]) + 0.0f; /* -0 to +0 */
}

/* exp of scaled scores in place, zeros elsewhere. Gives the row's sum: a lane of the vector
 * is a lane of the contract. */
static float exp_row(size_t keys, float *s, float max, const struct mha_softmax_row *row) {
    /* A block of masked keys and NaN has no maximum; 0 keeps exp(-inf) = 0 there. */
    __m512 base = _mm512_set1_ps(max == -INFINITY ? 0.0f : max);
    __m512 sum = _mm512_setzero_ps();
    size_t j = 0;
    for (; j + MHA_PANEL <= row->begin; j += MHA_PANEL) {
        _mm512_storeu_ps(s + j, _mm512_setzero_ps());
    }
    for (; j + UNROLL * MHA_PANEL <= row->end; j += UNROLL * MHA_PANEL) {
        __m512 p[UNROLL];
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            p[u] = exp_ps(_mm512_sub_ps(_mm512_loadu_ps(s + j + u * MHA_PANEL), base));
        }
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            _mm512_storeu_ps(s + j + u * MHA_PANEL, p[u]);
            sum = _mm512_add_ps(sum, p[u]);
        }
    }
    for (; j < row->end; j += MHA_PANEL) {
        __mmask16 lanes = first_lanes(keys - j);
        __m512 t = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), lanes, s + j);
        __m512 p = exp_ps(_mm512_sub_ps(t, base));
        _mm512_mask_storeu_ps(s + j, lanes, p);
        sum = _mm512_add_ps(sum, p);
    }
    for (; j < keys; j += MHA_PANEL) {
        _mm512_mask_storeu_ps(s + j, first_lanes(keys - j), _mm512_setzero_ps());
    }
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    quarter = _mm_add_ss(quarter, _mm_movehdup_ps(quarter));
    return _mm_cvtss_f32(quarter);
}

/* All maxima first: the exponentials then wait for none of them. */
void mha_avx512_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                        const struct mha_softmax_row *mask, float *max, float *sum) {
    for (size_t i = 0; i < rows; i++) {
        float *s = scores + i * stride;
        const struct mha_softmax_row *row = &mask[i];
        if (row->keep && row->bias) {
            max[i] = scale_row(keys, s, scale, row, true, true);
        } else if (row->keep) {
            max[i] = scale_row(keys, s, scale, row, true, false);
        } else if (row->bias) {
            max[i] = scale_row(keys, s, scale, row, false, true);
        } else {
            max[i] = scale_row(keys, s, scale, row, false, false);
        }
    }
    for (size_t i = 0; i < rows; i++) {
        sum[i] = exp_row(keys, scores + i * stride, max[i], &mask[i]);
    }
}

void mha_avx512_merge(size_t rows, size_t width, const struct mha_partial *running,
                      const struct mha_partial *block) {
    for (size_t i = 0; i < rows; i++) {
        if (block->sum[i] == 0.0f) {
            continue;
        }
        float *out = running->out + i * running->stride;
        const float *from = block->out + i * block->stride;
        if (running->sum[i] == 0.0f) {
            running->max[i] = block->max[i];
            running->sum[i] = block->sum[i];
            memcpy(out, from, width * sizeof *out);
            continue;
        }
        float max = running->max[i];
        float block_max = block->max[i];
        float larger = block_max > max ? block_max : max;
        float a = mha_exp(max - larger);
        float b = mha_exp(block_max - larger);
        running->max[i] = larger;
        running->sum[i] = mha_fma(block->sum[i], b, running->sum[i] * a);
        __m512 a_lanes = _mm512_set1_ps(a);
        __m512 b_lanes = _mm512_set1_ps(b);
        for (size_t d = 0; d < width; d += MHA_PANEL) {
            __mmask16 lanes = first_lanes(width - d);
            __m512 old = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, out + d), a_lanes);
            __m512 new = _mm512_maskz_loadu_ps(lanes, from + d);
            _mm512_mask_storeu_ps(out + d, lanes, _mm512_fmadd_ps(new, b_lanes, old));
        }
    }
}

void mha_avx512_normalize(size_t rows, size_t width, const float *sum, const float *in,
                          size_t in_stride, float *out, size_t out_stride) {
    for (size_t i = 0; i < rows; i++) {
        if (sum[i] == 0.0f) {
            memset(out, 0, width * sizeof *out);
        } else {
            __m512 r = _mm512_set1_ps(1.0f / sum[i]);
            __m512 zero = _mm512_setzero_ps(); /* added, it makes every exact zero +0 */
            size_t d = 0;
            for (; d + MHA_PANEL <= width; d += MHA_PANEL) {
                _mm512_storeu_ps(out + d, _mm512_fmadd_ps(_mm512_loadu_ps(in + d), r, zero));
            }
            if (d < width) {
                __mmask16 lanes = first_lanes(width - d);
                __m512 last = _mm512_maskz_loadu_ps(lanes, in + d);
                _mm512_mask_storeu_ps(out + d, lanes, _mm512_fmadd_ps(last, r, zero));
            }
        }
        in += in_stride;
        out += out_stride;
    }
}

void mha_avx512_weights(size_t keys, float *p, float block_max, float max, float sum) {
    __m512 factor = _mm512_set1_ps(mha_exp(block_max - max) * (1.0f / sum));
    for (size_t j = 0; j < keys; j += MHA_PANEL) {
        __mmask16 lanes = first_lanes(keys - j);
        __m512 w = _mm512_maskz_loadu_ps(lanes, p + j);
        __mmask16 some = _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        _mm512_mask_storeu_ps(p + j, lanes, _mm512_maskz_mul_ps(some, w, factor));
    }
}
