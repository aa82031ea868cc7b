/* SPDX-License-Identifier: MIT
 *
 * fma in binary32 for the scalar kernels: the instruction where the target has one, else
 * an exact software version. Both give the same bits; tests/test_fma.c compares them.
 */
#ifndef MHA_FMA_H
#define MHA_FMA_H

#include <stdint.h>
#include <string.h>

#include "strict.h"

#if defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__aarch64__) ||                         \
    defined(__ARM_FEATURE_FMA) || defined(__s390x__) || defined(__powerpc64__) ||                  \
    (defined(__riscv_flen) && __riscv_flen >= 32)
#define MHA_FMA_INSTRUCTION 1
#else
#define MHA_FMA_INSTRUCTION 0
#endif

/* The product of two binary32 numbers is exact in binary64. Its sum with c is rounded to
 * odd there (Boldo and Melquiond 2008): where it is inexact, the neighbour with the odd
 * significand is taken, so that rounding once more, to 24 bits, sees on which side of a
 * tie the exact sum lies. 53 >= 24 + 2 bits make that exact, subnormal results included,
 * and no binary64 step here can overflow or underflow. */
static inline float mha_fma_software(float a, float b, float c) {
    double product = (double)a * (double)b;
    double addend = (double)c;
    double sum = product + addend;
    if (!(sum - sum == 0.0)) { /* NaN or infinite: nothing to round */
        return (float)sum;
    }
    /* Knuth's two-sum: error is exactly product + addend - sum. */
    double part = sum - product;
    double error = (product - (sum - part)) + (addend - part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (error != 0.0 && (bits & 1) == 0) {
        /* The exact value lies beyond sum in the direction of error: one step towards it,
         * away from zero if the signs agree. sum is not 0: an inexact sum of these is
         * far above the subnormals. */
        int away = (error > 0.0) == (sum > 0.0);
        bits = away ? bits + 1 : bits - 1;
        memcpy(&sum, &bits, sizeof sum);
    }
    return (float)sum;
}

static inline float mha_fma(float a, float b, float c) {
#if MHA_FMA_INSTRUCTION
    return __builtin_fmaf(a, b, c);
#else
    return mha_fma_software(a, b, c);
#endif
}

#endif
