/* SPDX-License-Identifier: MIT
 *
 * The AVX2 + FMA kernels: twins of src/scalar/, equal to it bit for bit. Contracts are in
 * kernels.h. Also the primitives of src/rows.h and of these files.
 */
#ifndef MHA_AVX2_H
#define MHA_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "src/avx2 is to be compiled with -mavx2 -mfma"
#endif

#include <immintrin.h>

#include "exp2.h"
#include "kernels.h"

extern const struct mha_kernels mha_kernels_avx2;

void mha_avx2_gemm(const struct mha_gemm *gemm);
void mha_avx2_softmax(const struct mha_softmax *softmax);
void mha_avx2_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                   bool inputs);

/* Floats of a vector. */
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

typedef __m256 vec;

static inline vec vec_load(const float *from) {
    return _mm256_loadu_ps(from);
}

static inline void vec_store(float *to, vec x) {
    _mm256_storeu_ps(to, x);
}

/* The first n lanes, fewer than all; the others are 0. */
static inline vec vec_load_part(const float *from, size_t n) {
    return _mm256_maskload_ps(from, lane_mask(0, 0, n));
}

static inline void vec_store_part(float *to, vec x, size_t n) {
    _mm256_maskstore_ps(to, lane_mask(0, 0, n), x);
}

static inline vec vec_set(float x) {
    return _mm256_set1_ps(x);
}

static inline vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b) {
    return _mm256_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}

static inline vec vec_div(vec a, vec b) {
    return _mm256_div_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_abs(vec x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static inline vec vec_copysign(vec x, vec sign) {
    vec mask = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(mask, x), _mm256_and_ps(mask, sign));
}

enum { MOST_EXP2 = 4 };

/* mha_exp2 in each lane of n vectors, in place, step by step: a scheduler sees few instructions
 * ahead, so that the chains must stand side by side. n is a constant where it is inlined. */
static ALWAYS_INLINE void vec_exp2s(vec *x, size_t n) {
    static const float c[] = {MHA_EXP2_C0, MHA_EXP2_C1, MHA_EXP2_C2,
                              MHA_EXP2_C3, MHA_EXP2_C4, MHA_EXP2_C5};
    vec magic = _mm256_set1_ps(MHA_EXP2_MAGIC), shifted[MOST_EXP2], p[MOST_EXP2];
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        x[i] = _mm256_max_ps(_mm256_set1_ps(MHA_EXP2_LOWEST), x[i]); /* x where it is NaN */
        shifted[i] = _mm256_add_ps(x[i], magic);
    }
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        x[i] = _mm256_sub_ps(x[i], _mm256_sub_ps(shifted[i], magic));
        p[i] = _mm256_set1_ps(MHA_EXP2_C6);
    }
    UNROLLED
    for (size_t k = 6; k-- > 0;) {
        UNROLLED
        for (size_t i = 0; i < n; i++) {
            p[i] = _mm256_fmadd_ps(p[i], x[i], _mm256_set1_ps(c[k]));
        }
    }
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        __m256i scale = _mm256_slli_epi32(_mm256_castps_si256(shifted[i]), 23);
        x[i] = _mm256_mul_ps(p[i], _mm256_castsi256_ps(scale));
    }
}

static inline vec vec_exp2(vec x) {
    vec_exp2s(&x, 1);
    return x;
}

/* x, but +0 where `where` is 0. */
static inline vec vec_unless_zero(vec x, vec where) {
    return _mm256_andnot_ps(_mm256_cmp_ps(where, _mm256_setzero_ps(), _CMP_EQ_OQ), x);
}

/* x, but +0 where it is subnormal or -0. As integers: more units compare them. */
static ALWAYS_INLINE vec vec_flush(vec x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i normal = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x007fffff));
    return _mm256_castsi256_ps(_mm256_and_si256(bits, normal));
}

/* Whether there was a subnormal among some vectors: the least of their bits, doubled to drop the
 * sign, minus 1 so that zeros are the largest. */
typedef __m256i vec_found;

static inline vec_found vec_found_none(void) {
    return _mm256_set1_epi32(-1);
}

static ALWAYS_INLINE vec_found vec_find_subnormal(vec_found found, vec x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i doubled = _mm256_add_epi32(bits, bits);
    return _mm256_min_epu32(found, _mm256_add_epi32(doubled, _mm256_set1_epi32(-1)));
}

static inline bool vec_found_any(vec_found found) {
    __m256i least = _mm256_set1_epi32(2 * 0x00800000 - 1); /* of FLT_MIN */
    __m256i normal = _mm256_cmpeq_epi32(_mm256_max_epu32(found, least), found);
    return _mm256_movemask_epi8(normal) != -1;
}

#endif
