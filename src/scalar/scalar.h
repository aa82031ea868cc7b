/* SPDX-License-Identifier: MIT
 *
 * The scalar kernels: the definition, in code, of the values that every ISA computes.
 * Contracts are in kernels.h. On x86 and 32-bit ARM these files are compiled a second
 * time with the FMA instruction, under the names of fma_names.h.
 */
#ifndef MHA_SCALAR_H
#define MHA_SCALAR_H

#include "kernels.h"

extern const struct mha_kernels mha_kernels_scalar;

void mha_scalar_gemm(const struct mha_gemm *gemm);
void mha_scalar_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                        const struct mha_softmax_row *mask, float *max, float *sum);
void mha_scalar_merge(size_t rows, size_t width, const struct mha_partial *running,
                      const struct mha_partial *block);
void mha_scalar_normalize(size_t rows, size_t width, const float *sum, const float *in,
                          size_t in_stride, float *out, size_t out_stride);
void mha_scalar_weights(size_t keys, float *p, float block_max, float max, float sum);
void mha_scalar_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                          float *panels);

#endif
