/* SPDX-License-Identifier: MIT
 *
 * The NEON table. The tuning values fit the smallest caches that ARM boards have: 32 KB of
 * L1 and 512 KB of L2 shared by the cores.
 */
#include "neon.h"

const struct mha_kernels mha_kernels_neon = {
    .isa = MHA_ISA_NEON,
    .gemm_rows = 8,
    .gemm_columns = 16,
    .block_rows = 96,
    .block_depth = 256,
    .gemm = mha_neon_gemm,
    .softmax = mha_neon_softmax,
    .merge = mha_neon_merge,
    .normalize = mha_neon_normalize,
    .weights = mha_neon_weights,
    .transpose = mha_neon_transpose,
};
