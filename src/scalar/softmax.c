/* SPDX-License-Identifier: MIT
 *
 * Scalar softmax over a block of keys.
 */
#include "softmax_row.h"
#include "vec.h"

/* Scores to t in place, -inf where masked: masked scores are not read, they may be NaN. Gives
 * the maximum of t. */
static float scale_row(const struct mha_softmax *x, const struct mha_softmax_row *row, float *s) {
    float max = -INFINITY;
    for (size_t j = row->begin; j < row->end; j++) {
        if (mha_softmax_masked(x, row, j)) {
            s[j] = -INFINITY;
        } else if (x->added) {
            s[j] = mha_fma(s[j], x->scale, mha_softmax_term(row, j));
        }
        max = s[j] > max ? s[j] : max; /* false for NaN */
    }
    return max;
}

/* t to p in place, zeros elsewhere. Gives the row's sum. */
static float exp_row(const struct mha_softmax *x, const struct mha_softmax_row *row, float *s,
                     float max) {
    float lane[MHA_PANEL] = {0};
    /* A row that attends to nothing has no maximum; 0 keeps 2^-inf = 0 there. */
    float base = max == -INFINITY ? 0.0f : max;
    for (size_t j = 0; j < row->begin; j++) {
        s[j] = 0.0f;
    }
    for (size_t j = row->begin; j < row->end; j++) {
        s[j] = mha_exp2((s[j] - base) * x->factor);
        lane[j % MHA_PANEL] += s[j];
    }
    for (size_t j = row->end; j < x->keys; j++) {
        s[j] = 0.0f;
    }
    for (size_t half = MHA_PANEL / 2; half > 0; half /= 2) {
        for (size_t r = 0; r < half; r++) {
            lane[r] += lane[r + half];
        }
    }
    return lane[0];
}

void mha_scalar_softmax(const struct mha_softmax *x) {
    for (size_t i = 0; i < x->rows; i++) {
        float *s = x->scores + i * x->stride;
        x->max[i] = mha_softmax_max(x, &x->row[i], scale_row(x, &x->row[i], s));
        x->sum[i] = exp_row(x, &x->row[i], s, x->max[i]);
    }
}
