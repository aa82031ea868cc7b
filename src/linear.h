/* SPDX-License-Identifier: MIT
 *
 * A packed linear layer and the loops around the GEMM kernel that apply it.
 */
#ifndef MHA_LINEAR_H
#define MHA_LINEAR_H

#include "kernels.h"

/* y = W x + bias with the outputs in groups (heads), each of which starts a panel, so that
 * a group's outputs can go to a place of their own. */
struct mha_linear {
    size_t groups;
    size_t width;  /* outputs per group */
    size_t depth;  /* inputs */
    float *panels; /* [groups][ceil(width / 16)][depth][16] */
    float *bias;   /* [groups][width] or NULL */
};

/* Applies the layer to rows given one by one: row i of group g goes to
 * out + g * group_stride + i * row_stride. inputs: subnormals in x count as zeros.
 * rows <= kernels->tile_rows; scratch: [tile_rows][depth]. */
void mha_linear_rows(const struct mha_kernels *kernels, const struct mha_linear *linear,
                     size_t rows, const float *const *x, bool inputs, float *scratch, float *out,
                     size_t row_stride, size_t group_stride);

/* Panels of a linear layer's weights: floats of one group. */
static inline size_t mha_panels_size(size_t width, size_t depth) {
    return (width + MHA_PANEL - 1) / MHA_PANEL * MHA_PANEL * depth;
}

#endif
