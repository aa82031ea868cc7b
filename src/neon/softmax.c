/* SPDX-License-Identifier: MIT
 *
 * NEON softmax over a block of keys, and what streaming attention does with its results.
 */
#include <math.h>
#include <string.h>

#include "neon.h"

/* Keys are taken 16 at a time, the lanes of a sum, in four registers: one alone would wait
 * for its own results. */
enum { QUADS = 4 };

/* ---- Softmax ------------------------------------------------------------- */

/* The 16 keys from j on, or those of them that a row attends to. */
struct range {
    size_t from, to;
};

static inline struct range range_at(const struct mha_softmax_row *row, size_t j) {
    return (struct range){.from = row->begin > j ? row->begin : j,
                          .to = row->end < j + MHA_PANEL ? row->end : j + MHA_PANEL};
}

/* Scale and mask; bias and keep say which of the row's are there. kept: the keep bytes of
 * the vector, a lane each. */
static ALWAYS_INLINE float32x4_t scaled_score(float32x4_t score, float32x4_t scale,
                                              float32x4_t term, uint32x4_t kept, bool bias,
                                              bool keep) {
    const float32x4_t masked = vdupq_n_f32(-INFINITY);
    float32x4_t t = bias ? vfmaq_f32(term, score, scale) : vmulq_f32(score, scale);
    if (bias) {
        t = vbslq_f32(vceqq_f32(term, masked), masked, t);
    }
    if (keep) {
        t = vbslq_f32(vceqzq_u32(kept), masked, t);
    }
    return t;
}

static inline uint32x4_t load_bytes(const uint8_t *bytes) {
    uint32_t four;
    memcpy(&four, bytes, sizeof four);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return vmovl_u16(vget_low_u16(wide));
}

/* Scales the 16 keys at s in place. */
static ALWAYS_INLINE float32x4x4_t scale_keys(float *s, const float *term, const uint8_t *kept,
                                              float32x4_t scale, bool bias, bool keep) {
    float32x4x4_t t;
    UNROLLED
    for (size_t v = 0; v < QUADS; v++) {
        float32x4_t b = bias ? vld1q_f32(term + v * LANES) : vdupq_n_f32(0.0f);
        uint32x4_t k = keep ? load_bytes(kept + v * LANES) : vdupq_n_u32(0);
        t.val[v] = scaled_score(vld1q_f32(s + v * LANES), scale, b, k, bias, keep);
        vst1q_f32(s + v * LANES, t.val[v]);
    }
    return t;
}

/* The same at an edge of the range, in buffers where the other keys are masked. A bias of 0
 * for none may turn -0 into +0, which the exp doesn't tell apart. */
static float32x4x4_t scale_edge(const struct mha_softmax_row *row, float *s, size_t j,
                                float32x4_t scale) {
    struct range edge = range_at(row, j);
    float score[MHA_PANEL] = {0}, term[MHA_PANEL] = {0};
    uint8_t kept[MHA_PANEL] = {0};
    for (size_t i = edge.from; i < edge.to; i++) {
        score[i - j] = s[i];
        term[i - j] = row->bias ? row->bias[i] : 0.0f;
        kept[i - j] = row->keep ? row->keep[i] : 1;
    }
    float32x4x4_t t = scale_keys(score, term, kept, scale, true, true);
    for (size_t i = edge.from; i < edge.to; i++) {
        s[i] = score[i - j];
    }
    return t;
}

/* Of each lane, the larger that is not NaN. */
static ALWAYS_INLINE float32x4x4_t larger(float32x4x4_t a, float32x4x4_t b) {
    return (float32x4x4_t){{vmaxnmq_f32(a.val[0], b.val[0]), vmaxnmq_f32(a.val[1], b.val[1]),
                            vmaxnmq_f32(a.val[2], b.val[2]), vmaxnmq_f32(a.val[3], b.val[3])}};
}

/* Scales and masks a row; its maximum. */
static ALWAYS_INLINE float scale_range(const struct mha_softmax_row *row, float *s, float factor,
                                       bool bias, bool keep) {
    const float32x4_t scale = vdupq_n_f32(factor), lowest = vdupq_n_f32(-INFINITY);
    float32x4x4_t max = {{lowest, lowest, lowest, lowest}};
    size_t j = row->begin / MHA_PANEL * MHA_PANEL;
    if (j < row->begin) {
        max = larger(max, scale_edge(row, s, j, scale));
        j += MHA_PANEL;
    }
    for (; j + MHA_PANEL <= row->end; j += MHA_PANEL) {
        max = larger(max, scale_keys(s + j, bias ? row->bias + j : NULL,
                                     keep ? row->keep + j : NULL, scale, bias, keep));
    }
    if (j < row->end) {
        max = larger(max, scale_edge(row, s, j, scale));
    }
    float32x4_t m =
        vmaxnmq_f32(vmaxnmq_f32(max.val[0], max.val[1]), vmaxnmq_f32(max.val[2], max.val[3]));
    return vmaxnmvq_f32(m) + 0.0f; /* -0 to +0 */
}

static float scale_row(const struct mha_softmax_row *row, float *s, float scale) {
    if (row->bias) {
        return row->keep ? scale_range(row, s, scale, true, true)
                         : scale_range(row, s, scale, true, false);
    }
    return row->keep ? scale_range(row, s, scale, false, true)
                     : scale_range(row, s, scale, false, false);
}

