/* SPDX-License-Identifier: MIT
 *
 * The cases of golden_bits.txt. Each tensor of a case has its own generator, seeded by the names
 * of both. All arithmetic on inputs is exact, or a single IEEE operation.
 */
#include "bits_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTHS(...) ((const size_t[]){__VA_ARGS__})
#define TOP_LEFT MHA_CAUSAL_TOP_LEFT
#define BOTTOM_RIGHT MHA_CAUSAL_BOTTOM_RIGHT

/* The sizes lie around the library's blocks: 16 keys or columns a panel, 512 keys a block, up to
 * 16 rows a tile, 64 columns a tile of few rows, 96 or 512 rows a block, 512 or so inputs a slab.
 */
const struct bits_case bits_cases[] = {
    /* Layers: batch, q_len, kv_len, d_model, n_heads, n_kv_heads, head_dim, v_head_dim, ... */
    {"one-number", 1, 1, 0, 1, 1, .biases = false},
    {"self", 2, 5, 0, 8, 2, .biases = true},
    {"self-no-bias", 2, 5, 0, 8, 2, .biases = false},
    {"self-512", 2, 4, 0, 512, 8, .biases = true, .keep = 6, .uniform = true},
    {"self-64", 1, 33, 0, 64, 4, .biases = true},
    {"self-66", 1, 21, 0, 66, 6, .biases = true},
    {"self-384-12-heads", 2, 11, 0, 384, 12, .biases = true, .lengths = LENGTHS(11, 7)},
    {"self-causal", 2, 37, 0, 48, 3, .causal = TOP_LEFT, .biases = true},
    {"self-97-rows", 1, 97, 0, 40, 2, .biases = true},
    {"self-200-rows", 1, 200, 0, 32, 1, .biases = false},
    {"self-128-by-256", 1, 128, 0, 256, 4, .biases = true, .causal = BOTTOM_RIGHT},
    {"many-slabs", 1, 19, 0, 1100, 2, 0, 6, .biases = true},
    {"batch-of-single-queries", 40, 1, 3, 24, 2, .biases = true},
    {"decode-1-row", 1, 1, 70, 256, 4, .biases = true},
    {"decode-2-rows", 2, 1, 70, 256, 4, .biases = true},
    {"cross", 3, 4, 7, 12, 3, 0, 0, 0, 10, 6, .biases = true},
    {"cross-k-dim", 2, 9, 20, 24, 4, 0, 0, 0, 130, 17, .biases = true},
    {"own-head-sizes", 2, 5, 6, 10, 2, 1, 7, 3, .biases = true},
    {"wide-values", 1, 13, 18, 20, 2, 0, 3, 33, .biases = false},
    {"wide-keys", 2, 14, 18, 20, 2, 0, 33, 3, .biases = false},
    {"grouped-heads", 2, 9, 5, 48, 6, 2, .biases = true},
    {"multi-query", 2, 15, 31, 40, 5, 1, .biases = true, .causal = BOTTOM_RIGHT},
    {"two-blocks-of-keys", 1, 10, 513, 16, 2, .biases = true},
    {"five-blocks-of-keys", 1, 7, 2100, 16, 2, .biases = true, .lengths = LENGTHS(2099)},
    {"layer-all-masks", 2, 17, 40, 32, 4, 2, .biases = true, .keep = 3, .bias = 3,
     .lengths = LENGTHS(40, 33), .causal = BOTTOM_RIGHT, .window = 25, .slope = 0.25f, .offset = 1},

    /* Bare attention has no d_model. */
    {"bare-one-number", 1, 1, 1, 0, 1, 0, 1, .bare = true},
    {"bare-16", 1, 16, 16, 0, 1, 0, 16, .bare = true},
    {"bare-15", 1, 15, 15, 0, 1, 0, 15, .bare = true},
    {"bare-17", 2, 17, 17, 0, 2, 0, 17, .bare = true},
    {"bare-33-by-49", 1, 33, 49, 0, 2, 0, 33, .bare = true},
    {"head-dim-64", 1, 40, 130, 0, 2, 0, 64, .bare = true},
    {"head-dim-72", 1, 14, 65, 0, 2, 0, 72, .bare = true},
    {"head-dim-80", 1, 14, 65, 0, 2, 0, 80, .bare = true},
    {"head-dim-96", 1, 14, 65, 0, 2, 0, 96, .bare = true},
    {"head-dim-128", 1, 29, 128, 0, 1, 0, 128, .bare = true},
    {"head-dim-256", 1, 6, 20, 0, 1, 0, 256, .bare = true},
    {"head-dim-2-values-200", 1, 11, 40, 0, 2, 0, 2, 200, .bare = true},
    {"keys-511", 1, 9, 511, 0, 1, 0, 8, .bare = true},
    {"keys-512", 1, 9, 512, 0, 1, 0, 8, .bare = true},
    {"keys-513", 1, 9, 513, 0, 1, 0, 8, .bare = true},
    {"keys-1024", 1, 13, 1024, 0, 1, 0, 8, .bare = true},
    {"keys-1030", 1, 100, 1030, 0, 1, 0, 4, .bare = true},
    {"keys-2100", 1, 3, 2100, 0, 2, 0, 20, .bare = true},
    {"one-query-2100-keys", 1, 1, 2100, 0, 2, 1, 32, .bare = true},
    {"rows-193", 1, 193, 30, 0, 1, 0, 12, .bare = true},
    {"rows-530", 1, 530, 17, 0, 1, 0, 3, .bare = true},
    {"bare-grouped", 2, 9, 35, 0, 6, 3, 8, 24, .bare = true},
    {"keep", 2, 30, 45, 0, 2, 0, 12, .bare = true, .keep = 8},
    {"keep-nearly-nothing", 2, 30, 45, 0, 2, 0, 12, .bare = true, .keep = 15},
    {"keep-two-blocks", 1, 20, 700, 0, 2, 0, 12, .bare = true, .keep = 9},
    {"keep-uniform", 2, 30, 45, 0, 2, 0, 12, .bare = true, .keep = 15, .uniform = true},
    {"keep-uniform-two-blocks", 1, 20, 700, 0, 2, 0, 12, .bare = true, .keep = 9, .uniform = true},
    {"bias", 2, 30, 45, 0, 2, 0, 12, .bare = true, .bias = 4},
    {"bias-two-blocks", 1, 20, 700, 0, 2, 0, 12, .bare = true, .bias = 9},
    {"keep-and-bias", 2, 30, 45, 0, 2, 0, 12, .bare = true, .keep = 4, .bias = 4},
    {"lengths", 4, 10, 40, 0, 2, 0, 8, .bare = true, .lengths = LENGTHS(40, 0, 1, 33)},
    {"lengths-uniform", 3, 10, 40, 0, 2, 0, 8, .bare = true, .lengths = LENGTHS(40, 0, 17),
     .uniform = true},
    {"lengths-blocks", 3, 5, 1100, 0, 1, 0, 8, .bare = true, .lengths = LENGTHS(1100, 512, 600)},
    {"top-left", 1, 50, 50, 0, 2, 0, 16, .bare = true, .causal = TOP_LEFT},
    {"top-left-more-keys", 1, 20, 50, 0, 2, 0, 16, .bare = true, .causal = TOP_LEFT},
    {"bottom-right", 1, 20, 50, 0, 2, 0, 16, .bare = true, .causal = BOTTOM_RIGHT},
    {"bottom-right-fewer-keys", 1, 50, 20, 0, 2, 0, 16, .bare = true, .causal = BOTTOM_RIGHT},
    {"bottom-right-lengths", 2, 20, 50, 0, 2, 0, 16, .bare = true, .causal = BOTTOM_RIGHT,
     .lengths = LENGTHS(50, 13)},
    {"causal-blocks", 1, 130, 1100, 0, 1, 0, 8, .bare = true, .causal = BOTTOM_RIGHT},
    {"window", 1, 60, 60, 0, 2, 0, 16, .bare = true, .window = 9},
    {"window-causal", 1, 90, 600, 0, 1, 0, 8, .bare = true, .window = 70, .causal = BOTTOM_RIGHT},
    {"window-offset", 1, 40, 600, 0, 1, 0, 8, .bare = true, .window = 30, .offset = 500},
    {"alibi", 1, 30, 50, 0, 4, 0, 16, .bare = true, .slope = 0.5f},
    {"alibi-steep-blocks", 1, 30, 1100, 0, 2, 0, 16, .bare = true, .slope = 8.0f,
     .causal = BOTTOM_RIGHT},
    {"alibi-bias", 1, 30, 50, 0, 4, 0, 16, .bare = true, .slope = 0.5f, .bias = 5},
    {"all-masks", 2, 40, 600, 0, 4, 2, 16, .bare = true, .keep = 4, .bias = 3,
     .lengths = LENGTHS(600, 590), .causal = BOTTOM_RIGHT, .window = 200, .slope = 0.125f,
     .offset = -3},

    /* Far from ordinary numbers. */
    {"logits-in-hundreds", 1, 30, 100, 0, 2, 0, 32, .bare = true, .exponent = 9},
    {"logits-in-thousands", 1, 30, 600, 0, 2, 0, 32, .bare = true, .exponent = 13},
    {"negative-scale", 1, 30, 100, 0, 2, 0, 32, .bare = true, .scale = -1.5f},
    {"scores-near-overflow", 1, 30, 100, 0, 2, 0, 32, .bare = true, .exponent = 119,
     .scale = 0x1p-118f},
    {"scores-subnormal", 1, 30, 100, 0, 2, 0, 32, .bare = true, .exponent = -140},
    {"values-not-finite", 1, 40, 60, 0, 2, 0, 9, .bare = true, .infinite = 4, .causal = TOP_LEFT},
    {"values-not-finite-keep", 1, 40, 600, 0, 1, 0, 9, .bare = true, .infinite = 3, .keep = 12},
    {"values-not-finite-lengths", 3, 9, 60, 0, 1, 0, 9, .bare = true, .infinite = 12,
     .lengths = LENGTHS(40, 3, 60)},
    {"layer-not-finite", 1, 30, 40, 24, 2, .infinite = 1, .biases = true, .causal = TOP_LEFT},
};
const size_t n_bits_cases = sizeof bits_cases / sizeof *bits_cases;

