/* SPDX-License-Identifier: MIT
 *
 * The scalar kernels: the definition of the values that every ISA computes.
 * Contracts are in kernels.h. Also the primitives of src/rows.h, on vectors of one float. On
 * x86 and 32-bit ARM these files are compiled a second time with the FMA instruction, under the
 * names of fma_names.h.
 */
#ifndef MHA_SCALAR_H
#define MHA_SCALAR_H

#include <math.h>

#include "exp2.h"
#include "kernels.h"

extern const struct mha_kernels mha_kernels_scalar;

void mha_scalar_gemm(const struct mha_gemm *gemm);
void mha_scalar_softmax(const struct mha_softmax *softmax);
void mha_scalar_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                     bool inputs);

/* Floats of a vector. */
#define LANES ((size_t)1)

typedef float vec;

static inline vec vec_load(const float *from) {
    return *from;
}

static inline void vec_store(float *to, vec x) {
    *to = x;
}

/* The first n lanes, fewer than all; the others are 0. Never called: a vector has one lane. */
static inline vec vec_load_part(const float *from, size_t n) {
    return n > 0 ? *from : 0.0f;
}

static inline void vec_store_part(float *to, vec x, size_t n) {
    if (n > 0) {
        *to = x;
    }
}

static inline vec vec_set(float x) {
    return x;
}

static inline vec vec_add(vec a, vec b) {
    return a + b;
}

static inline vec vec_sub(vec a, vec b) {
    return a - b;
}

static inline vec vec_mul(vec a, vec b) {
    return a * b;
}

static inline vec vec_div(vec a, vec b) {
    return a / b;
}

static inline vec vec_fma(vec a, vec b, vec c) {
    return mha_fma(a, b, c);
}

static inline vec vec_abs(vec x) {
    return fabsf(x);
}

static inline vec vec_copysign(vec x, vec sign) {
    return copysignf(x, sign);
}

static inline vec vec_exp2(vec x) {
    return mha_exp2(x);
}

/* x, but +0 where `where` is 0. */
static inline vec vec_unless_zero(vec x, vec where) {
    return where == 0.0f ? 0.0f : x;
}

/* x, but +0 where it is subnormal or -0. */
static inline vec vec_flush(vec x) {
    return fabsf(x) < FLT_MIN ? 0.0f : x;
}

/* Whether there was a subnormal among some vectors. */
typedef bool vec_found;

static inline vec_found vec_found_none(void) {
    return false;
}

static inline vec_found vec_find_subnormal(vec_found found, vec x) {
    return found || (x != 0.0f && fabsf(x) < FLT_MIN);
}

static inline bool vec_found_any(vec_found found) {
    return found;
}

#endif
