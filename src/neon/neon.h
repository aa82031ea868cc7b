/* SPDX-License-Identifier: MIT
 *
 * The AArch64 Advanced SIMD (NEON) kernels: twins of src/scalar/, equal to it bit for bit.
 * Contracts are in kernels.h. Also what these files share: exp. No blocking, no dispatch.
 * 32-bit ARM is not served: its NEON flushes subnormals to zero.
 */
#ifndef MHA_NEON_H
#define MHA_NEON_H

#if !defined(__aarch64__) || !defined(__ARM_NEON) || defined(__AARCH64EB__)
#error "src/neon is to be compiled for little-endian AArch64"
#endif

#include <arm_neon.h>
#include <stdbool.h>

#include "exp.h"
#include "kernels.h"

extern const struct mha_kernels mha_kernels_neon;

void mha_neon_gemm(const struct mha_gemm *gemm);
void mha_neon_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                      const struct mha_softmax_row *mask, float *max, float *sum);
void mha_neon_merge(size_t rows, size_t width, const struct mha_partial *running,
                    const struct mha_partial *block);
void mha_neon_normalize(size_t rows, size_t width, const float *sum, const float *in,
                        size_t in_stride, float *out, size_t out_stride);
void mha_neon_weights(size_t keys, float *p, float block_max, float max, float sum);
void mha_neon_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                        float *panels);

/* Floats of a register. */
#define LANES ((size_t)4)

/* For functions that are specialised by constant arguments. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Ahead of loops with a small constant number of turns over arrays that are to be registers:
 * clang unrolls them by itself, gcc does so in time only when it is told to. */
#if defined(__clang__)
#define UNROLLED
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* mha_exp() in each lane. */
static inline float32x4_t exp_f32x4(float32x4_t x) {
    x = vmaxq_f32(x, vdupq_n_f32(MHA_EXP_LOWEST)); /* NaN where x is */
    float32x4_t magic = vdupq_n_f32(MHA_EXP_MAGIC);
    float32x4_t shifted = vfmaq_f32(magic, x, vdupq_n_f32(MHA_EXP_LOG2E));
    float32x4_t n = vsubq_f32(shifted, magic);
    float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(MHA_EXP_LN2_HIGH));
    r = vfmaq_f32(r, n, vdupq_n_f32(MHA_EXP_LN2_LOW));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(MHA_EXP_C5), vdupq_n_f32(MHA_EXP_C6), r);
    p = vfmaq_f32(vdupq_n_f32(MHA_EXP_C4), p, r);
    p = vfmaq_f32(vdupq_n_f32(MHA_EXP_C3), p, r);
    p = vfmaq_f32(vdupq_n_f32(MHA_EXP_C2), p, r);
    p = vfmaq_f32(vdupq_n_f32(MHA_EXP_C1), p, r);
    p = vfmaq_f32(vdupq_n_f32(MHA_EXP_C0), p, r);
    int32x4_t scale = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vmulq_f32(p, vreinterpretq_f32_s32(scale));
}

#endif
