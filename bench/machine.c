/* SPDX-License-Identifier: MIT
 *
 * Measures what the machine can do: the yardsticks of the other benchmarks, which are benchmarks
 * as well. Knows nothing of attention.
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"
#include "cpu.h"
#include "dispatch.h"
#include "isa_rows.h"

#define ROW(name) extern const struct bench_loops bench_loops_##name;
MHA_BENCH_ROWS
#undef ROW

static const struct bench_loops *find_loops(const struct mha_kernels *kernels) {
    static const struct bench_loops *const rows[] = {
#define ROW(name) &bench_loops_##name,
        MHA_BENCH_ROWS
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i]->kernels == kernels) {
            return rows[i];
        }
    }
    abort(); /* isa_rows.h and the dispatcher come from the same list */
}

static struct bench_isa isas[MHA_ISA_NEON + 1];
static size_t n_isas;
static const struct bench_isa *best;

void bench_find_isas(void) {
    unsigned features = mha_cpu_features(); /* once: it is slow on virtual machines */
    for (int i = MHA_ISA_AUTO + 1; mha_isa_name((mha_isa)i); i++) {
        const struct mha_kernels *kernels = mha_dispatch((mha_isa)i, features);
        if (kernels) {
            struct bench_isa *found = &isas[n_isas++];
            found->name = mha_isa_name(kernels->isa);
            found->kernels = kernels;
            found->loops = find_loops(kernels);
            bench_check(mha_context_create(&(mha_options){.isa = kernels->isa}, &found->context));
            if (kernels == mha_dispatch(MHA_ISA_AUTO, features)) {
                best = found;
            }
        }
    }
}

size_t bench_isas(const struct bench_isa **list) {
    *list = isas;
    return n_isas;
}

const struct bench_isa *bench_best_isa(void) {
    return best;
}

double bench_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- The clock ----------------------------------------------------------- */

/* An exclusive-or of two registers takes one cycle on every CPU we know of, and unlike an
 * addition of a constant none of them does it while renaming registers. */
double bench_clock_rate(void) {
    enum { ROUNDS = 2000, CHAIN = 100 };
    uint32_t x = 1, y = 2;
    __asm__ volatile("" : "+r"(x), "+r"(y));
    double start = bench_now();
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 100
        for (int j = 0; j < CHAIN; j++) {
            x ^= y;
            __asm__ volatile("" : "+r"(x));
        }
    }
    return (double)ROUNDS * CHAIN / (bench_now() - start);
}

/* Six chains of them fill any core we know of, and are more than it can execute while another
 * thread runs on it. */
double bench_integer_rate(void) {
    enum { ROUNDS = 1000, TURNS = 20, CHAINS = 6 };
    uint32_t x0 = 1, x1 = 2, x2 = 3, x3 = 4, x4 = 5, x5 = 6, y = 7;
    __asm__ volatile("" : "+r"(y));
    double start = bench_now();
    for (int i = 0; i < ROUNDS; i++) {
#pragma GCC unroll 20
        for (int j = 0; j < TURNS; j++) {
            x0 ^= y;
            x1 ^= y;
            x2 ^= y;
            x3 ^= y;
            x4 ^= y;
            x5 ^= y;
            __asm__ volatile("" : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3), "+r"(x4), "+r"(x5));
        }
    }
    return (double)ROUNDS * TURNS * CHAINS / (bench_now() - start);
}

/* ---- peak/<isa> ---------------------------------------------------------- */

static double fma_flop(const struct bench_isa *isa, size_t rounds) {
    isa->loops->multiply_add(rounds);
    return (double)rounds * isa->loops->flop;
}

/* The best of three, so that an interruption does not lower the peak. The first rounds don't
 * count: while the loop and the system call of bench_now() are not in the caches, they would add
 * 1 to 2 us to the 40 us of a measurement with AVX2. */
double bench_fma_rate(const struct bench_isa *isa) {
    double best_rate = 0;
    bench_now();
    fma_flop(isa, 500);
    for (int i = 0; i < 3; i++) {
        double start = bench_now();
        double flop = fma_flop(isa, 5000);
        double rate = flop / (bench_now() - start);
        best_rate = rate > best_rate ? rate : best_rate;
    }
    return best_rate;
}

/* The same number for every ISA, whatever the width of its registers. */
enum { PEAK_FLOP = 4 * 24 * 16 * 2 * 1000 };

static double peak_flop(const size_t *size) {
    (void)size;
    return PEAK_FLOP;
}

static void run_peak(const struct bench_isa *isa, void *data) {
    (void)data;
    fma_flop(isa, (size_t)(PEAK_FLOP / isa->loops->flop));
}

static const struct bench_shape peak_shape = {NULL, {0}};

const struct bench_family bench_peak = {
    .name = "peak",
    .shapes = &peak_shape,
    .n_shapes = 1,
    .run = run_peak,
    .flop = peak_flop,
};

/* ---- bandwidth/<where> --------------------------------------------------- */

struct memory {
    size_t n;
    float *data;
};

static void *create_memory(const size_t *size) {
    struct memory *memory = bench_allocate(sizeof *memory);
    memory->n = size[0] / sizeof(float);
    memory->data = bench_floats(memory->n);
    return memory;
}

static void destroy_memory(void *data) {
    struct memory *memory = data;
    free(memory->data);
    free(memory);
}

static void run_read(const struct bench_isa *isa, void *data) {
    const struct memory *memory = data;
    float sum = isa->loops->read(memory->n, memory->data);
    bench_keep(&sum);
}

static double read_bytes(const size_t *size) {
    return (double)size[0];
}

#define MIB ((size_t)1 << 20)
static const struct bench_shape bandwidth_shapes[] = {
    {"read", {256 * MIB}},     /* larger than the caches of one core */
    {"read_64mb", {64 * MIB}}, /* weights of 4096 x 4096 */
    {"read_1mb", {1 * MIB}},   /* in the L2 of larger cores */
};

const struct bench_family bench_bandwidth = {
    .name = "bandwidth",
    .shapes = bandwidth_shapes,
    .n_shapes = sizeof bandwidth_shapes / sizeof *bandwidth_shapes,
    .once = true,
    .create = create_memory,
    .destroy = destroy_memory,
    .run = run_read,
    .yardstick = run_read,
    .bytes = read_bytes,
};

/* ---- exp/<isa>/<elements> ------------------------------------------------ */

static void *create_exp(const size_t *size) {
    float *data = bench_floats(2 * size[0]);
    for (size_t i = 0; i < size[0]; i++) {
        data[i] = data[i] * 10.0f - 10.0f;
    }
    return data;
}

static void destroy_exp(void *data) {
    free(data);
}

static const struct bench_shape exp_shape = {"2048", {2048}};

static void run_exp(const struct bench_isa *isa, void *data) {
    size_t n = exp_shape.size[0];
    isa->loops->exp(n, data, (float *)data + n);
    bench_keep(data);
}

static double exp_elements(const size_t *size) {
    return (double)size[0];
}

/* Of mha_exp2(): 6 FMAs, a clamp, an addition, 2 subtractions and a multiplication. */
static double exp_flop(const size_t *size) {
    return 17.0 * (double)size[0];
}

const struct bench_family bench_exp = {
    .name = "exp",
    .shapes = &exp_shape,
    .n_shapes = 1,
    .create = create_exp,
    .destroy = destroy_exp,
    .run = run_exp,
    .flop = exp_flop,
    .elements = exp_elements,
};
