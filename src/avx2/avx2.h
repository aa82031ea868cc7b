/* SPDX-License-Identifier: MIT
 *
 * The AVX2 + FMA kernels: twins of src/scalar/, equal to it bit for bit. Contracts are in
 * kernels.h. Also what these files share: exp and lane masks. No blocking, no dispatch.
 */
#ifndef MHA_AVX2_H
#define MHA_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "src/avx2 is to be compiled with -mavx2 -mfma"
#endif

#include <immintrin.h>
#include <stdbool.h>

#include "exp.h"
#include "kernels.h"

extern const struct mha_kernels mha_kernels_avx2;

void mha_avx2_gemm(const struct mha_gemm *gemm);
void mha_avx2_softmax(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                      const struct mha_softmax_row *mask, float *max, float *sum);
void mha_avx2_merge(size_t rows, size_t width, const struct mha_partial *running,
                    const struct mha_partial *block);
void mha_avx2_normalize(size_t rows, size_t width, const float *sum, const float *in,
                        size_t in_stride, float *out, size_t out_stride);
void mha_avx2_weights(size_t keys, float *p, float block_max, float max, float sum);
void mha_avx2_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                        float *panels);

/* Floats of a register. */
#define LANES ((size_t)8)

/* For functions that are specialised by constant arguments. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Ahead of loops with a small constant number of turns over arrays that are to be registers:
 * clang unrolls them by itself, gcc does so in time only when it is told to. */
#if defined(__clang__)
#define UNROLLED
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* Selects lane i where begin <= first + i < end. */
static inline __m256i lane_mask(size_t first, size_t begin, size_t end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int from = begin > first ? (int)(begin - first) : 0;
    int to = end > first ? (int)(end - first) : 0;
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane));
}

/* mha_exp() in each lane. */
static inline __m256 exp_ps(__m256 x) {
    x = _mm256_max_ps(_mm256_set1_ps(MHA_EXP_LOWEST), x); /* x where it is NaN */
    __m256 shifted =
        _mm256_fmadd_ps(x, _mm256_set1_ps(MHA_EXP_LOG2E), _mm256_set1_ps(MHA_EXP_MAGIC));
    __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(MHA_EXP_MAGIC));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(MHA_EXP_LN2_HIGH), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(MHA_EXP_LN2_LOW), r);
    __m256 p = _mm256_set1_ps(MHA_EXP_C6);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MHA_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MHA_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MHA_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MHA_EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MHA_EXP_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MHA_EXP_C0));
    __m256i scale = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
}

#endif
