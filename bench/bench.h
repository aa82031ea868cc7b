/* SPDX-License-Identifier: MIT
 *
 * The parts of a benchmark. A family is an operation; a shape of it is measured on every ISA that
 * this machine supports, with the same data. To add a bench: a file with a family, and its line
 * in main.c.
 */
#ifndef MHA_BENCH_H
#define MHA_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "bench_shim.h"
#include "kernels.h"
#include "mha.h"

/* Loops that measure the machine rather than the library, written for one ISA (isa.c). */
struct bench_loops {
    const struct mha_kernels *kernels;   /* the table they belong to */
    bool fma_instruction;                /* else scalar's fma is software */
    double flop;                         /* of a round of multiply_add */
    void (*multiply_add)(size_t rounds); /* independent chains of FMAs in registers */
    float (*read)(size_t n, const float *data);
    void (*exp)(size_t n, const float *x, float *y); /* n a multiple of 64 */
};

struct bench_isa {
    const char *name;
    const struct mha_kernels *kernels;
    const struct bench_loops *loops;
    mha_context *context;
};

enum { BENCH_MAX_SIZES = 6 };

struct bench_shape {
    const char *name; /* as in the benchmark's name; NULL: the family has one shape */
    size_t size[BENCH_MAX_SIZES];
};

struct bench_family {
    const char *name;
    const struct bench_shape *shapes;
    size_t n_shapes;
    /* Measured on the best ISA alone, and without an ISA in the name. */
    bool once;
    /* The data of a shape, for all ISAs; both NULL: none. */
    void *(*create)(const size_t *size);
    void (*destroy)(void *data);
    /* One operation. */
    void (*run)(const struct bench_isa *isa, void *data);
    /* What of_peak compares with instead of the FMA peak: an operation on the same data. */
    void (*yardstick)(const struct bench_isa *isa, void *data);
    /* Work of an operation. NULL: the figure has no meaning. */
    double (*flop)(const size_t *size);
    double (*bytes)(const size_t *size);
    double (*elements)(const size_t *size); /* for cycles per element */
};

/* The families. If one row is bound by memory, it has a separate family. */
extern const struct bench_family bench_peak, bench_bandwidth, bench_exp, bench_gemm, bench_gemm_row,
    bench_softmax, bench_pack, bench_attention, bench_attention_row, bench_forward,
    bench_forward_row, bench_create;

/* ---- machine.c: what the machine can do ---------------------------------- */

/* Before the others. */
void bench_find_isas(void);
/* The supported ISAs, scalar first, then in the order of mha_isa. */
size_t bench_isas(const struct bench_isa **isas);
/* The ISA that the library chooses by default. */
const struct bench_isa *bench_best_isa(void);

/* CPU time of this thread in seconds. On a shared machine wall-clock time would include other
 * programs on the same core. */
double bench_now(void);

/* FLOP per second of one core at FMAs, measured now, in 0.1 to 0.3 ms. */
double bench_fma_rate(const struct bench_isa *isa);
/* Cycles per second of the core's clock, measured now, in about 0.06 ms. */
double bench_clock_rate(void);
/* Integer operations per second, as many at once as the core can execute, in about 0.01 ms. */
double bench_integer_rate(void);

/* ---- measure.c: the one way of measuring --------------------------------- */

/* Registers the family's benchmarks for all its shapes, on all ISAs. */
void bench_add(const struct bench_family *family);

/* ---- Helpers of the families (data.c) ------------------------------------ */

/* n floats in -1 .. 1, always the same, 64-byte aligned; for free(). */
float *bench_floats(size_t n);
/* Memory for free(); ends the program if there is none. */
void *bench_allocate(size_t size);
/* Ends the program with the library's message unless the status is MHA_OK. */
void bench_check(mha_status status);
/* Makes the compiler believe that what this points to was read. */
void bench_keep(const void *data);

#endif
