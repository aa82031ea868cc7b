/* SPDX-License-Identifier: MIT
 *
 * Included ahead of the scalar sources when they are compiled a second time, with the FMA
 * instruction (x86, 32-bit ARM): the second set of names.
 */
#define mha_kernels_scalar mha_kernels_scalar_fma
#define mha_scalar_gemm mha_scalar_fma_gemm
#define mha_scalar_softmax mha_scalar_fma_softmax
#define mha_scalar_merge mha_scalar_fma_merge
#define mha_scalar_normalize mha_scalar_fma_normalize
#define mha_scalar_weights mha_scalar_fma_weights
#define mha_scalar_transpose mha_scalar_fma_transpose
