/* SPDX-License-Identifier: MIT
 *
 * The AVX-512 table.
 */
#include "avx512.h"

const struct mha_kernels mha_kernels_avx512 = {
    .isa = MHA_ISA_AVX512,
    .gemm_rows = 12,
    .gemm_columns = 128,
    .block_rows = 192,
    .block_depth = 1024,
    .gemm = mha_avx512_gemm,
    .softmax = mha_avx512_softmax,
    .merge = mha_avx512_merge,
    .normalize = mha_avx512_normalize,
    .weights = mha_avx512_weights,
    .transpose = mha_avx512_transpose,
};
