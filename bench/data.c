/* SPDX-License-Identifier: MIT
 *
 * Data for the benchmarks, and their exit on an error.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "workspace.h"

void *bench_allocate(size_t size) {
    void *memory = mha_allocate(size);
    if (!memory) {
        fprintf(stderr, "mha_bench: out of memory: %zu bytes\n", size);
        exit(1);
    }
    return memory;
}

float *bench_floats(size_t n) {
    float *data = bench_allocate(n * sizeof *data);
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        data[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
    return data;
}

void bench_check(mha_status status) {
    if (status != MHA_OK) {
        fprintf(stderr, "mha_bench: %s\n", mha_error_message());
        exit(1);
    }
}

void bench_keep(const void *data) {
    __asm__ volatile("" : : "r"(data) : "memory");
}
