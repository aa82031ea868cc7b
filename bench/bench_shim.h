/* SPDX-License-Identifier: MIT
 *
 * The part of Google Benchmark, which is C++, that the benchmarks use, which are C. Knows nothing
 * of attention; bench_shim.cc is the only C++ in the tree.
 */
#ifndef MHA_BENCH_SHIM_H
#define MHA_BENCH_SHIM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One run of one benchmark; Google Benchmark makes several of each, to find the number of
 * repetitions. */
struct bench_run;

typedef void bench_body(struct bench_run *run, void *subject);

/* The name is copied; the subject is passed to the body in each run. */
void bench_register(const char *name, bench_body *body, void *subject);

/* For the body: while it returns true, do that many operations. */
bool bench_next(struct bench_run *run, size_t operations);
/* Between these two, within an iteration, Google Benchmark's clock is stopped. */
void bench_pause(struct bench_run *run);
void bench_resume(struct bench_run *run);
void bench_counter(struct bench_run *run, const char *name, double value);

/* A line of the report's context. */
void bench_context(const char *key, const char *value);

/* Runs what is registered, by Google Benchmark's own flags; what main() is to return. */
int bench_run_all(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
