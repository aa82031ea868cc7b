/* SPDX-License-Identifier: MIT
 *
 * The AVX2 table.
 */
#include "avx2.h"

const struct mha_kernels mha_kernels_avx2 = {
    .isa = MHA_ISA_AVX2,
    .gemm_rows = 6,
    .gemm_columns = 64,
    .block_rows = 192,
    .block_depth = 1024,
    .gemm = mha_avx2_gemm,
    .softmax = mha_avx2_softmax,
    .merge = mha_avx2_merge,
    .normalize = mha_avx2_normalize,
    .weights = mha_avx2_weights,
    .transpose = mha_avx2_transpose,
};
