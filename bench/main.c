/* SPDX-License-Identifier: MIT
 *
 * mha_bench: speed of every kernel and of whole layers on every ISA that this machine supports,
 * compared with what the machine can do. Flags are Google Benchmark's (--help).
 */
#include <stdio.h>

#include "bench.h"
#include "cpu_name.h"
#include "isa_rows.h"

#ifdef __linux__
#include <sched.h>

/* Stays on one core, so that moves between cores are not measured. It is the last allowed core,
 * because the first ones serve interrupts. */
static void pin(void) {
    cpu_set_t allowed, one;
    char text[48] = "not pinned";
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        size_t core = CPU_SETSIZE - 1;
        while (core > 0 && !CPU_ISSET(core, &allowed)) {
            core--;
        }
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0) {
            snprintf(text, sizeof text, "%zu", core);
        }
    }
    bench_context("pinned_to_core", text);
}
#else
static void pin(void) {
    bench_context("pinned_to_core", "not pinned");
}
#endif

static void describe(void) {
    char name[128], list[64];
    const struct bench_isa *isas;
    size_t n = bench_isas(&isas), used = 0;
    for (size_t i = 0; i < n; i++) {
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? " " : "", isas[i].name);
    }
    cpu_name(name, sizeof name);
    bench_context("cpu", name);
    bench_context("libmha", mha_version());
    bench_context("compiler", MHA_BENCH_COMPILER);
    bench_context("isas", list);
    bench_context("scalar_fma", isas[0].loops->fma_instruction ? "instruction" : "software");
#ifndef __OPTIMIZE__
    fprintf(stderr, "mha_bench: built without optimisation: the figures mean nothing\n");
#endif
}

int main(int argc, char **argv) {
    static const struct bench_family *const families[] = {
        &bench_peak,          &bench_bandwidth, &bench_gemm,        &bench_gemm_row,
        &bench_softmax,       &bench_exp,       &bench_pack,        &bench_attention,
        &bench_attention_row, &bench_forward,   &bench_forward_row, &bench_create,
    };
    pin();
    bench_find_isas();
    describe();
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        bench_add(families[i]);
    }
    return bench_run_all(argc, argv);
}
