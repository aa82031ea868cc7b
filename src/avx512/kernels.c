/* SPDX-License-Identifier: MIT
 *
 * The AVX-512 table.
 */
#include "vec.h"

#include "rows.h"

const struct mha_kernels mha_kernels_avx512 = {
    .isa = MHA_ISA_AVX512,
    .gemm_rows = 12,
    .gemm_columns = 128,
    .tile_rows = 192,
    .tile_depth = 1024,
    .gemm = mha_avx512_gemm,
    .softmax = mha_avx512_softmax,
    .pack = mha_avx512_pack,
    .has_subnormal = rows_has_subnormal,
    .copy_inputs = rows_copy_inputs,
    .softcap = rows_softcap,
    .merge = rows_merge,
    .normalize = rows_normalize,
    .weights = rows_weights,
};
