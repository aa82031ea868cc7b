/* SPDX-License-Identifier: MIT
 *
 * softmax/<isa>/<rows>x<keys>: the kernel that turns a tile of scores into weights: maximum,
 * scale, 2^x and sum. The tile is in L1, as in attention.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "exp2.h"

struct softmax {
    size_t rows, keys;
    float *scores;
    struct mha_softmax_row mask[MHA_MAX_GEMM_ROWS];
    float max[MHA_MAX_GEMM_ROWS], sum[MHA_MAX_GEMM_ROWS];
};

static void *create_softmax(const size_t *size) {
    struct softmax *softmax = bench_allocate(sizeof *softmax);
    *softmax = (struct softmax){
        .rows = size[0],
        .keys = size[1],
        .scores = bench_floats(size[0] * MHA_KEY_BLOCK),
    };
    for (size_t i = 0; i < size[0]; i++) {
        softmax->mask[i].end = size[1];
    }
    return softmax;
}

static void destroy_softmax(void *data) {
    struct softmax *softmax = data;
    free(softmax->scores);
    free(softmax);
}

/* Each run uses the weights of the previous run as scores. With a scale of 8 they settle at 1 for
 * one key and about exp(-8) for the others: plain numbers, and the time is the same for any. */
static void run_softmax(const struct bench_isa *isa, void *data) {
    struct softmax *softmax = data;
    isa->kernels->softmax(&(struct mha_softmax){
        .rows = softmax->rows,
        .keys = softmax->keys,
        .scores = softmax->scores,
        .stride = MHA_KEY_BLOCK,
        .row = softmax->mask,
        .factor = 8.0f * MHA_LOG2E,
        .max = softmax->max,
        .sum = softmax->sum,
    });
}

static double elements(const size_t *size) {
    return (double)size[0] * (double)size[1];
}

/* Per element, as in kernels.h: maximum, subtraction, factor, 2^x (17), sum. */
static double flop(const size_t *size) {
    return 21.0 * elements(size);
}

static const struct bench_shape shapes[] = {
    {"1x512", {1, 512}},
    {"6x512", {6, 512}},
    {"12x512", {12, 512}},
    {"12x100", {12, 100}},
};

const struct bench_family bench_softmax = {
    .name = "softmax",
    .shapes = shapes,
    .n_shapes = sizeof shapes / sizeof *shapes,
    .create = create_softmax,
    .destroy = destroy_softmax,
    .run = run_softmax,
    .flop = flop,
    .elements = elements,
};
