/* SPDX-License-Identifier: MIT
 *
 * Included ahead of the scalar sources when they are compiled a second time, with the FMA
 * instruction (x86, 32-bit ARM): the second set of names.
 */
#define mha_kernels_scalar mha_kernels_scalar_fma
#define mha_scalar_gemm mha_scalar_fma_gemm
#define mha_scalar_softmax mha_scalar_fma_softmax
#define mha_scalar_pack mha_scalar_fma_pack