/* ---- Inputs ---------------------------------------------------------------- */

static struct generator tensor_generator(const struct bits_case *c, const char *tensor) {
    uint64_t hash = fnv1a(FNV_START, c->name, strlen(c->name));
    hash = fnv1a(hash, "/", 1);
    return (struct generator){fnv1a(hash, tensor, strlen(tensor))};
}

static void *own(struct bits_problem *p, size_t bytes) {
    void *memory = malloc(bytes + 1);
    require(memory && p->n_owned < sizeof p->owned / sizeof *p->owned, "no memory");
    p->owned[p->n_owned++] = memory;
    return memory;
}

static float *make_tensor(struct bits_problem *p, const struct bits_case *c, const char *tensor,
                          size_t count, float scale) {
    struct generator g = tensor_generator(c, tensor);
    float *data = own(p, count * sizeof *data);
    for (size_t i = 0; i < count; i++) {
        data[i] = next_float(&g) * scale;
    }
    return data;
}

/* A power of two near 1 / sqrt(inputs). */
static float weight_scale(size_t inputs) {
    float scale = 2.0f;
    for (size_t n = inputs; n > 1; n /= 4) {
        scale /= 2.0f;
    }
    return scale;
}

/* NaN and infinities among the values. */
static void make_infinite(const struct bits_case *c, float *values, size_t count) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, NAN};
    struct generator g = tensor_generator(c, "infinite");
    for (size_t i = 0; i < count; i++) {
        size_t random = next_below(&g, 4096);
        if (random / 4 < c->infinite) {
            values[i] = odd[random % 4];
        }
    }
}

