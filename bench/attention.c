/* SPDX-License-Identifier: MIT
 *
 * attention/<isa>/s<keys>_h<heads>_d<head_dim>: mha_attention without a mask, packing of keys
 * included. As many queries as keys, but at most 2048, as in a part of a long prompt. The arrays
 * are [head][row][head_dim]; with _strided [row][head][head_dim], as a projection leaves them.
 */
#include <stdlib.h>

#include "bench.h"

enum { MAX_QUERIES = 2048 };

static size_t queries(const size_t *size) {
    return size[0] < MAX_QUERIES ? size[0] : MAX_QUERIES;
}

struct attention {
    mha_attention_args args;
    float *query, *key, *value;
};

static void *create_attention(const size_t *size) {
    size_t keys = size[0], heads = size[1], head_dim = size[2];
    struct attention *attention = bench_allocate(sizeof *attention);
    *attention = (struct attention){
        .query = bench_floats(heads * queries(size) * head_dim),
        .key = bench_floats(heads * keys * head_dim),
        .value = bench_floats(heads * keys * head_dim),
    };
    const mha_strides strided = {.head = head_dim, .row = heads * head_dim};
    const mha_strides strides = size[3] ? strided : (mha_strides){0};
    attention->args = (mha_attention_args){
        .batch = 1,
        .n_heads = heads,
        .q_len = queries(size),
        .kv_len = keys,
        .head_dim = head_dim,
        .query = attention->query,
        .key = attention->key,
        .value = attention->value,
        .output = bench_floats(heads * queries(size) * head_dim),
        .query_strides = strides,
        .key_strides = strides,
        .value_strides = strides,
        .output_strides = strides,
    };
    return attention;
}

static void destroy_attention(void *data) {
    struct attention *attention = data;
    free(attention->query);
    free(attention->key);
    free(attention->value);
    free(attention->args.output);
    free(attention);
}

static void run_attention(const struct bench_isa *isa, void *data) {
    struct attention *attention = data;
    bench_check(mha_attention(isa->context, &attention->args));
}

/* Of the two products; the softmax's own arithmetic isn't counted. */
static double flop(const size_t *size) {
    return 4.0 * (double)size[1] * (double)queries(size) * (double)size[0] * (double)size[2];
}

#define SHAPE(keys, heads, head_dim, suffix, strided)                                              \
    {                                                                                              \
        "s" #keys "_h" #heads "_d" #head_dim suffix, {                                             \
            keys, heads, head_dim, strided                                                         \
        }                                                                                          \
    }
#define DENSE(keys, heads, head_dim) SHAPE(keys, heads, head_dim, "", 0)
#define STRIDED(keys, heads, head_dim) SHAPE(keys, heads, head_dim, "_strided", 1)
static const struct bench_shape shapes[] = {
    DENSE(32, 8, 64),    DENSE(128, 8, 64),   DENSE(512, 8, 64),    DENSE(2048, 8, 64),
    DENSE(8192, 8, 64),  STRIDED(512, 8, 64), STRIDED(2048, 8, 64), DENSE(512, 8, 32),
    DENSE(2048, 8, 32),  DENSE(8192, 8, 32),  DENSE(512, 8, 128),   DENSE(2048, 8, 128),
    DENSE(8192, 8, 128),
};

const struct bench_family bench_attention = {
    .name = "attention",
    .shapes = shapes,
    .n_shapes = sizeof shapes / sizeof *shapes,
    .create = create_attention,
    .destroy = destroy_attention,
    .run = run_attention,
    .flop = flop,
};
