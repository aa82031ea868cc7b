/* SPDX-License-Identifier: MIT
 *
 * Rows of sequences through a linear layer, to where they are wanted.
 */
#ifndef MHA_PROJECT_H
#define MHA_PROJECT_H

#include "linear.h"

/* What a worker needs for it. */
struct mha_project_scratch {
    float *rows; /* [tile_rows][deepest input]: rows of a tile, together */
    float
        *staged; /* [groups][tile_rows][width], of the widest layer: projected rows on their way */
};

struct mha_projection {
    const struct mha_kernels *kernels;
    const struct mha_project_scratch *scratch;
    const struct mha_linear *linear;
    size_t batch, rows;    /* sequences, and the most rows of one */
    const size_t *lengths; /* rows of each that are projected; NULL: all */
    const float *input;    /* [batch][rows][depth] */
    size_t input_batch_stride, input_row_stride;
    bool inputs; /* they are the caller's: subnormals count as zeros */
    /* Outputs of group g: rows at output + b * batch_stride + g * group_stride + i * row_stride.
     * panel_dim > 0: the first panel_dim of them, as packed panels [ceil(rows / 16)][panel_dim][16]
     * at output + b * batch_stride + g * group_stride. */
    float *output;
    size_t output_batch_stride, output_group_stride, output_row_stride;
    size_t panel_dim;
};

void mha_project(const struct mha_projection *projection);

#endif
