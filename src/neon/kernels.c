/* SPDX-License-Identifier: MIT
 *
 * The NEON table. The tuning values fit the smallest caches that ARM boards have: 32 KB of
 * L1 and 512 KB of L2 shared by the cores.
 */
#include "vec.h"

#include "rows.h"

const struct mha_kernels mha_kernels_neon = {
    .isa = MHA_ISA_NEON,
    .gemm_rows = 8,
    .gemm_columns = 16,
    .tile_rows = 96,
    .tile_depth = 256,
    .gemm = mha_neon_gemm,
    .softmax = mha_neon_softmax,
    .pack = mha_neon_pack,
    .has_subnormal = rows_has_subnormal,
    .copy_inputs = rows_copy_inputs,
    .softcap = rows_softcap,
    .merge = rows_merge,
    .normalize = rows_normalize,
    .weights = rows_weights,
};
