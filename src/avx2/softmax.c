/* SPDX-License-Identifier: MIT
 *
 * AVX2 softmax over a block of keys, and what streaming attention does with its results.
 */
#include <math.h>
#include <string.h>

#include "avx2.h"

/* Keys are taken 16 at a time, the lanes of a sum, and twice that where there are as many:
 * one vector alone would wait for its own results. */
enum { WIDE = 32 };

/* ---- Softmax ------------------------------------------------------------- */

/* Scale and mask; bias and keep say which of the row's are there. kept: the keep bytes of
 * the vector, a lane each. */
static ALWAYS_INLINE __m256 scaled_score(__m256 score, __m256 scale, __m256 term, __m256i kept,
                                         bool bias, bool keep) {
    const __m256 masked = _mm256_set1_ps(-INFINITY);
    __m256 t = bias ? _mm256_fmadd_ps(score, scale, term) : _mm256_mul_ps(score, scale);
    if (bias) {
        t = _mm256_blendv_ps(t, masked, _mm256_cmp_ps(term, masked, _CMP_EQ_OQ));
    }
    if (keep) {
        __m256i drop = _mm256_cmpeq_epi32(kept, _mm256_setzero_si256());
        t = _mm256_blendv_ps(t, masked, _mm256_castsi256_ps(drop));
    }
    return t;
}

static inline __m256i load_bytes(const uint8_t *bytes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
}

/* Scales the vector at key j in place; all of it is attended to. */
static ALWAYS_INLINE __m256 scale_whole(const struct mha_softmax_row *row, float *s, size_t j,
                                        __m256 scale, bool bias, bool keep) {
    __m256 term = bias ? _mm256_loadu_ps(row->bias + j) : _mm256_setzero_ps();
    __m256i kept = keep ? load_bytes(row->keep + j) : _mm256_setzero_si256();
    __m256 t = scaled_score(_mm256_loadu_ps(s + j), scale, term, kept, bias, keep);
    _mm256_storeu_ps(s + j, t);
    return t;
}

/* The same at an edge of the range. */
static ALWAYS_INLINE __m256 scale_part(const struct mha_softmax_row *row, float *s, size_t j,
                                       __m256 scale, bool bias, bool keep) {
    __m256i mask = lane_mask(j, row->begin, row->end);
    __m256 term = bias ? _mm256_maskload_ps(row->bias + j, mask) : _mm256_setzero_ps();
    uint8_t bytes[LANES] = {0};
    for (size_t i = 0; keep && i < LANES; i++) {
        bytes[i] = j + i >= row->begin && j + i < row->end ? row->keep[j + i] : 0;
    }
    __m256 t =
        scaled_score(_mm256_maskload_ps(s + j, mask), scale, term, load_bytes(bytes), bias, keep);
    _mm256_maskstore_ps(s + j, mask, t);
    return _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), t, _mm256_castsi256_ps(mask));
}

/* Scales and masks a row; its maximum. */
static ALWAYS_INLINE float scale_keys(const struct mha_softmax_row *row, float *s, float factor,
                                      bool bias, bool keep) {
    const __m256 scale = _mm256_set1_ps(factor);
    __m256 max[WIDE / LANES];
    UNROLLED
    for (size_t v = 0; v < WIDE / LANES; v++) {
        max[v] = _mm256_set1_ps(-INFINITY);
    }
    /* max_ps gives its second operand where one is NaN. */
    size_t j = row->begin / LANES * LANES;
    if (j < row->begin) {
        max[0] = _mm256_max_ps(scale_part(row, s, j, scale, bias, keep), max[0]);
        j += LANES;
    }
    for (; j + WIDE <= row->end; j += WIDE) {
        UNROLLED
        for (size_t v = 0; v < WIDE / LANES; v++) {
            __m256 t = scale_whole(row, s, j + v * LANES, scale, bias, keep);
            max[v] = _mm256_max_ps(t, max[v]);
        }
    }
    for (; j + LANES <= row->end; j += LANES) {
        max[0] = _mm256_max_ps(scale_whole(row, s, j, scale, bias, keep), max[0]);
    }
    if (j < row->end) {
        max[0] = _mm256_max_ps(scale_part(row, s, j, scale, bias, keep), max[0]);
    }
    __m256 m = _mm256_max_ps(_mm256_max_ps(max[0], max[1]), _mm256_max_ps(max[2], max[3]));
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half) + 0.0f; /* -0 to +0 */
}

static float scale_row(const struct mha_softmax_row *row, float *s, float scale) {
    if (row->bias) {
        return row->keep ? scale_keys(row, s, scale, true, true)
                         : scale_keys(row, s, scale, true, false);
    }
    return row->keep ? scale_keys(row, s, scale, false, true)
                     : scale_keys(row, s, scale, false, false);
}

/* exp(s - base) of the vector at key j in place, and onto a part of the sum. */
static ALWAYS_INLINE void exp_whole(float *s, size_t j, __m256 base, __m256 *sum) {
    __m256 p = exp_ps(_mm256_sub_ps(_mm256_loadu_ps(s + j), base));
    _mm256_storeu_ps(s + j, p);
    *sum = _mm256_add_ps(*sum, p);
}

