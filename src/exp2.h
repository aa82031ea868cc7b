/* SPDX-License-Identifier: MIT
 *
 * 2^x for x <= 0: the constants that every ISA shares, and the scalar definition.
 * Error at most 1 ULP, proven over every float of the range by tests/test_exp2.c;
 * coefficients by scripts/exp2_poly.sollya.
 */
#ifndef MHA_EXP2_H
#define MHA_EXP2_H

#include "fma.h"

/* From -125.5 down the result is exactly 0, so that no subnormal ever enters a sum; arguments
 * are clamped here to get there. */
#define MHA_EXP2_LOWEST (-126.0f)
/* The largest x that gives 0. */
#define MHA_EXP2_ZERO (-125.5f)
/* Adding 1.5 * 2^23 rounds to an integer in the low bits. 126 more makes those bits the
 * exponent field of 2^(n-1), which is 0 for n = -126. */
#define MHA_EXP2_MAGIC (0x1.8p23f + 126.0f)
/* Twice the coefficients of r^0 .. r^6, because the scale is 2^(n-1). */
#define MHA_EXP2_C0 0x1p1f
#define MHA_EXP2_C1 0x1.62e43p0f
#define MHA_EXP2_C2 0x1.ebfbd8p-2f
#define MHA_EXP2_C3 0x1.c6af76p-4f
#define MHA_EXP2_C4 0x1.3b30ap-6f
#define MHA_EXP2_C5 0x1.5f0b82p-9f
#define MHA_EXP2_C6 0x1.3fa206p-12f

#define MHA_LOG2E 0x1.715476p0f

/* NaN gives NaN, -inf gives +0, 0 gives exactly 1. x > 0 is outside the contract. */
static inline float mha_exp2(float x) {
    x = x < MHA_EXP2_LOWEST ? MHA_EXP2_LOWEST : x;
    float shifted = x + MHA_EXP2_MAGIC;
    float n = shifted - MHA_EXP2_MAGIC;
    float r = x - n;
    float p = MHA_EXP2_C6;
    p = mha_fma(p, r, MHA_EXP2_C5);
    p = mha_fma(p, r, MHA_EXP2_C4);
    p = mha_fma(p, r, MHA_EXP2_C3);
    p = mha_fma(p, r, MHA_EXP2_C2);
    p = mha_fma(p, r, MHA_EXP2_C1);
    p = mha_fma(p, r, MHA_EXP2_C0);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#endif