/* To be called for each mask element in turn; whether it is masked. */
static bool masked_at(struct generator *g, unsigned masked, size_t j, bool *dead) {
    if (j == 0) {
        *dead = next_below(g, 8) == 0;
    }
    return next_below(g, 16) < masked || *dead;
}

static void make_mask(const struct bits_case *c, size_t kv_len, struct bits_problem *p) {
    size_t heads = c->n_heads * c->q_len * kv_len;
    bool dead = false;
    p->mask = (mha_mask){.kv_lengths = c->lengths,
                         .causal = c->causal,
                         .window_left = c->window,
                         .window_right = c->window,
                         .query_offset = c->offset};
    if (c->keep > 0) {
        struct generator g = tensor_generator(c, "keep");
        uint8_t *keep = own(p, c->batch * heads);
        for (size_t i = 0; i < c->batch * heads; i++) {
            keep[i] = !masked_at(&g, c->keep, i % kv_len, &dead);
        }
        p->mask.keep = keep;
        p->mask.keep_batch_stride = heads;
        p->mask.keep_head_stride = c->q_len * kv_len;
        p->mask.keep_query_stride = kv_len;
    }
    if (c->bias > 0) {
        struct generator g = tensor_generator(c, "bias");
        float *bias = own(p, heads * sizeof *bias);
        for (size_t i = 0; i < heads; i++) {
            bool masked = masked_at(&g, c->bias, i % kv_len, &dead);
            float value = next_float(&g) * 4.0f;
            bias[i] = masked ? -INFINITY : value;
        }
        p->mask.bias = bias;
        p->mask.bias_head_stride = c->q_len * kv_len;
        p->mask.bias_query_stride = kv_len;
    }
    if (c->slope != 0.0f) {
        float *slopes = own(p, c->n_heads * sizeof *slopes), slope = c->slope;
        for (size_t h = 0; h < c->n_heads; h++, slope *= 0.5f) {
            slopes[h] = slope;
        }
        p->mask.alibi_slopes = slopes;
    }
}