static inline void exp_part(const struct mha_softmax_row *row, float *s, size_t j, __m256 base,
                            __m256 *sum) {
    __m256i mask = lane_mask(j, row->begin, row->end);
    __m256 p = exp_ps(_mm256_sub_ps(_mm256_maskload_ps(s + j, mask), base));
    _mm256_maskstore_ps(s + j, mask, p);
    *sum = _mm256_add_ps(*sum, _mm256_and_ps(p, _mm256_castsi256_ps(mask)));
}

/* exp of a scaled row, zeros around it; its sum. */
static float exp_row(const struct mha_softmax_row *row, size_t keys, float *s, float max) {
    /* A block of masked keys and NaN has no maximum; 0 keeps exp(-inf) = 0 there. */
    const __m256 base = _mm256_set1_ps(max == -INFINITY ? 0.0f : max);
    __m256 low = _mm256_setzero_ps(), high = low; /* 16 lanes */
    if (row->begin > 0) {
        memset(s, 0, row->begin * sizeof *s);
    }
    size_t j = row->begin / MHA_PANEL * MHA_PANEL;
    if (j < row->begin) {
        exp_part(row, s, j, base, &low);
        exp_part(row, s, j + LANES, base, &high);
        j += MHA_PANEL;
    }
    for (; j + WIDE <= row->end; j += WIDE) {
        exp_whole(s, j, base, &low);
        exp_whole(s, j + LANES, base, &high);
        exp_whole(s, j + 2 * LANES, base, &low);
        exp_whole(s, j + 3 * LANES, base, &high);
    }
    for (; j < row->end; j += MHA_PANEL) {
        exp_part(row, s, j, base, &low);
        exp_part(row, s, j + LANES, base, &high);
    }
    if (row->end < keys) {
        memset(s + row->end, 0, (keys - row->end) * sizeof *s);
    }
    __m256 sum = _mm256_add_ps(low, high);
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    half = _mm_add_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

/* All rows' maxima before all rows' exps: no row waits for its own maximum. */
void mha_avx2_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                      const struct mha_softmax_row *mask, float *max, float *sum) {
    for (size_t i = 0; i < rows; i++) {
        max[i] = scale_row(&mask[i], scores + i * stride, scale);
    }
    for (size_t i = 0; i < rows; i++) {
        sum[i] = exp_row(&mask[i], keys, scores + i * stride, max[i]);
    }
}

/* ---- Merging, normalizing, weights --------------------------------------- */

void mha_avx2_merge(size_t rows, size_t width, const struct mha_partial *running,
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
        __m256 a_ps = _mm256_set1_ps(a), b_ps = _mm256_set1_ps(b);
        size_t d = 0;
        for (; d + LANES <= width; d += LANES) {
            __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(out + d), a_ps);
            _mm256_storeu_ps(out + d, _mm256_fmadd_ps(_mm256_loadu_ps(from + d), b_ps, scaled));
        }
        if (d < width) {
            __m256i mask = lane_mask(d, 0, width);
            __m256 scaled = _mm256_mul_ps(_mm256_maskload_ps(out + d, mask), a_ps);
            __m256 added = _mm256_maskload_ps(from + d, mask);
            _mm256_maskstore_ps(out + d, mask, _mm256_fmadd_ps(added, b_ps, scaled));
        }
    }
}

void mha_avx2_normalize(size_t rows, size_t width, const float *sum, const float *in,
                        size_t in_stride, float *out, size_t out_stride) {
    for (size_t i = 0; i < rows; i++) {
        const float *from = in + i * in_stride;
        float *to = out + i * out_stride;
        if (sum[i] == 0.0f) {
            memset(to, 0, width * sizeof *to);
            continue;
        }
        const __m256 r = _mm256_set1_ps(1.0f / sum[i]), zero = _mm256_setzero_ps();
        size_t d = 0;
        /* Adding +0 makes every exact zero +0. */
        for (; d + LANES <= width; d += LANES) {
            _mm256_storeu_ps(to + d, _mm256_fmadd_ps(_mm256_loadu_ps(from + d), r, zero));
        }
        if (d < width) {
            __m256i mask = lane_mask(d, 0, width);
            __m256 rest = _mm256_maskload_ps(from + d, mask);
            _mm256_maskstore_ps(to + d, mask, _mm256_fmadd_ps(rest, r, zero));
        }
    }
}

/* p * factor; +0 where p is 0, whatever the factor. */
static inline __m256 weight(__m256 p, __m256 factor) {
    __m256 zero = _mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_EQ_OQ);
    return _mm256_andnot_ps(zero, _mm256_mul_ps(p, factor));
}

void mha_avx2_weights(size_t keys, float *p, float block_max, float max, float sum) {
    const __m256 factor = _mm256_set1_ps(mha_exp(block_max - max) * (1.0f / sum));
    size_t j = 0;
    for (; j + LANES <= keys; j += LANES) {
        _mm256_storeu_ps(p + j, weight(_mm256_loadu_ps(p + j), factor));
    }
    if (j < keys) {
        __m256i mask = lane_mask(j, 0, keys);
        _mm256_maskstore_ps(p + j, mask, weight(_mm256_maskload_ps(p + j, mask), factor));
    }
}
