/* SPDX-License-Identifier: MIT
 *
 * Scalar softmax over a block of keys, and what streaming attention does with its results.
 */
#include <math.h>
#include <stdbool.h>

#include "exp.h"
#include "scalar.h"

/* Scale and mask. Masked scores are not looked at, for they may be NaN. */
static inline float scaled_score(const struct mha_softmax_row *row, size_t j, float score,
                                 float scale) {
    if (row->keep && row->keep[j] == 0) {
        return -INFINITY;
    }
    if (!row->bias) {
        return score * scale;
    }
    return row->bias[j] == -INFINITY ? -INFINITY : mha_fma(score, scale, row->bias[j]);
}

static void softmax_row(size_t keys, float *s, float scale, const struct mha_softmax_row *row,
                        float *max, float *sum) {
    float m = -INFINITY;
    for (size_t j = row->begin; j < row->end; j++) {
        s[j] = scaled_score(row, j, s[j], scale);
        m = s[j] > m ? s[j] : m; /* false for NaN */
    }
    m += 0.0f; /* -0 to +0 */
    /* A block of masked keys and NaN has no maximum; 0 keeps exp(-inf) = 0 there. */
    float base = m == -INFINITY ? 0.0f : m;

    float lane[MHA_PANEL] = {0};
    for (size_t j = 0; j < row->begin; j++) {
        s[j] = 0.0f;
    }
    for (size_t j = row->begin; j < row->end; j++) {
        s[j] = mha_exp(s[j] - base);
        lane[j % MHA_PANEL] += s[j];
    }
    for (size_t j = row->end; j < keys; j++) {
        s[j] = 0.0f;
    }
    for (size_t half = MHA_PANEL / 2; half > 0; half /= 2) {
        for (size_t r = 0; r < half; r++) {
            lane[r] += lane[r + half];
        }
    }
    *max = m;
    *sum = lane[0];
}

void mha_scalar_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                        const struct mha_softmax_row *mask, float *max, float *sum) {
    for (size_t i = 0; i < rows; i++) {
        softmax_row(keys, scores + i * stride, scale, &mask[i], &max[i], &sum[i]);
    }
}

void mha_scalar_merge(size_t rows, size_t width, const struct mha_partial *running,
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
        for (size_t d = 0; d < width; d++) {
            out[d] = mha_fma(from[d], b, out[d] * a);
        }
    }
}

void mha_scalar_normalize(size_t rows, size_t width, const float *sum, const float *in,
                          size_t in_stride, float *out, size_t out_stride) {
    for (size_t i = 0; i < rows; i++) {
        bool empty = sum[i] == 0.0f;
        float r = 1.0f / sum[i];
        for (size_t d = 0; d < width; d++) {
            /* Adding +0 makes every exact zero +0. */
            out[i * out_stride + d] = empty ? 0.0f : mha_fma(in[i * in_stride + d], r, 0.0f);
        }
    }
}

void mha_scalar_weights(size_t keys, float *p, float block_max, float max, float sum) {
    float factor = mha_exp(block_max - max) * (1.0f / sum);
    for (size_t j = 0; j < keys; j++) {
        p[j] = p[j] == 0.0f ? 0.0f : p[j] * factor;
    }
}
