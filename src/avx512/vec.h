/* SPDX-License-Identifier: MIT
 *
 * The AVX-512 kernels: twins of src/scalar/, equal to it bit for bit. One zmm register is
 * one row of a panel, and its lanes are the 16 virtual lanes of the softmax sum.
 * Contracts are in kernels.h. Also the primitives of src/rows.h and of these files.
 */
#ifndef MHA_AVX512_H
#define MHA_AVX512_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) ||                   \
    !defined(__AVX512VL__) || !defined(__FMA__)
#error "src/avx512 needs -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma"
#endif

#include <immintrin.h>

#include "exp2.h"
#include "kernels.h"

extern const struct mha_kernels mha_kernels_avx512;

void mha_avx512_gemm(const struct mha_gemm *gemm);
void mha_avx512_softmax(const struct mha_softmax *softmax);
void mha_avx512_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                     bool inputs);

/* Floats of a vector. */
#define LANES ((size_t)16)

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

typedef __m512 vec;

static inline vec vec_load(const float *from) {
    return _mm512_loadu_ps(from);
}

static inline void vec_store(float *to, vec x) {
    _mm512_storeu_ps(to, x);
}

/* The first n lanes, fewer than all; the others are 0. */
static inline vec vec_load_part(const float *from, size_t n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), from);
}

static inline void vec_store_part(float *to, vec x, size_t n) {
    _mm512_mask_storeu_ps(to, first_lanes(n), x);
}

static inline vec vec_set(float x) {
    return _mm512_set1_ps(x);
}

static inline vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}

static inline vec vec_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_abs(vec x) {
    return _mm512_abs_ps(x);
}

static inline vec vec_copysign(vec x, vec sign) {
    vec mask = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(mask, x), _mm512_and_ps(mask, sign));
}

enum { MOST_EXP2 = 4 };

/* mha_exp2 in each lane of n vectors, in place, step by step: a scheduler sees few instructions
 * ahead, so that the chains must stand side by side. n is a constant where it is inlined. An
 * instruction scales by 2^n, so that the coefficients are halved: no 2^(n-1) is needed. It would
 * give subnormals where mha_exp2 gives 0; lanes below take a mask instead of a clamp, and what is
 * computed there doesn't matter. */
static ALWAYS_INLINE void vec_exp2s(vec *x, size_t n) {
    static const float c[] = {MHA_EXP2_C0 / 2, MHA_EXP2_C1 / 2, MHA_EXP2_C2 / 2,
                              MHA_EXP2_C3 / 2, MHA_EXP2_C4 / 2, MHA_EXP2_C5 / 2};
    vec magic = _mm512_set1_ps(MHA_EXP2_MAGIC), whole[MOST_EXP2], p[MOST_EXP2];
    __mmask16 some[MOST_EXP2];
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        some[i] = _mm512_cmp_ps_mask(x[i], _mm512_set1_ps(MHA_EXP2_ZERO), _CMP_NLE_UQ);
        whole[i] = _mm512_add_ps(x[i], magic);
    }
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        whole[i] = _mm512_sub_ps(whole[i], magic);
        x[i] = _mm512_sub_ps(x[i], whole[i]);
        p[i] = _mm512_set1_ps(MHA_EXP2_C6 / 2);
    }
    UNROLLED
    for (size_t k = 6; k-- > 0;) {
        UNROLLED
        for (size_t i = 0; i < n; i++) {
            p[i] = _mm512_fmadd_ps(p[i], x[i], _mm512_set1_ps(c[k]));
        }
    }
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        x[i] = _mm512_maskz_scalef_ps(some[i], p[i], whole[i]);
    }
}

static ALWAYS_INLINE vec vec_exp2(vec x) {
    vec_exp2s(&x, 1);
    return x;
}

/* x, but +0 where `where` is 0. */
static inline vec vec_unless_zero(vec x, vec where) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(where, _mm512_setzero_ps(), _CMP_NEQ_UQ), x);
}

/* x, but +0 where it is subnormal or -0. */
static ALWAYS_INLINE vec vec_flush(vec x) {
    enum { NEGATIVE_ZERO = 0x04, DENORMAL = 0x20 };
    return _mm512_mask_mov_ps(x, _mm512_fpclass_ps_mask(x, NEGATIVE_ZERO | DENORMAL),
                              _mm512_setzero_ps());
}

/* Whether there was a subnormal among some vectors. */
typedef __mmask16 vec_found;

static inline vec_found vec_found_none(void) {
    return 0;
}

static ALWAYS_INLINE vec_found vec_find_subnormal(vec_found found, vec x) {
    return (vec_found)(found | _mm512_fpclass_ps_mask(x, 0x20));
}

static inline bool vec_found_any(vec_found found) {
    return found != 0;
}

#endif
