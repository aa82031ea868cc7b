/* SPDX-License-Identifier: MIT
 *
 * NEON softmax over a block of keys.
 */
#include <string.h>

#include "softmax_row.h"
#include "vec.h"

/* Vectors in flight, which are the 16 lanes of a sum: one alone would wait for its own results. */
enum { UNROLL = 4 };

/* What the terms and masks of a row are; constants where they are inlined. */
struct kind {
    bool keep, added, bias, alibi;
};

static inline uint32x4_t load_bytes(const uint8_t *bytes) {
    uint32_t four;
    memcpy(&four, bytes, sizeof four);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return vmovl_u16(vget_low_u16(wide));
}

/* t of four scores, -inf where masked. distance: of the query from each key. bias and keep: of
 * these keys. */
static ALWAYS_INLINE vec scaled_scores(vec score, const float *bias, const uint8_t *keep, vec scale,
                                       vec slope, vec distance, struct kind kind) {
    vec masked = vec_set(-INFINITY), t = score;
    if (kind.added) {
        vec term = vnegq_f32(vec_mul(slope, vec_abs(distance)));
        if (kind.bias) {
            term = kind.alibi ? vec_add(term, vec_load(bias)) : vec_load(bias);
        }
        t = vbslq_f32(vceqq_f32(term, masked), masked, vec_fma(score, scale, term));
    }
    return kind.keep ? vbslq_f32(vceqzq_u32(load_bytes(keep)), masked, t) : t;
}

/* The same of the 16 keys from j on where an edge of the range lies in them, in buffers where
 * the other keys are masked. */
static void scale_edge(const struct mha_softmax_row *row, float *s, size_t j, vec scale,
                       vec distance, struct kind kind, vec max[UNROLL]) {
    float score[MHA_PANEL] = {0}, bias[MHA_PANEL] = {0};
    uint8_t keep[MHA_PANEL] = {0};
    size_t from = row->begin > j ? row->begin - j : 0;
    size_t to = row->end < j + MHA_PANEL ? row->end - j : MHA_PANEL;
    for (size_t i = from; i < to; i++) {
        score[i] = s[j + i];
        bias[i] = kind.bias ? row->bias[j + i] : 0.0f;
        keep[i] = kind.keep ? row->keep[j + i] : 1;
    }
    kind.keep = true;
    for (size_t u = 0; u < UNROLL; u++) {
        vec t = scaled_scores(vec_load(score + u * LANES), bias + u * LANES, keep + u * LANES,
                              scale, vec_set(row->slope), distance, kind);
        max[u] = vmaxnmq_f32(t, max[u]);
        vec_store(score + u * LANES, t);
        distance = vec_sub(distance, vec_set((float)LANES));
    }
    memcpy(s + j + from, score + from, (to - from) * sizeof *s);
}

/* Scores to t in place, from begin to end - 1. Gives the maximum of t. */
static ALWAYS_INLINE float scale_keys(const struct mha_softmax *x,
                                      const struct mha_softmax_row *row, float *s,
                                      struct kind kind) {
    vec scale = vec_set(x->scale), slope = vec_set(row->slope), max[UNROLL];
    UNROLLED
    for (size_t u = 0; u < UNROLL; u++) {
        max[u] = vec_set(-INFINITY);
    }
    size_t j = row->begin / MHA_PANEL * MHA_PANEL;
    static const float lanes[LANES] = {0, 1, 2, 3};
    vec distance = vec_sub(vec_set(row->position - (float)j), vec_load(lanes));
    vec step = vec_set((float)LANES);
    for (; j < row->end; j += MHA_PANEL) {
        if (j < row->begin || j + MHA_PANEL > row->end) {
            scale_edge(row, s, j, scale, distance, kind, max);
            distance = vec_sub(distance, vec_set((float)MHA_PANEL));
            continue;
        }
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            size_t at = j + u * LANES;
            vec t = scaled_scores(vec_load(s + at), kind.bias ? row->bias + at : NULL,
                                  kind.keep ? row->keep + at : NULL, scale, slope, distance, kind);
            max[u] = vmaxnmq_f32(t, max[u]); /* the one that is not NaN */
            if (kind.keep || kind.added) {
                vec_store(s + at, t);
            }
            distance = vec_sub(distance, step);
        }
    }
    return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(max[0], max[1]), vmaxnmq_f32(max[2], max[3])));
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

/* t to p of the 16 keys from j on where an edge of the range lies in them, and onto the sum. */
static ALWAYS_INLINE void exp_edge(const struct mha_softmax_row *row, float *s, size_t j,
                                   vec factor, vec base, vec sum[UNROLL]) {
    float t[MHA_PANEL];
    size_t from = row->begin > j ? row->begin - j : 0;
    size_t to = row->end < j + MHA_PANEL ? row->end - j : MHA_PANEL;
    for (size_t i = 0; i < MHA_PANEL; i++) {
        t[i] = i >= from && i < to ? s[j + i] : -INFINITY;
    }
    for (size_t u = 0; u < UNROLL; u++) {
        vec p = vec_exp2(vec_mul(vec_sub(vec_load(t + u * LANES), base), factor));
        vec_store(t + u * LANES, p);
        sum[u] = vec_add(sum[u], p);
    }
    memcpy(s + j + from, t + from, (to - from) * sizeof *s);
}

/* t to p in place, zeros elsewhere. Gives the row's sum. */
static float exp_row(const struct mha_softmax *x, const struct mha_softmax_row *row, float *s,
                     float max) {
    /* A row that attends to nothing has no maximum; 0 keeps 2^-inf = 0 there. */
    vec base = vec_set(max == -INFINITY ? 0.0f : max), factor = vec_set(x->factor);
    vec sum[UNROLL] = {vec_set(0.0f), vec_set(0.0f), vec_set(0.0f), vec_set(0.0f)};
    memset(s, 0, row->begin * sizeof *s);
    for (size_t j = row->begin / MHA_PANEL * MHA_PANEL; j < row->end; j += MHA_PANEL) {
        if (j < row->begin || j + MHA_PANEL > row->end) {
            exp_edge(row, s, j, factor, base, sum);
            continue;
        }
        vec p[UNROLL];
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            p[u] = vec_mul(vec_sub(vec_load(s + j + u * LANES), base), factor);
        }
        vec_exp2s(p, UNROLL);
        UNROLLED
        for (size_t u = 0; u < UNROLL; u++) {
            vec_store(s + j + u * LANES, p[u]);
            sum[u] = vec_add(sum[u], p[u]);
        }
    }
    memset(s + row->end, 0, (x->keys - row->end) * sizeof *s);
    vec four = vec_add(vec_add(sum[0], sum[2]), vec_add(sum[1], sum[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* All maxima first: the exponentials then wait for none of them. */
void mha_neon_softmax(const struct mha_softmax *x) {
    for (size_t i = 0; i < x->rows; i++) {
        float max = scale_row(x, &x->row[i], x->scores + i * x->stride);
        x->max[i] = mha_softmax_max(x, &x->row[i], max);
    }
    for (size_t i = 0; i < x->rows; i++) {
        x->sum[i] = exp_row(x, &x->row[i], x->scores + i * x->stride, x->max[i]);
    }
}