static size_t or_else(size_t size, size_t otherwise) {
    return size > 0 ? size : otherwise;
}

static void make_outputs(struct bits_problem *p, size_t outputs, size_t probabilities) {
    p->outputs = outputs;
    p->probability_count = probabilities;
    p->output = own(p, outputs * sizeof(float));
    p->probabilities = own(p, probabilities * sizeof(float));
    memset(p->output, 0xff, outputs * sizeof(float));
    memset(p->probabilities, 0xff, probabilities * sizeof(float));
}

static void make_attention(const struct bits_case *c, float query_scale, struct bits_problem *p) {
    size_t kv_heads = or_else(c->n_kv_heads, c->n_heads);
    size_t v_head_dim = or_else(c->v_head_dim, c->head_dim);
    size_t keys = c->batch * kv_heads * c->kv_len;
    make_outputs(p, c->batch * c->n_heads * c->q_len * v_head_dim,
                 c->batch * c->n_heads * c->q_len * c->kv_len);
    float *value = make_tensor(p, c, "value", keys * v_head_dim, 1.0f);
    make_infinite(c, value, keys * v_head_dim);
    p->attention = (mha_attention_args){
        .batch = c->batch,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .q_len = c->q_len,
        .kv_len = c->kv_len,
        .head_dim = c->head_dim,
        .v_head_dim = c->v_head_dim,
        .scale = c->scale,
        .masked_rows = c->uniform ? MHA_MASKED_ROWS_UNIFORM : MHA_MASKED_ROWS_ZERO,
        .query =
            make_tensor(p, c, "query", c->batch * c->n_heads * c->q_len * c->head_dim, query_scale),
        .key = make_tensor(p, c, "key", keys * c->head_dim, 4.0f),
        .value = value,
        .mask = &p->mask,
        .output = p->output,
        .attention = p->probabilities,
    };
}

