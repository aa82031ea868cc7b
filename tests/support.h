/* SPDX-License-Identifier: MIT
 *
 * What the test programs share: the current case and its generator of inputs, buffers between
 * guard pages, comparison by bits, the tables of kernels to try, and main(). Knows nothing of
 * what is tested.
 */
#ifndef MHA_TEST_SUPPORT_H
#define MHA_TEST_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

/* ---- The current case ------------------------------------------------------ */

/* splitmix64 (Steele, Lea and Flood 2014): a plain function of its state. */
struct generator {
    uint64_t state;
};

/* Names the case that comes next; reports of failures and crashes print the name. Returns the
 * case's generator, seeded with the FNV-1a hash of the name, or with $MHA_TEST_SEED. */
struct generator begin_case(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "gemm rows 3 columns 17 (seed 0x...)", for messages of assertions. */
const char *case_name(void);

uint64_t next_bits(struct generator *generator);

/* Uniform below n, n > 0 (up to a bias of n / 2^64). */
size_t next_below(struct generator *generator, size_t n);

/* Uniform in [-1, 1): a multiple of 2^-23, exact wherever it is computed. */
float next_float(struct generator *generator);

void fill_floats(struct generator *generator, float *data, size_t count);

/* FNV-1a, 64 bits. Start from FNV_START; goes on from an earlier result. */
#define FNV_START UINT64_C(0xcbf29ce484222325)
uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes);

/* Whether to skip the case just begun, in runs under emulators and valgrind. The first case of a
 * test (of the program, where Check doesn't fork) is never skipped. Of the others a sample runs,
 * by the hashes of their names: one in $MHA_TEST_STRIDE / 1024 + 1. run_suite() prints that. */
bool skip_case(void);

/* The number in an environment variable, or a default; fails loudly on anything else. */
uint64_t env_number(const char *name, uint64_t otherwise);

/* ---- Guarded memory -------------------------------------------------------- */

enum guard_side { AT_START, AT_END };

/* Memory filled with bytes 0xff (floats: NaN), with an inaccessible page on both sides.
 * AT_START: it begins `shift` bytes behind the front guard, whose end is 64-byte aligned;
 * AT_END: it ends `shift` bytes ahead of the back guard. Never NULL, 0 bytes included. */
void *guarded_alloc(size_t bytes, size_t shift, enum guard_side side);

/* The same for floats. */
float *guarded_floats(size_t count, size_t shift, enum guard_side side);

/* Frees all of them. */
void guarded_free_all(void);

/* ck_assert_msg() for tight loops: Check's own tells the parent process of every success. */
#define require(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)

/* ---- Comparison ------------------------------------------------------------ */

/* Equal in every bit, except that any NaN equals any other. */
bool bits_equal(float a, float b);

/* Compares [rows][columns] of two matrices. If they differ, prints the case's name, a map
 * of where, and the first pairs in %a, and returns false. */
bool same_floats(const char *what, const float *expected, size_t expected_stride,
                 const float *actual, size_t actual_stride, size_t rows, size_t columns);

/* True if the gaps behind the rows of [rows][columns] in memory from guarded_alloc() are as
 * they were; else prints where not. */
bool gaps_untouched(const float *data, size_t stride, size_t rows, size_t columns);

#define ck_assert_same(what, expected, expected_stride, actual, actual_stride, rows, columns)      \
    require(same_floats(what, expected, expected_stride, actual, actual_stride, rows, columns),    \
            "%s: %s differs", case_name(), what)

/* ---- The tables of kernels ------------------------------------------------- */

/* One more than the last member of mha_isa. */
enum { ISAS = MHA_ISA_NEON + 1 };

/* The i-th table that this build has and this CPU can run, best first; NULL past the last.
 * With $MHA_ISA set, those of that ISA alone. x86 and 32-bit ARM have scalar twice: with the
 * FMA instruction and with the software fma. */
const struct mha_kernels *tested_table(size_t i);
int tested_tables(void);

/* "avx2", "scalar" (needs nothing), "scalar_fma" */
const char *table_name(const struct mha_kernels *table);

/* What the others are compared with: the scalar table, the faster one if there are two. */
const struct mha_kernels *reference_table(void);

/* ---- main() ---------------------------------------------------------------- */

/* Runs the suite and returns the exit status: 0, 1 after a failure, 77 with a line "SKIP: ..." if
 * $MHA_ISA names an ISA that is not supported here. */
int run_suite(Suite *suite);

#endif
