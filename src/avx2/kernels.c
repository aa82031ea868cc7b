/* SPDX-License-Identifier: MIT
 *
 * The AVX2 table.
 */
#include "vec.h"

#include "rows.h"

const struct mha_kernels mha_kernels_avx2 = {
    .isa = MHA_ISA_AVX2,
    .gemm_rows = 6,
    .gemm_columns = 64,
    .tile_rows = 192,
    .tile_depth = 1024,
    .gemm = mha_avx2_gemm,
    .softmax = mha_avx2_softmax,
    .pack = mha_avx2_pack,
    .has_subnormal = rows_has_subnormal,
    .copy_inputs = rows_copy_inputs,
    .softcap = rows_softcap,
    .merge = rows_merge,
    .normalize = rows_normalize,
    .weights = rows_weights,
};
