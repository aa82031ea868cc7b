/* SPDX-License-Identifier: MIT
 *
 * gemm/<isa>/<M>x<N>x<K>: a linear layer of N outputs and K inputs, packed, on M rows, through
 * mha_project as a forward calls it. The operands stay where repeated use leaves them:
 * in the caches that they fit.
 */
#include <stdlib.h>

#include "bench.h"
#include "project.h"

struct gemm {
    size_t rows;
    struct mha_linear linear;
    float *x, *scratch, *out;
};

static void *create_gemm(const size_t *size) {
    size_t rows = size[0], width = size[1], depth = size[2];
    struct gemm *gemm = bench_allocate(sizeof *gemm);
    *gemm = (struct gemm){
        .rows = rows,
        .linear = {.groups = 1,
                   .width = width,
                   .depth = depth,
                   .panels = bench_floats(mha_panels_size(width, depth))},
        .x = bench_floats(rows * depth),
        .scratch = bench_floats(MHA_MAX_TILE_ROWS * depth),
        .out = bench_floats(rows * width),
    };
    return gemm;
}

static void destroy_gemm(void *data) {
    struct gemm *gemm = data;
    free(gemm->linear.panels);
    free(gemm->x);
    free(gemm->scratch);
    free(gemm->out);
    free(gemm);
}

static void run_gemm(const struct bench_isa *isa, void *data) {
    struct gemm *gemm = data;
    size_t width = gemm->linear.width, depth = gemm->linear.depth;
    const struct mha_project_scratch scratch = {.rows = gemm->scratch};
    mha_project(&(struct mha_projection){
        .kernels = isa->kernels,
        .scratch = &scratch,
        .linear = &gemm->linear,
        .batch = 1,
        .rows = gemm->rows,
        .input = gemm->x,
        .input_row_stride = depth,
        .inputs = true,
        .output = gemm->out,
        .output_group_stride = width,
        .output_row_stride = width,
    });
}

/* Only reads the same weights. */
static void read_weights(const struct bench_isa *isa, void *data) {
    (void)isa;
    const struct mha_linear *linear = &((struct gemm *)data)->linear;
    float sum = bench_best_isa()->loops->read(mha_panels_size(linear->width, linear->depth),
                                              linear->panels);
    bench_keep(&sum);
}

static double gemm_flop(const size_t *size) {
    return 2.0 * (double)size[0] * (double)size[1] * (double)size[2];
}

static double weight_bytes(const size_t *size) {
    return (double)(mha_panels_size(size[1], size[2]) * sizeof(float));
}

#define SHAPE(m, n, k)                                                                             \
    {                                                                                              \
#m "x" #n "x" #k, {                                                                        \
            m, n, k                                                                                \
        }                                                                                          \
    }
static const struct bench_shape shapes[] = {
    SHAPE(4, 768, 768),    SHAPE(16, 768, 768),    SHAPE(64, 768, 768), SHAPE(128, 768, 768),
    SHAPE(197, 768, 768),  SHAPE(8, 512, 512),     SHAPE(32, 384, 384), SHAPE(256, 256, 64),
    SHAPE(1024, 64, 1024), SHAPE(512, 1024, 1024),
};

const struct bench_family bench_gemm = {
    .name = "gemm",
    .shapes = shapes,
    .n_shapes = sizeof shapes / sizeof *shapes,
    .create = create_gemm,
    .destroy = destroy_gemm,
    .run = run_gemm,
    .flop = gemm_flop,
};

/* With one row every weight is used once: memory is the limit. */
static const struct bench_shape row_shapes[] = {SHAPE(1, 512, 512), SHAPE(1, 768, 768),
                                                SHAPE(1, 4096, 4096)};

const struct bench_family bench_gemm_row = {
    .name = "gemm",
    .shapes = row_shapes,
    .n_shapes = sizeof row_shapes / sizeof *row_shapes,
    .create = create_gemm,
    .destroy = destroy_gemm,
    .run = run_gemm,
    .yardstick = read_weights,
    .flop = gemm_flop,
    .bytes = weight_bytes,
};
