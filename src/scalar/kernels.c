/* SPDX-License-Identifier: MIT
 *
 * The scalar table.
 */
#include "scalar.h"

const struct mha_kernels mha_kernels_scalar = {
    .isa = MHA_ISA_SCALAR,
    .gemm_rows = 8,
    .gemm_columns = 16,
    .block_rows = 96,
    .block_depth = 512,
    .gemm = mha_scalar_gemm,
    .softmax = mha_scalar_softmax,
    .merge = mha_scalar_merge,
    .normalize = mha_scalar_normalize,
    .weights = mha_scalar_weights,
    .transpose = mha_scalar_transpose,
};
