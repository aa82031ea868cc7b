/* SPDX-License-Identifier: MIT
 *
 * transpose/<isa>/<rows>x<cols>: rows to panels, which is how keys and weights are packed;
 * compared with memcpy of as many bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct transpose {
    size_t rows, columns;
    float *source, *panels;
};

static void *create_transpose(const size_t *size) {
    struct transpose *transpose = bench_allocate(sizeof *transpose);
    *transpose = (struct transpose){
        .rows = size[0],
        .columns = size[1],
        .source = bench_floats(size[0] * size[1]),
        .panels = bench_floats(size[0] * size[1]),
    };
    return transpose;
}

static void destroy_transpose(void *data) {
    struct transpose *transpose = data;
    free(transpose->source);
    free(transpose->panels);
    free(transpose);
}

static void run_transpose(const struct bench_isa *isa, void *data) {
    struct transpose *t = data;
    isa->kernels->transpose(t->rows, t->columns, t->source, t->columns, t->panels);
}

static void copy(const struct bench_isa *isa, void *data) {
    (void)isa;
    struct transpose *t = data;
    memcpy(t->panels, t->source, t->rows * t->columns * sizeof *t->panels);
    bench_keep(t->panels);
}

static double elements(const size_t *size) {
    return (double)size[0] * (double)size[1];
}

static double bytes(const size_t *size) {
    return elements(size) * sizeof(float);
}

/* A panel of keys, a block of keys, weights. Rows are whole panels: as many bytes as memcpy's. */
static const struct bench_shape shapes[] = {
    {"16x64", {16, 64}},
    {"512x64", {512, 64}},
    {"768x768", {768, 768}},
};

const struct bench_family bench_transpose = {
    .name = "transpose",
    .shapes = shapes,
    .n_shapes = sizeof shapes / sizeof *shapes,
    .create = create_transpose,
    .destroy = destroy_transpose,
    .run = run_transpose,
    .yardstick = copy,
    .bytes = bytes,
    .elements = elements,
};