/* exp(s - base) of the 16 keys at s in place. */
static ALWAYS_INLINE float32x4x4_t exp_keys(float *s, float32x4_t base) {
    float32x4x4_t p;
    UNROLLED
    for (size_t v = 0; v < QUADS; v++) {
        p.val[v] = exp_f32x4(vsubq_f32(vld1q_f32(s + v * LANES), base));
        vst1q_f32(s + v * LANES, p.val[v]);
    }
    return p;
}

/* The same at an edge of the range; +0 for the other keys. */
static float32x4x4_t exp_edge(const struct mha_softmax_row *row, float *s, size_t j,
                              float32x4_t base) {
    struct range edge = range_at(row, j);
    float score[MHA_PANEL];
    for (size_t i = 0; i < MHA_PANEL; i++) {
        score[i] = j + i >= edge.from && j + i < edge.to ? s[j + i] : -INFINITY;
    }
    float32x4x4_t p = exp_keys(score, base);
    for (size_t i = edge.from; i < edge.to; i++) {
        s[i] = score[i - j];
    }
    return p;
}

static ALWAYS_INLINE float32x4x4_t add(float32x4x4_t a, float32x4x4_t b) {
    return (float32x4x4_t){{vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1]),
                            vaddq_f32(a.val[2], b.val[2]), vaddq_f32(a.val[3], b.val[3])}};
}

/* exp of a scaled row, zeros around it; its sum. */
static float exp_row(const struct mha_softmax_row *row, size_t keys, float *s, float max) {
    /* A block of masked keys and NaN has no maximum; 0 keeps exp(-inf) = 0 there. */
    const float32x4_t base = vdupq_n_f32(max == -INFINITY ? 0.0f : max);
    const float32x4_t zero = vdupq_n_f32(0.0f);
    float32x4x4_t sum = {{zero, zero, zero, zero}};
    memset(s, 0, row->begin * sizeof *s);
    size_t j = row->begin / MHA_PANEL * MHA_PANEL;
    if (j < row->begin) {
        sum = add(sum, exp_edge(row, s, j, base));
        j += MHA_PANEL;
    }
    for (; j + MHA_PANEL <= row->end; j += MHA_PANEL) {
        sum = add(sum, exp_keys(s + j, base));
    }
    if (j < row->end) {
        sum = add(sum, exp_edge(row, s, j, base));
    }
    memset(s + row->end, 0, (keys - row->end) * sizeof *s);
    float32x4_t four =
        vaddq_f32(vaddq_f32(sum.val[0], sum.val[2]), vaddq_f32(sum.val[1], sum.val[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* All rows' maxima before all rows' exps: no row waits for its own maximum. */
void mha_neon_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                      const struct mha_softmax_row *mask, float *max, float *sum) {
    for (size_t i = 0; i < rows; i++) {
        max[i] = scale_row(&mask[i], scores + i * stride, scale);
    }
    for (size_t i = 0; i < rows; i++) {
        sum[i] = exp_row(&mask[i], keys, scores + i * stride, max[i]);
    }
}

/* ---- Merging, normalizing, weights --------------------------------------- */

void mha_neon_merge(size_t rows, size_t width, const struct mha_partial *running,
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
        size_t d = 0;
        for (; d + LANES <= width; d += LANES) {
            float32x4_t scaled = vmulq_n_f32(vld1q_f32(out + d), a);
            vst1q_f32(out + d, vfmaq_n_f32(scaled, vld1q_f32(from + d), b));
        }
        for (; d < width; d++) {
            out[d] = mha_fma(from[d], b, out[d] * a);
        }
    }
}

void mha_neon_normalize(size_t rows, size_t width, const float *sum, const float *in,
                        size_t in_stride, float *out, size_t out_stride) {
    for (size_t i = 0; i < rows; i++) {
        const float *from = in + i * in_stride;
        float *to = out + i * out_stride;
        if (sum[i] == 0.0f) {
            memset(to, 0, width * sizeof *to);
            continue;
        }
        float r = 1.0f / sum[i];
        size_t d = 0;
        /* Adding +0 makes every exact zero +0. */
        for (; d + LANES <= width; d += LANES) {
            vst1q_f32(to + d, vfmaq_n_f32(vdupq_n_f32(0.0f), vld1q_f32(from + d), r));
        }
        for (; d < width; d++) {
            to[d] = mha_fma(from[d], r, 0.0f);
        }
    }
}

void mha_neon_weights(size_t keys, float *p, float block_max, float max, float sum) {
    float factor = mha_exp(block_max - max) * (1.0f / sum);
    size_t j = 0;
    for (; j + LANES <= keys; j += LANES) {
        float32x4_t four = vld1q_f32(p + j);
        uint32x4_t scaled = vreinterpretq_u32_f32(vmulq_n_f32(four, factor));
        vst1q_f32(p + j, vreinterpretq_f32_u32(vbicq_u32(scaled, vceqzq_f32(four))));
    }
    for (; j < keys; j++) {
        p[j] = p[j] == 0.0f ? 0.0f : p[j] * factor;
    }
}