static void make_forward(const struct bits_case *c, float query_scale, struct bits_problem *p) {
    size_t kv_heads = or_else(c->n_kv_heads, c->n_heads);
    size_t head_dim = or_else(c->head_dim, c->d_model / c->n_heads);
    size_t v_head_dim = or_else(c->v_head_dim, head_dim);
    size_t k_dim = or_else(c->k_dim, c->d_model), v_dim = or_else(c->v_dim, c->d_model);
    size_t q = c->n_heads * head_dim, k = kv_heads * head_dim;
    size_t v = kv_heads * v_head_dim, o = c->n_heads * v_head_dim;
    p->config = (mha_config){
        .d_model = c->d_model,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .v_head_dim = c->v_head_dim,
        .k_dim = c->k_dim,
        .v_dim = c->v_dim,
        .scale = c->scale,
        .masked_rows = c->uniform ? MHA_MASKED_ROWS_UNIFORM : MHA_MASKED_ROWS_ZERO,
    };
    p->weights = (mha_weights){
        .q = make_tensor(p, c, "q", q * c->d_model, 4.0f * weight_scale(c->d_model)),
        .k = make_tensor(p, c, "k", k * k_dim, weight_scale(k_dim)),
        .v = make_tensor(p, c, "v", v * v_dim, weight_scale(v_dim)),
        .o = make_tensor(p, c, "o", c->d_model * o, weight_scale(o)),
        .q_bias = c->biases ? make_tensor(p, c, "q_bias", q, 1.0f) : NULL,
        .k_bias = c->biases ? make_tensor(p, c, "k_bias", k, 1.0f) : NULL,
        .v_bias = c->biases ? make_tensor(p, c, "v_bias", v, 1.0f) : NULL,
        .o_bias = c->biases ? make_tensor(p, c, "o_bias", c->d_model, 1.0f) : NULL,
    };
    size_t keys = c->batch * c->kv_len;
    float *value = keys ? make_tensor(p, c, "value", keys * v_dim, 1.0f) : NULL;
    make_infinite(c, value, keys * v_dim);
    make_outputs(p, c->batch * c->q_len * c->d_model,
                 c->batch * c->n_heads * c->q_len * or_else(c->kv_len, c->q_len));
    p->forward = (mha_forward_args){
        .batch = c->batch,
        .q_len = c->q_len,
        .kv_len = c->kv_len,
        .query = make_tensor(p, c, "query", c->batch * c->q_len * c->d_model, query_scale),
        .key = keys ? make_tensor(p, c, "key", keys * k_dim, 1.0f) : NULL,
        .value = value,
        .mask = &p->mask,
        .output = p->output,
        .attention = p->probabilities,
    };
}

void make_bits_problem(const struct bits_case *c, struct bits_problem *p) {
    memset(p, 0, sizeof *p);
    make_mask(c, or_else(c->kv_len, c->q_len), p);
    float query_scale = ldexpf(1.0f, c->exponent);
    if (c->bare) {
        make_attention(c, query_scale, p);
    } else {
        make_forward(c, query_scale, p);
    }
}

void free_bits_problem(struct bits_problem *p) {
    for (size_t i = 0; i < p->n_owned; i++) {
        free(p->owned[i]);
    }
}

uint64_t hash_floats(const float *data, size_t count) {
    uint64_t hash = FNV_START;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        bits = isnan(data[i]) ? 0x7fc00000u : bits;
        unsigned char bytes[4] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                                  (unsigned char)(bits >> 16), (unsigned char)(bits >> 24)};
        hash = fnv1a(hash, bytes, sizeof bytes);
    }
    return hash;
}
