/* SPDX-License-Identifier: MIT
 *
 * Loops that show what one core can do with an ISA: multiply and add, read memory, exp. This file
 * is compiled for each row of `isas` in src/meson.build with that row's flags; MHA_BENCH_ROW is
 * its name. A new ISA needs its own block below.
 */
#include "bench.h"

#if defined(MHA_BENCH_SCALAR)
#include "scalar/vec.h"
enum { CHAINS = 12 };
#elif defined(__AVX512F__)
#include "avx512/vec.h"
enum { CHAINS = 24 };
#elif defined(__AVX2__)
#include "avx2/vec.h"
enum { CHAINS = 12 };
#elif defined(__aarch64__)
#include "neon/vec.h"
enum { CHAINS = 24 };
#else
#error "bench/isa.c: this ISA needs its own block"
#endif

enum { UNROLL = 4 };

/* Values that the compiler can't know, so that it can't precompute or merge the chains. */
static volatile float one_half = 0.5f;

/* acc = acc / 2 + 1/2: every chain tends to 1, far from overflow and subnormals. There must
 * be at least latency x units chains: 8 on x86, up to 16 on large ARM cores. */
static void multiply_add(size_t rounds) {
    float start[LANES];
    for (size_t i = 0; i < LANES; i++) {
        start[i] = one_half;
    }
    const vec half = vec_load(start);
    vec acc[CHAINS];
#pragma GCC unroll 32
    for (size_t i = 0; i < CHAINS; i++) {
        start[0] = one_half;
        acc[i] = vec_load(start);
    }
    for (; rounds > 0; rounds--) {
#pragma GCC unroll 4
        for (size_t u = 0; u < UNROLL; u++) {
#pragma GCC unroll 32
            for (size_t i = 0; i < CHAINS; i++) {
                acc[i] = vec_fma(acc[i], half, half);
            }
        }
    }
    float end[CHAINS * LANES];
#pragma GCC unroll 32
    for (size_t i = 0; i < CHAINS; i++) {
        vec_store(end + i * LANES, acc[i]);
    }
    bench_keep(end);
}

/* Sums n floats as 4 streams at once, which suits prefetchers. A step reads two vectors of each
 * stream, and each vector has its own accumulator, so that the additions are not the limit. */
enum { STREAMS = 4, STEP = 2 };

static float read_floats(size_t n, const float *data) {
    const size_t length = n / STREAMS / (STEP * LANES) * (STEP * LANES);
    const float ones[LANES] = {one_half};
    const vec one = vec_load(ones);
    vec acc[STREAMS * STEP];
#pragma GCC unroll 8
    for (size_t s = 0; s < STREAMS * STEP; s++) {
        acc[s] = one;
    }
    for (size_t i = 0; i < length; i += STEP * LANES) {
#pragma GCC unroll 8
        for (size_t s = 0; s < STREAMS * STEP; s++) {
            acc[s] =
                vec_fma(vec_load(data + s / STEP * length + i + s % STEP * LANES), one, acc[s]);
        }
    }
    float end[STREAMS * STEP * LANES], sum = 0.0f;
    for (size_t s = 0; s < STREAMS * STEP; s++) {
        vec_store(end + s * LANES, acc[s]);
    }
    for (size_t i = 0; i < STREAMS * STEP * LANES; i++) {
        sum += end[i];
    }
    for (size_t i = STREAMS * length; i < n; i++) {
        sum += data[i];
    }
    return sum;
}

static void exp_floats(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i += UNROLL * LANES) {
        vec values[UNROLL];
        for (size_t u = 0; u < UNROLL; u++) {
            values[u] = vec_load(x + i + u * LANES);
        }
        for (size_t u = 0; u < UNROLL; u++) {
            values[u] = vec_exp2(values[u]);
        }
        for (size_t u = 0; u < UNROLL; u++) {
            vec_store(y + i + u * LANES, values[u]);
        }
    }
}

#define JOIN(a, b) JOIN_EXPANDED(a, b)
#define JOIN_EXPANDED(a, b) a##b

extern const struct mha_kernels JOIN(mha_kernels_, MHA_BENCH_ROW);
extern const struct bench_loops JOIN(bench_loops_, MHA_BENCH_ROW);

const struct bench_loops JOIN(bench_loops_, MHA_BENCH_ROW) = {
    .kernels = &JOIN(mha_kernels_, MHA_BENCH_ROW),
    .fma_instruction = MHA_FMA_INSTRUCTION,
    .flop = 2.0 * UNROLL * CHAINS * LANES,
    .multiply_add = multiply_add,
    .read = read_floats,
    .exp = exp_floats,
};
