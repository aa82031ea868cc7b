/* SPDX-License-Identifier: MIT
 *
 * pack/<isa>/<rows>x<cols>: rows to panels, which is how keys and weights are packed;
 * compared with memcpy of as many bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct pack {
    size_t rows, columns;
    float *source, *panels;
};

static void *create_pack(const size_t *size) {
    struct pack *pack = bench_allocate(sizeof *pack);
    *pack = (struct pack){
        .rows = size[0],
        .columns = size[1],
        .source = bench_floats(size[0] * size[1]),
        .panels = bench_floats(size[0] * size[1]),
    };
    return pack;
}

static void destroy_pack(void *data) {
    struct pack *pack = data;
    free(pack->source);
    free(pack->panels);
    free(pack);
}

static void run_pack(const struct bench_isa *isa, void *data) {
    struct pack *t = data;
    isa->kernels->pack(t->rows, t->columns, t->source, t->columns, t->panels, true);
}

static void copy(const struct bench_isa *isa, void *data) {
    (void)isa;
    struct pack *t = data;
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

const struct bench_family bench_pack = {
    .name = "pack",
    .shapes = shapes,
    .n_shapes = sizeof shapes / sizeof *shapes,
    .create = create_pack,
    .destroy = destroy_pack,
    .run = run_pack,
    .yardstick = copy,
    .bytes = bytes,
    .elements = elements,
};
