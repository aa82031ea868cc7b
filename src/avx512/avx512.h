/* SPDX-License-Identifier: MIT
 *
 * The AVX-512 kernels: twins of src/scalar/, equal to it bit for bit. One zmm register is
 * one row of a panel, and its lanes are the 16 virtual lanes of the softmax sum.
 * Contracts are in kernels.h. Also what these files share: exp and lane masks.
 */
#ifndef MHA_AVX512_H
#define MHA_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) ||                   \
    !defined(__AVX512VL__) || !defined(__FMA__)
#error "src/avx512 needs -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma"
#endif

#include <immintrin.h>

#include "exp.h"
#include "kernels.h"

/* For functions that are specialised by constant arguments. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Ahead of loops with a small constant number of turns over arrays that are to be registers. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

#define ALL_LANES ((__mmask16)0xffff)

/* The first n lanes; all of them from 16 on. */
static ALWAYS_INLINE __mmask16 first_lanes(size_t n) {
    return (__mmask16)(n < MHA_PANEL ? (1u << n) - 1 : ALL_LANES);
}

extern const struct mha_kernels mha_kernels_avx512;

void mha_avx512_gemm(const struct mha_gemm *gemm);
void mha_avx512_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                        const struct mha_softmax_row *mask, float *max, float *sum);
void mha_avx512_merge(size_t rows, size_t width, const struct mha_partial *running,
                      const struct mha_partial *block);
void mha_avx512_normalize(size_t rows, size_t width, const float *sum, const float *in,
                          size_t in_stride, float *out, size_t out_stride);
void mha_avx512_weights(size_t keys, float *p, float block_max, float max, float sum);
void mha_avx512_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                          float *panels);

/* The least float that mha_exp doesn't take to 0; below it n is -126. tests/test_exp.c passes
 * through both. */
#define EXP_LEAST (-0x1.5bf5bap+6f)

/* mha_exp in 16 lanes, with an instruction for the scaling by 2^n: the coefficients, halved,
 * need no 2^(n-1). It would give subnormals where mha_exp gives 0, so that lanes below take a
 * mask instead of a clamp; what is computed there doesn't matter. */
static ALWAYS_INLINE __m512 exp_ps(__m512 x) {
    __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LEAST), _CMP_NLT_UQ);
    __m512 magic = _mm512_set1_ps(MHA_EXP_MAGIC);
    __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(MHA_EXP_LOG2E), magic);
    __m512 n = _mm512_sub_ps(shifted, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(MHA_EXP_LN2_HIGH), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(MHA_EXP_LN2_LOW), r);
    __m512 p = _mm512_set1_ps(MHA_EXP_C6 / 2);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MHA_EXP_C5 / 2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MHA_EXP_C4 / 2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MHA_EXP_C3 / 2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MHA_EXP_C2 / 2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MHA_EXP_C1 / 2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MHA_EXP_C0 / 2));
    return _mm512_maskz_scalef_ps(some, p, n);
}

#endif
