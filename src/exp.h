/* SPDX-License-Identifier: MIT
 *
 * exp(x) for x <= 0: the constants that every ISA shares, and the scalar definition.
 * Error at most 1 ULP, proven over every float of the range by tests/test_exp.c;
 * coefficients by scripts/exp_poly.sollya.
 */
#ifndef MHA_EXP_H
#define MHA_EXP_H

#include "fma.h"

/* ln(2^-126), rounded. Below -125.5 ln 2 (about -86.99) the result is exactly 0, so that
 * no subnormal ever enters a sum; arguments are clamped here to get there. */
#define MHA_EXP_LOWEST (-0x1.5d58ap6f)
#define MHA_EXP_LOG2E 0x1.715476p0f
/* Adding 1.5 * 2^23 rounds to an integer in the low bits. 126 more makes those bits the
 * exponent field of 2^(n-1), which is 0 for n = -126. */
#define MHA_EXP_MAGIC (0x1.8p23f + 126.0f)
/* -ln 2 in two parts. */
#define MHA_EXP_LN2_HIGH (-0x1.62e43p-1f)
#define MHA_EXP_LN2_LOW 0x1.05c61p-29f
/* Twice the coefficients of r^0 .. r^6, for the scale is 2^(n-1). */
#define MHA_EXP_C0 0x1p1f
#define MHA_EXP_C1 0x1p1f
#define MHA_EXP_C2 0x1.fffff8p-1f
#define MHA_EXP_C3 0x1.55548cp-2f
#define MHA_EXP_C4 0x1.555b84p-4f
#define MHA_EXP_C5 0x1.123d0ep-6f
#define MHA_EXP_C6 0x1.6868c6p-9f

/* NaN gives NaN, -inf gives +0, 0 gives exactly 1. x > 0 is outside the contract. */
static inline float mha_exp(float x) {
    x = x < MHA_EXP_LOWEST ? MHA_EXP_LOWEST : x;
    float shifted = mha_fma(x, MHA_EXP_LOG2E, MHA_EXP_MAGIC);
    float n = shifted - MHA_EXP_MAGIC;
    float r = mha_fma(n, MHA_EXP_LN2_HIGH, x);
    r = mha_fma(n, MHA_EXP_LN2_LOW, r);
    float p = MHA_EXP_C6;
    p = mha_fma(p, r, MHA_EXP_C5);
    p = mha_fma(p, r, MHA_EXP_C4);
    p = mha_fma(p, r, MHA_EXP_C3);
    p = mha_fma(p, r, MHA_EXP_C2);
    p = mha_fma(p, r, MHA_EXP_C1);
    p = mha_fma(p, r, MHA_EXP_C0);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#endif
