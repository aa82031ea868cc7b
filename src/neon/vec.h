/* SPDX-License-Identifier: MIT
 *
 * The AArch64 Advanced SIMD (NEON) kernels: twins of src/scalar/, equal to it bit for bit.
 * Contracts are in kernels.h. Also the primitives of src/rows.h and of these files.
 * 32-bit ARM is not served: its NEON flushes subnormals to zero.
 */
#ifndef MHA_NEON_H
#define MHA_NEON_H

#if !defined(__aarch64__) || !defined(__ARM_NEON) || defined(__AARCH64EB__)
#error "src/neon is to be compiled for little-endian AArch64"
#endif

#include <arm_neon.h>
#include <string.h>

#include "exp2.h"
#include "kernels.h"

extern const struct mha_kernels mha_kernels_neon;

void mha_neon_gemm(const struct mha_gemm *gemm);
void mha_neon_softmax(const struct mha_softmax *softmax);
void mha_neon_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                   bool inputs);

/* Floats of a vector. */
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

typedef float32x4_t vec;

static inline vec vec_load(const float *from) {
    return vld1q_f32(from);
}

static inline void vec_store(float *to, vec x) {
    vst1q_f32(to, x);
}

/* The first n lanes, fewer than all; the others are 0. */
static inline vec vec_load_part(const float *from, size_t n) {
    float lanes[LANES] = {0};
    memcpy(lanes, from, n * sizeof *lanes);
    return vld1q_f32(lanes);
}

static inline void vec_store_part(float *to, vec x, size_t n) {
    float lanes[LANES];
    vst1q_f32(lanes, x);
    memcpy(to, lanes, n * sizeof *lanes);
}

static inline vec vec_set(float x) {
    return vdupq_n_f32(x);
}

static inline vec vec_add(vec a, vec b) {
    return vaddq_f32(a, b);
}

static inline vec vec_sub(vec a, vec b) {
    return vsubq_f32(a, b);
}

static inline vec vec_mul(vec a, vec b) {
    return vmulq_f32(a, b);
}

static inline vec vec_div(vec a, vec b) {
    return vdivq_f32(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}

static inline vec vec_abs(vec x) {
    return vabsq_f32(x);
}

static inline vec vec_copysign(vec x, vec sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, x);
}

enum { MOST_EXP2 = 4 };

/* mha_exp2 in each lane of n vectors, in place, step by step: a core that executes in order, or
 * sees few instructions ahead, needs the chains side by side. n is a constant where it is
 * inlined. */
static ALWAYS_INLINE void vec_exp2s(vec *x, size_t n) {
    static const float c[] = {MHA_EXP2_C0, MHA_EXP2_C1, MHA_EXP2_C2,
                              MHA_EXP2_C3, MHA_EXP2_C4, MHA_EXP2_C5};
    vec magic = vdupq_n_f32(MHA_EXP2_MAGIC), shifted[MOST_EXP2], p[MOST_EXP2];
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        x[i] = vmaxq_f32(x[i], vdupq_n_f32(MHA_EXP2_LOWEST)); /* NaN where x is */
        shifted[i] = vaddq_f32(x[i], magic);
    }
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        x[i] = vsubq_f32(x[i], vsubq_f32(shifted[i], magic));
        p[i] = vdupq_n_f32(MHA_EXP2_C6);
    }
    UNROLLED
    for (size_t k = 6; k-- > 0;) {
        UNROLLED
        for (size_t i = 0; i < n; i++) {
            p[i] = vfmaq_f32(vdupq_n_f32(c[k]), p[i], x[i]);
        }
    }
    UNROLLED
    for (size_t i = 0; i < n; i++) {
        int32x4_t scale = vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23);
        x[i] = vmulq_f32(p[i], vreinterpretq_f32_s32(scale));
    }
}

static inline vec vec_exp2(vec x) {
    vec_exp2s(&x, 1);
    return x;
}

/* x, but +0 where `where` is 0. */
static inline vec vec_unless_zero(vec x, vec where) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vceqzq_f32(where)));
}

/* x, but +0 where it is subnormal or -0. */
static ALWAYS_INLINE vec vec_flush(vec x) {
    uint32x4_t small = vcltq_f32(vabsq_f32(x), vdupq_n_f32(FLT_MIN));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), small));
}

/* Whether there was a subnormal among some vectors: the least of their bits, doubled to drop the
 * sign, minus 1 so that zeros are the largest. */
typedef uint32x4_t vec_found;

static inline vec_found vec_found_none(void) {
    return vdupq_n_u32(UINT32_MAX);
}

static ALWAYS_INLINE vec_found vec_find_subnormal(vec_found found, vec x) {
    uint32x4_t doubled = vshlq_n_u32(vreinterpretq_u32_f32(x), 1);
    return vminq_u32(found, vsubq_u32(doubled, vdupq_n_u32(1)));
}

static inline bool vec_found_any(vec_found found) {
    return vminvq_u32(found) < 2 * 0x00800000 - 1; /* FLT_MIN's */
}

#endif
