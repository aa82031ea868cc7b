/* SPDX-License-Identifier: MIT
 *
 * attention/<isa>/[q<queries>_]s<keys>_h<heads>[_kv<key/value heads>]_d<head_dim>[_<kind>]:
 * mha_attention, packing of keys included. As many queries as keys, but at most 2048, as in a part
 * of a long prompt. The arrays are [head][row][head_dim]; strided: [row][head][head_dim], as a
 * projection leaves them. Kinds of masks: causal; keep, the same bytes for all heads; bias, of one
 * head; alibi; window, the last 256 keys before a query, causal.
 */
#include <stdlib.h>

#include "bench.h"

enum { MAX_QUERIES = 2048, WINDOW = 256 };

enum { KEYS, HEADS, HEAD_DIM, KIND, QUERIES, KV_HEADS };

enum kind { DENSE, STRIDED, CAUSAL, KEEP, BIAS, ALIBI, WINDOWED };

static size_t queries(const size_t *size) {
    size_t most = size[KEYS] < MAX_QUERIES ? size[KEYS] : MAX_QUERIES;
    return size[QUERIES] ? size[QUERIES] : most;
}

static size_t kv_heads(const size_t *size) {
    return size[KV_HEADS] ? size[KV_HEADS] : size[HEADS];
}

struct attention {
    mha_attention_args args;
    mha_mask mask;
    float *query, *key, *value, *bias, *slopes;
    uint8_t *keep;
};

static void make_mask(const size_t *size, struct attention *a) {
    size_t keys = size[KEYS], rows = queries(size);
    a->mask = (mha_mask){0};
    if (size[KIND] == CAUSAL || size[KIND] == WINDOWED) {
        a->mask.causal = MHA_CAUSAL_BOTTOM_RIGHT;
        a->mask.window_left = size[KIND] == WINDOWED ? WINDOW : 0;
    } else if (size[KIND] == KEEP) {
        a->keep = bench_allocate(rows * keys);
        for (size_t i = 0; i < rows * keys; i++) {
            a->keep[i] = i % 7 != 0;
        }
        a->mask.keep = a->keep;
        a->mask.keep_query_stride = keys;
    } else if (size[KIND] == BIAS) {
        a->mask.bias = a->bias = bench_floats(rows * keys);
        a->mask.bias_query_stride = keys;
    } else if (size[KIND] == ALIBI) {
        a->slopes = bench_floats(size[HEADS]);
        for (size_t h = 0; h < size[HEADS]; h++) {
            a->slopes[h] = 1.0f / (float)(2 << h % 8);
        }
        a->mask.alibi_slopes = a->slopes;
    }
}

static void *create_attention(const size_t *size) {
    size_t heads = size[HEADS], head_dim = size[HEAD_DIM], kv = kv_heads(size);
    struct attention *a = bench_allocate(sizeof *a);
    *a = (struct attention){
        .query = bench_floats(heads * queries(size) * head_dim),
        .key = bench_floats(kv * size[KEYS] * head_dim),
        .value = bench_floats(kv * size[KEYS] * head_dim),
    };
    make_mask(size, a);
    const mha_strides strided = {.head = head_dim, .row = heads * head_dim};
    const mha_strides strides = size[KIND] == STRIDED ? strided : (mha_strides){0};
    a->args = (mha_attention_args){
        .batch = 1,
        .n_heads = heads,
        .n_kv_heads = kv,
        .q_len = queries(size),
        .kv_len = size[KEYS],
        .head_dim = head_dim,
        .query = a->query,
        .key = a->key,
        .value = a->value,
        .mask = &a->mask,
        .output = bench_floats(heads * queries(size) * head_dim),
        .query_strides = strides,
        .key_strides = strides,
        .value_strides = strides,
        .output_strides = strides,
    };
    return a;
}

static void destroy_attention(void *data) {
    struct attention *a = data;
    free(a->query);
    free(a->key);
    free(a->value);
    free(a->bias);
    free(a->slopes);
    free(a->keep);
    free(a->args.output);
    free(a);
}

static void run_attention(const struct bench_isa *isa, void *data) {
    struct attention *a = data;
    bench_check(mha_attention(isa->context, &a->args));
}

/* Keys that a query attends to, on average. */
static double attended(const size_t *size) {
    double keys = (double)size[KEYS], rows = (double)queries(size);
    if (size[KIND] == CAUSAL) {
        return keys - (rows - 1.0) / 2.0;
    }
    return size[KIND] == WINDOWED ? WINDOW - WINDOW * (WINDOW - 1.0) / 2.0 / rows : keys;
}

/* Of the two products; the softmax's own arithmetic isn't counted. */
static double flop(const size_t *size) {
    return 4.0 * (double)size[HEADS] * (double)queries(size) * attended(size) *
           (double)size[HEAD_DIM];
}

#define SHAPE(keys, heads, head_dim, suffix, kind)                                                 \
    {                                                                                              \
        "s" #keys "_h" #heads "_d" #head_dim suffix, {                                             \
            keys, heads, head_dim, kind                                                            \
        }                                                                                          \
    }
static const struct bench_shape shapes[] = {
    SHAPE(32, 8, 64, "", DENSE),
    SHAPE(128, 8, 64, "", DENSE),
    SHAPE(512, 8, 64, "", DENSE),
    SHAPE(2048, 8, 64, "", DENSE),
    SHAPE(8192, 8, 64, "", DENSE),
    SHAPE(512, 8, 64, "_strided", STRIDED),
    SHAPE(2048, 8, 64, "_strided", STRIDED),
    SHAPE(512, 8, 32, "", DENSE),
    SHAPE(2048, 8, 32, "", DENSE),
    SHAPE(8192, 8, 32, "", DENSE),
    SHAPE(512, 8, 128, "", DENSE),
    SHAPE(2048, 8, 128, "", DENSE),
    SHAPE(8192, 8, 128, "", DENSE),
    SHAPE(2048, 8, 64, "_causal", CAUSAL),
    SHAPE(2048, 8, 64, "_keep", KEEP),
    SHAPE(2048, 8, 64, "_bias", BIAS),
    SHAPE(2048, 8, 64, "_alibi", ALIBI),
    SHAPE(2048, 8, 64, "_window", WINDOWED),
    {"s2048_h32_kv8_d128_causal", {2048, 32, 128, CAUSAL, 0, 8}},
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

/* With few queries keys and values are used a few times each: memory is the limit. */
static double bytes(const size_t *size) {
    return 2.0 * sizeof(float) * (double)kv_heads(size) * (double)size[KEYS] *
           (double)size[HEAD_DIM];
}

/* Reads the same keys and values, and does nothing with them. */
static void read_keys(const struct bench_isa *isa, void *data) {
    (void)isa;
    const struct attention *a = data;
    size_t n = a->args.n_kv_heads * a->args.kv_len * a->args.head_dim;
    const struct bench_loops *loops = bench_best_isa()->loops;
    float sum = loops->read(n, a->key) + loops->read(n, a->value);
    bench_keep(&sum);
}

static const struct bench_shape row_shapes[] = {
    {"q1_s2048_h8_d64", {2048, 8, 64, DENSE, 1}},
    {"q1_s4096_h32_kv8_d128", {4096, 32, 128, DENSE, 1, 8}},
};

const struct bench_family bench_attention_row = {
    .name = "attention",
    .shapes = row_shapes,
    .n_shapes = sizeof row_shapes / sizeof *row_shapes,
    .create = create_attention,
    .destroy = destroy_attention,
    .run = run_attention,
    .yardstick = read_keys,
    .flop = flop,
    .bytes = bytes,
};
