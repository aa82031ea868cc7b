/* SPDX-License-Identifier: MIT
 *
 * forward/<isa>/b<batch>_s<len>_d<d_model>_h<heads>[_sub<percent>]: a whole layer on a batch of
 * sequences, four projections and attention, with biases; so many percent of weights and inputs
 * are subnormal.
 * create/d<d_model>_h<heads>: making such a layer, that is packing its weights; compared
 * with memcpy of the weights to new memory, which costs page faults just so.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "layer.h"

struct forward {
    mha_config config;
    mha_weights weights;
    float *matrix, *bias; /* weights of all four, biases of all four */
    mha_layer *layer;
    mha_forward_args args;
    float *query;
};

static struct forward *create_weights(size_t d_model, size_t heads) {
    struct forward *f = bench_allocate(sizeof *f);
    size_t n = d_model * d_model;
    *f = (struct forward){
        .config = {.d_model = d_model, .n_heads = heads},
        .matrix = bench_floats(4 * n),
        .bias = bench_floats(4 * d_model),
    };
    /* Of the size that training starts from, so that scores are neither flat nor peaked. */
    for (size_t i = 0; i < 4 * n; i++) {
        f->matrix[i] *= 1.0f / 16.0f;
    }
    f->weights = (mha_weights){
        .q = f->matrix,
        .k = f->matrix + n,
        .v = f->matrix + 2 * n,
        .o = f->matrix + 3 * n,
        .q_bias = f->bias,
        .k_bias = f->bias + d_model,
        .v_bias = f->bias + 2 * d_model,
        .o_bias = f->bias + 3 * d_model,
    };
    return f;
}

static void make_subnormal(float *data, size_t n, size_t percent) {
    for (size_t i = 0; i < n; i++) {
        data[i] = i % 100 < percent ? 1e-39f : data[i];
    }
}

static void *create_forward(const size_t *size) {
    size_t batch = size[0], length = size[1], d_model = size[2];
    struct forward *f = create_weights(d_model, size[3]);
    make_subnormal(f->matrix, 4 * d_model * d_model, size[4]);
    bench_check(mha_layer_create(&f->config, &f->weights, &f->layer));
    f->query = bench_floats(batch * length * d_model);
    make_subnormal(f->query, batch * length * d_model, size[4]);
    f->args = (mha_forward_args){
        .batch = batch,
        .q_len = length,
        .query = f->query,
        .output = bench_floats(batch * length * d_model),
    };
    return f;
}

static void destroy_forward(void *data) {
    struct forward *f = data;
    mha_layer_destroy(&f->layer);
    free(f->matrix);
    free(f->bias);
    free(f->query);
    free(f->args.output);
    free(f);
}

static void run_forward(const struct bench_isa *isa, void *data) {
    struct forward *f = data;
    bench_check(mha_forward(isa->context, f->layer, &f->args));
}

/* Of the matrix products; softmax, biases and scaling aren't counted. */
static double flop(const size_t *size) {
    double batch = (double)size[0], length = (double)size[1], d_model = (double)size[2];
    return batch * length * d_model * (8.0 * d_model + 4.0 * length);
}

#define SHAPE(batch, length, d_model, heads)                                                       \
    {                                                                                              \
        "b" #batch "_s" #length "_d" #d_model "_h" #heads, {                                       \
            batch, length, d_model, heads                                                          \
        }                                                                                          \
    }
static const struct bench_shape shapes[] = {
    SHAPE(1, 16, 512, 8),
    SHAPE(1, 64, 512, 8),
    SHAPE(1, 256, 512, 8),
    SHAPE(1, 1024, 512, 8),
    SHAPE(1, 2048, 512, 8),
    SHAPE(1, 4096, 512, 8),
    SHAPE(1, 16, 768, 12),
    SHAPE(1, 32, 384, 12),
    SHAPE(1, 128, 768, 12),
    SHAPE(8, 128, 384, 12),
    SHAPE(1, 512, 1024, 16),
    {"b1_s128_d768_h12_sub1", {1, 128, 768, 12, 1}},
    {"b1_s128_d768_h12_sub100", {1, 128, 768, 12, 100}},
};

const struct bench_family bench_forward = {
    .name = "forward",
    .shapes = shapes,
    .n_shapes = sizeof shapes / sizeof *shapes,
    .create = create_forward,
    .destroy = destroy_forward,
    .run = run_forward,
    .flop = flop,
};

/* With one row every weight is used once: memory is the limit. */
static const struct bench_shape row_shape = SHAPE(1, 1, 768, 12);

static void read_weights(const struct bench_isa *isa, void *data) {
    (void)isa;
    const struct mha_layer *layer = ((struct forward *)data)->layer;
    const struct bench_loops *loops = bench_best_isa()->loops;
    float sum = 0.0f;
    const struct mha_linear *const linears[] = {&layer->q, &layer->k, &layer->v, &layer->o};
    for (size_t i = 0; i < 4; i++) {
        const struct mha_linear *linear = linears[i];
        sum += loops->read(linear->groups * mha_panels_size(linear->width, linear->depth),
                           linear->panels);
    }
    bench_keep(&sum);
}

static double bytes(const size_t *size) {
    return 4.0 * sizeof(float) * (double)size[2] * (double)size[2];
}

const struct bench_family bench_forward_row = {
    .name = "forward",
    .shapes = &row_shape,
    .n_shapes = 1,
    .create = create_forward,
    .destroy = destroy_forward,
    .run = run_forward,
    .yardstick = read_weights,
    .flop = flop,
    .bytes = bytes,
};

/* ---- create -------------------------------------------------------------- */

static void *create_create(const size_t *size) {
    return create_weights(size[0], size[1]);
}

static void run_create(const struct bench_isa *isa, void *data) {
    (void)isa;
    struct forward *f = data;
    bench_check(mha_layer_create(&f->config, &f->weights, &f->layer));
    mha_layer_destroy(&f->layer);
}

static void copy_weights(const struct bench_isa *isa, void *data) {
    (void)isa;
    struct forward *f = data;
    size_t n = 4 * f->config.d_model * f->config.d_model;
    float *copy = bench_allocate(n * sizeof *copy);
    memcpy(copy, f->matrix, n * sizeof *copy);
    bench_keep(copy);
    free(copy);
}

static double copied_bytes(const size_t *size) {
    return 4.0 * sizeof(float) * (double)size[0] * (double)size[0];
}

static const struct bench_shape create_shapes[] = {
    {"d384_h12", {384, 12}},
    {"d768_h12", {768, 12}},
    {"d1024_h16", {1024, 16}},
};

const struct bench_family bench_create = {
    .name = "create",
    .once = true,
    .shapes = create_shapes,
    .n_shapes = sizeof create_shapes / sizeof *create_shapes,
    .create = create_create,
    .destroy = destroy_forward,
    .run = run_create,
    .yardstick = copy_weights,
    .bytes = copied_bytes,
};
