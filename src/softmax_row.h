/* SPDX-License-Identifier: MIT
 *
 * What the softmax kernels share of a row's terms and maximum.
 */
#ifndef MHA_SOFTMAX_ROW_H
#define MHA_SOFTMAX_ROW_H

#include <math.h>

#include "kernels.h"

/* What is added to the scaled score of key j. */
static inline float mha_softmax_term(const struct mha_softmax_row *row, size_t j) {
    float alibi = -(row->slope * fabsf(row->position - (float)j));
    return row->bias ? alibi + row->bias[j] : alibi;
}

static inline bool mha_softmax_masked(const struct mha_softmax *x,
                                      const struct mha_softmax_row *row, size_t j) {
    return (row->keep && row->keep[j] == 0) || (x->added && mha_softmax_term(row, j) == -INFINITY);
}

/* The maximum to give for a row, from the largest t that is not NaN. */
static inline float mha_softmax_max(const struct mha_softmax *x, const struct mha_softmax_row *row,
                                    float largest) {
    float max = largest + 0.0f; /* -0 to +0 */
    for (size_t j = row->begin; max == -INFINITY && j < row->end; j++) {
        max = mha_softmax_masked(x, row, j) ? max : -FLT_MAX;
    }
    return max;
}

#endif
