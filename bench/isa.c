/* SPDX-License-Identifier: MIT
 *
 * Loops that show what one core can do with an ISA: multiply and add, read memory, exp. This
 * file is compiled for each row of `isas` in src/meson.build with that row's flags;
 * MHA_BENCH_ROW is its name. A new ISA needs a block of its own below.
 */
#include "bench.h"
#include "exp.h"

#if defined(MHA_BENCH_SCALAR)
typedef float vector;
#define FMA(a, b, c) mha_fma(a, b, c)
#define LOAD(from) (*(from))
#define STORE(to, x) (*(to) = (x))
#define EXP(x) mha_exp(x)
enum { CHAINS = 12 };
#elif defined(__AVX512F__)
#include "avx512/avx512.h"
typedef __m512 vector;
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define LOAD(from) _mm512_loadu_ps(from)
#define STORE(to, x) _mm512_storeu_ps(to, x)
#define EXP(x) exp_ps(x)
enum { CHAINS = 24 };
#elif defined(__AVX2__)
#include "avx2/avx2.h"
typedef __m256 vector;
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define LOAD(from) _mm256_loadu_ps(from)
#define STORE(to, x) _mm256_storeu_ps(to, x)
#define EXP(x) exp_ps(x)
enum { CHAINS = 12 };
#elif defined(__aarch64__)
#include "neon/neon.h"
typedef float32x4_t vector;
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define LOAD(from) vld1q_f32(from)
#define STORE(to, x) vst1q_f32(to, x)
#define EXP(x) exp_f32x4(x)
enum { CHAINS = 24 };
#else
#error "bench/isa.c: this ISA needs a block of its own"
#endif

enum { WIDTH = sizeof(vector) / sizeof(float), UNROLL = 4 };

/* Values that the compiler can't know, so that it can't compute ahead or join chains. */
static volatile float one_half = 0.5f;

/* acc = acc / 2 + 1/2: every chain tends to 1, far from overflow and subnormals. There must
 * be at least latency x units chains: 8 on x86, up to 16 on large ARM cores. */
static void multiply_add(size_t rounds) {
    float start[WIDTH];
    for (size_t i = 0; i < WIDTH; i++) {
        start[i] = one_half;
    }
    const vector half = LOAD(start);
    vector acc[CHAINS];
#pragma GCC unroll 32
    for (size_t i = 0; i < CHAINS; i++) {
        start[0] = one_half;
        acc[i] = LOAD(start);
    }
    for (; rounds > 0; rounds--) {
#pragma GCC unroll 4
        for (size_t u = 0; u < UNROLL; u++) {
#pragma GCC unroll 32
            for (size_t i = 0; i < CHAINS; i++) {
                acc[i] = FMA(acc[i], half, half);
            }
        }
    }
    float end[CHAINS * WIDTH];
#pragma GCC unroll 32
    for (size_t i = 0; i < CHAINS; i++) {
        STORE(end + i * WIDTH, acc[i]);
    }
    bench_keep(end);
}

/* The sum of n floats, from 4 places at once, as a prefetcher likes it. Two vectors of each
 * and an accumulator for each vector: the additions must not be what limits it. */
enum { STREAMS = 4, STEP = 2 };

static float read_floats(size_t n, const float *data) {
    const size_t length = n / STREAMS / (STEP * WIDTH) * (STEP * WIDTH);
    const float ones[WIDTH] = {one_half};
    const vector one = LOAD(ones);
    vector acc[STREAMS * STEP];
#pragma GCC unroll 8
    for (size_t s = 0; s < STREAMS * STEP; s++) {
        acc[s] = one;
    }
    for (size_t i = 0; i < length; i += STEP * WIDTH) {
#pragma GCC unroll 8
        for (size_t s = 0; s < STREAMS * STEP; s++) {
            acc[s] = FMA(LOAD(data + s / STEP * length + i + s % STEP * WIDTH), one, acc[s]);
        }
    }
    float end[STREAMS * STEP * WIDTH], sum = 0.0f;
    for (size_t s = 0; s < STREAMS * STEP; s++) {
        STORE(end + s * WIDTH, acc[s]);
    }
    for (size_t i = 0; i < STREAMS * STEP * WIDTH; i++) {
        sum += end[i];
    }
    for (size_t i = STREAMS * length; i < n; i++) {
        sum += data[i];
    }
    return sum;
}

static void exp_floats(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i += UNROLL * WIDTH) {
        vector values[UNROLL];
        for (size_t u = 0; u < UNROLL; u++) {
            values[u] = LOAD(x + i + u * WIDTH);
        }
        for (size_t u = 0; u < UNROLL; u++) {
            values[u] = EXP(values[u]);
        }
        for (size_t u = 0; u < UNROLL; u++) {
            STORE(y + i + u * WIDTH, values[u]);
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
    .flop = 2.0 * UNROLL * CHAINS * WIDTH,
    .multiply_add = multiply_add,
    .read = read_floats,
    .exp = exp_floats,
};
