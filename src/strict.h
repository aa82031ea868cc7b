/* SPDX-License-Identifier: MIT
 *
 * The arithmetic that the numeric contract needs from the compiler. kernels.h and every other
 * header that computes includes this.
 */
#ifndef MHA_STRICT_H
#define MHA_STRICT_H

#include <float.h>

#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "libmha needs binary32 arithmetic without excess precision (FLT_EVAL_METHOD == 0)"
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) ||           \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error "libmha must not be compiled with -ffast-math or a part of it: its bits are defined"
#endif
#if defined(__clang__)
/* It has no macro for -fassociative-math or -funsafe-math-optimizations. */
#pragma clang fp reassociate(off) contract(off)
#endif

#endif
