/* SPDX-License-Identifier: MIT
 *
 * The scalar table.
 */
#include "vec.h"

#include "rows.h"

const struct mha_kernels mha_kernels_scalar = {
    .isa = MHA_ISA_SCALAR,
    .gemm_rows = 8,
    .gemm_columns = 16,
    .tile_rows = 96,
    .tile_depth = 512,
    .gemm = mha_scalar_gemm,
    .softmax = mha_scalar_softmax,
    .pack = mha_scalar_pack,
    .has_subnormal = rows_has_subnormal,
    .copy_inputs = rows_copy_inputs,
    .softcap = rows_softcap,
    .merge = rows_merge,
    .normalize = rows_normalize,
    .weights = rows_weights,
};
