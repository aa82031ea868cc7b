/* SPDX-License-Identifier: MIT
 *
 * Google Benchmark behind the C interface of bench_shim.h. It decides nothing about measuring.
 */
#include "bench_shim.h"

#include <benchmark/benchmark.h>

struct bench_run {
    benchmark::State &state;
};

void bench_register(const char *name, bench_body *body, void *subject) {
    benchmark::RegisterBenchmark(name, [body, subject](benchmark::State &state) {
        bench_run run{state};
        body(&run, subject);
    });
}

bool bench_next(bench_run *run, size_t operations) {
    return run->state.KeepRunningBatch(static_cast<benchmark::IterationCount>(operations));
}

void bench_pause(bench_run *run) {
    run->state.PauseTiming();
}

void bench_resume(bench_run *run) {
    run->state.ResumeTiming();
}

void bench_counter(bench_run *run, const char *name, double value) {
    run->state.counters[name] = value;
}

void bench_context(const char *key, const char *value) {
    benchmark::AddCustomContext(key, value);
}

int bench_run_all(int argc, char **argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
