/* SPDX-License-Identifier: MIT
 *
 * The cases of mha check. To add one, add a row. The random cases after the table reach further
 * combinations. No function of libm is called, because the inputs must not depend on it.
 */
#include "check_cases.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "failure.h"

#define N_RANDOM ((size_t)160)
#define N_RANDOM_QUICK ((size_t)10)

#define BOTTOM_RIGHT MHA_CAUSAL_BOTTOM_RIGHT
#define TOP_LEFT MHA_CAUSAL_TOP_LEFT
#define UNIFORM MHA_MASKED_ROWS_UNIFORM

/* Self-attention: batch, length, then d_model, heads. */
#define SELF(b, n, d, h)                                                                           \
    .batch = (b), .q_len = (n), .kv_len = (n), .config = {.d_model = (d), .n_heads = (h)}
/* Cross-attention: batch, queries, keys, then the configuration. */
#define CROSS(b, n, m, ...)                                                                        \
    .cross = true, .batch = (b), .q_len = (n), .kv_len = (m), .config = {__VA_ARGS__}

static const struct check_case directed[] = {
    {"the smallest layer", SELF(1, 1, 1, 1)},
    {"one query", SELF(1, 1, 64, 4)},
    {"no query", SELF(2, 0, 8, 2)},
    {"no key", CROSS(2, 3, 0, .d_model = 8, .n_heads = 2)},
    {"program a: 512 wide, 8 heads", SELF(2, 4, 512, 8), .keep = true},
    {"program b: 8 wide, 2 heads", SELF(2, 5, 8, 2), .no_biases = true},
    {"program c: 66 wide, 6 heads", SELF(2, 10, 66, 6)},
    {"MiniLM: 384 wide, 12 heads", SELF(1, 33, 384, 12), .lengths = true},
    {"tile edges", SELF(3, 13, 51, 3)},
    {"one head of 33", SELF(1, 17, 33, 1)},
    {"heads of 72", SELF(1, 19, 144, 2)},
    {"heads of 96", SELF(1, 21, 192, 2)},
    {"heads of 256", SELF(1, 9, 512, 2)},
    {"a head of 1", SELF(1, 40, 5, 5)},
    {"grouped heads", SELF(2, 24, 64, 8), .config.n_kv_heads = 2},
    {"one key/value head", SELF(2, 24, 64, 8), .config.n_kv_heads = 1},
    {"values wider than keys",
     CROSS(2, 7, 11, .d_model = 40, .n_heads = 4, .head_dim = 12, .v_head_dim = 37)},
    {"inputs of three widths",
     CROSS(2, 9, 14, .d_model = 24, .n_heads = 3, .k_dim = 17, .v_dim = 50)},
    {"scale 1", SELF(1, 16, 32, 2), .config.scale = 1.0f},
    {"causal", SELF(2, 70, 48, 3), .causal = BOTTOM_RIGHT},
    {"causal, more keys than queries, bottom-right", CROSS(2, 6, 21, .d_model = 32, .n_heads = 2),
     .causal = BOTTOM_RIGHT},
    {"causal, more keys than queries, top-left", CROSS(2, 6, 21, .d_model = 32, .n_heads = 2),
     .causal = TOP_LEFT},
    {"causal, fewer keys than queries: rows without a key",
     CROSS(2, 21, 6, .d_model = 32, .n_heads = 2), .causal = BOTTOM_RIGHT},
    {"the same, uniform", CROSS(2, 21, 6, .d_model = 32, .n_heads = 2, .masked_rows = UNIFORM),
     .causal = BOTTOM_RIGHT},
    {"window", SELF(1, 90, 32, 2), .window = 7},
    {"causal window with ALiBi", SELF(1, 90, 32, 4), .causal = BOTTOM_RIGHT, .window = 30,
     .alibi = true},
    {"queries far ahead", CROSS(1, 5, 40, .d_model = 32, .n_heads = 2), .window = 9,
     .query_offset = 30},
    {"lengths", SELF(4, 37, 32, 2), .lengths = true},
    {"lengths, causal", SELF(4, 37, 32, 2), .lengths = true, .causal = BOTTOM_RIGHT},
    {"keep mask", SELF(3, 35, 48, 3), .keep = true},
    {"keep mask, uniform", SELF(3, 35, 48, 3), .keep = true, .config.masked_rows = UNIFORM},
    {"additive mask", SELF(3, 35, 48, 3), .bias = true},
    {"everything at once", SELF(3, 50, 48, 4), .keep = true, .bias = true, .lengths = true,
     .alibi = true, .causal = BOTTOM_RIGHT, .window = 40, .config.n_kv_heads = 2},
    {"512 keys", CROSS(1, 3, 512, .d_model = 16, .n_heads = 1)},
    {"513 keys", CROSS(1, 3, 513, .d_model = 16, .n_heads = 1)},
    {"2100 keys", CROSS(1, 13, 2100, .d_model = 64, .n_heads = 2)},
    {"2100 keys, causal, lengths", CROSS(2, 90, 2100, .d_model = 32, .n_heads = 1),
     .causal = BOTTOM_RIGHT, .lengths = true},
    {"blocks wholly masked", CROSS(2, 9, 1600, .d_model = 32, .n_heads = 2), .keep = true,
     .bias = true},
    {"scores in the thousands", SELF(2, 60, 64, 4), .values = VALUES_PEAKED},
    {"scores in the thousands, 1100 keys", CROSS(1, 12, 1100, .d_model = 64, .n_heads = 2),
     .values = VALUES_PEAKED},
    {"huge values", SELF(2, 30, 48, 3), .values = VALUES_HUGE},
    {"subnormal values", SELF(2, 9, 48, 3), .values = VALUES_TINY},
    {"values of all sizes", SELF(2, 20, 48, 3), .values = VALUES_MIXED},
    {"NaN and infinity", SELF(2, 60, 48, 3), .values = VALUES_SPECIAL},
    {"NaN and infinity, masked", SELF(2, 60, 48, 3), .values = VALUES_SPECIAL, .keep = true,
     .lengths = true},
    {"NaN and infinity, 1100 keys", CROSS(1, 20, 1100, .d_model = 16, .n_heads = 1),
     .values = VALUES_SPECIAL, .window = 300},
};
#define N_DIRECTED (sizeof directed / sizeof directed[0])

/* ---- The generator -------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014): any seed gives a good sequence. */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n) {
    return (size_t)(next(state) % n);
}

static bool one_in(uint64_t *state, size_t n) {
    return below(state, n) == 0;
}

/* In [-1, 1): a multiple of 2^-23, the same float everywhere. */
static float ordinary(uint64_t *state) {
    return (float)((int32_t)(next(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

static float value(uint64_t *state, enum check_values kind) {
    static const float special[] = {0.0f,    -0.0f,    1.0f,    -1.0f,
                                    FLT_MAX, -FLT_MAX, FLT_MIN, 0x1p-149f};
    float x = ordinary(state);
    switch (kind) {
    case VALUES_PEAKED:
        return x * 0x1p6f;
    case VALUES_HUGE:
        return x * 0x1p70f;
    case VALUES_TINY:
        return x * 0x1p-127f;
    case VALUES_MIXED:
        switch (below(state, 6)) {
        case 0:
            return special[below(state, sizeof special / sizeof special[0])] * 0x1p-8f;
        case 1:
            return x * 0x1p12f;
        case 2:
            return x * 0x1p-127f;
        default:
            return x;
        }
    case VALUES_SPECIAL:
        switch (below(state, 3000)) {
        case 0:
            return NAN;
        case 1:
            return INFINITY;
        case 2:
            return -INFINITY;
        default:
            return x;
        }
    default:
        return x;
    }
}

/* ---- Making a problem ----------------------------------------------------- */

struct maker {
    struct problem *problem;
    const struct check_case *check;
    uint64_t state;
    bool good;
};

/* Zeroed memory that the problem owns, of at least one element. */
static void *own(struct maker *m, size_t count, size_t size) {
    void *memory = calloc(count + 1, size);
    if (memory == NULL) {
        m->good = failure_memory();
    } else {
        m->problem->owned[m->problem->n_owned++] = memory;
    }
    return memory;
}

static float *floats(struct maker *m, size_t count, float scale, enum check_values kind) {
    float *out = own(m, count, sizeof *out);
    for (size_t i = 0; out != NULL && i < count; i++) {
        out[i] = value(&m->state, kind) * scale;
    }
    return out;
}

/* A power of two near 1 / sqrt(width), which keeps outputs of the inputs' size. */
static float weight_scale(size_t width) {
    float scale = 1.0f;
    for (size_t w = width; w >= 4; w /= 4) {
        scale *= 0.5f;
    }
    return scale;
}

static void make_layer(struct maker *m) {
    struct problem *p = m->problem;
    const mha_config c = m->check->config;
    size_t kv_heads = c.n_kv_heads != 0 ? c.n_kv_heads : c.n_heads;
    size_t head_dim = c.head_dim != 0 ? c.head_dim : c.d_model / c.n_heads;
    size_t v_head_dim = c.v_head_dim != 0 ? c.v_head_dim : head_dim;
    size_t k_dim = c.k_dim != 0 ? c.k_dim : c.d_model;
    size_t v_dim = c.v_dim != 0 ? c.v_dim : c.d_model;
    size_t rows[4] = {c.n_heads * head_dim, kv_heads * head_dim, kv_heads * v_head_dim, c.d_model};
    size_t columns[4] = {c.d_model, k_dim, v_dim, c.n_heads * v_head_dim};
    enum check_values kind = m->check->values == VALUES_MIXED ? VALUES_MIXED : VALUES_ORDINARY;
    float *weight[4] = {NULL}, *bias[4] = {NULL};
    for (size_t i = 0; i < 4 && m->good; i++) {
        weight[i] = floats(m, rows[i] * columns[i], weight_scale(columns[i]), kind);
        if (m->good && !m->check->no_biases) {
            bias[i] = floats(m, rows[i], 0.25f, VALUES_ORDINARY);
        }
    }
    const mha_weights weights = {.q = weight[0],
                                 .k = weight[1],
                                 .v = weight[2],
                                 .o = weight[3],
                                 .q_bias = bias[0],
                                 .k_bias = bias[1],
                                 .v_bias = bias[2],
                                 .o_bias = bias[3]};
    if (m->good && mha_layer_create(&c, &weights, &p->layer) != MHA_OK) {
        m->good = failure("%s", mha_error_message());
    }
    p->config = c;
    p->config.n_kv_heads = kv_heads;
    p->config.head_dim = head_dim;
    p->config.v_head_dim = v_head_dim;
    p->config.k_dim = k_dim;
    p->config.v_dim = v_dim;
}

static void make_inputs(struct maker *m) {
    struct problem *p = m->problem;
    const struct check_case *check = m->check;
    p->args = (mha_forward_args){
        .batch = check->batch, .q_len = check->q_len, .kv_len = check->kv_len, .mask = &p->mask};
    p->args.query = floats(m, check->batch * check->q_len * p->config.d_model, 1, check->values);
    if (m->good && check->cross) {
        size_t rows = check->batch * check->kv_len;
        p->args.key = floats(m, rows * p->config.k_dim, 1, check->values);
        p->args.value = floats(m, rows * p->config.v_dim, 1, check->values);
    }
    p->output_count = check->batch * check->q_len * p->config.d_model;
    p->attention_count = check->batch * p->config.n_heads * check->q_len * check->kv_len;
}

/* The kinds of rows in a mask; each row's kind is drawn at random. */
enum row_kind { ROW_MASKED, ROW_OPEN, ROW_LATE, ROW_MOTTLED, ROW_KINDS = 8 };

static bool masked(uint64_t *state, size_t row_kind, size_t key) {
    return row_kind == ROW_MASKED || (row_kind == ROW_LATE && key < 512) ||
           (row_kind >= ROW_MOTTLED && one_in(state, 4));
}

/* Strides of a mask of full shape, of (q_len, kv_len) or of (batch, 1, 1, kv_len); returns the
 * number of its rows. */
static size_t mask_strides(struct maker *m, size_t *batch, size_t *head, size_t *query) {
    const struct check_case *check = m->check;
    size_t keys = check->kv_len, heads = check->config.n_heads;
    *batch = *head = *query = 0;
    switch (below(&m->state, 3)) {
    case 0:
        *query = keys;
        *head = *query * check->q_len;
        *batch = *head * heads;
        return check->batch * heads * check->q_len;
    case 1:
        *query = keys;
        return check->q_len;
    default:
        *batch = keys;
        return check->batch;
    }
}

static void make_masks(struct maker *m) {
    struct problem *p = m->problem;
    const struct check_case *check = m->check;
    size_t keys = check->kv_len;
    p->mask = (mha_mask){.causal = check->causal,
                         .window_left = check->window,
                         .window_right = check->window,
                         .query_offset = check->query_offset};
    if (check->keep) {
        size_t rows = mask_strides(m, &p->mask.keep_batch_stride, &p->mask.keep_head_stride,
                                   &p->mask.keep_query_stride);
        uint8_t *keep = own(m, rows * keys, 1);
        for (size_t i = 0, kind = 0; keep != NULL && i < rows * keys; i++) {
            kind = i % keys == 0 ? below(&m->state, ROW_KINDS) : kind;
            keep[i] = masked(&m->state, kind, i % keys) ? 0 : (uint8_t)(1 + below(&m->state, 255));
        }
        p->mask.keep = keep;
    }
    if (check->bias && m->good) {
        size_t rows = mask_strides(m, &p->mask.bias_batch_stride, &p->mask.bias_head_stride,
                                   &p->mask.bias_query_stride);
        float *bias = own(m, rows * keys, sizeof *bias);
        for (size_t i = 0, kind = 0; bias != NULL && i < rows * keys; i++) {
            kind = i % keys == 0 ? below(&m->state, ROW_KINDS) : kind;
            bias[i] = masked(&m->state, kind, i % keys) ? (kind % 2 == 0 ? -INFINITY : -1e9f)
                                                        : ordinary(&m->state) * 4.0f;
        }
        p->mask.bias = bias;
    }
    if (check->lengths && m->good) {
        size_t *lengths = own(m, check->batch, sizeof *lengths);
        for (size_t i = 0; lengths != NULL && i < check->batch; i++) {
            lengths[i] = i == 1 ? 0 : below(&m->state, keys + 1);
        }
        p->mask.kv_lengths = lengths;
    }
    if (check->alibi && m->good) {
        p->mask.alibi_slopes = floats(m, check->config.n_heads, 0.5f, VALUES_ORDINARY);
    }
}

bool problem_create(const struct check_case *check, size_t index, uint64_t seed,
                    struct problem *problem) {
    *problem = (struct problem){0};
    struct maker maker = {problem, check, seed + UINT64_C(0x100000001) * index, true};
    make_layer(&maker);
    if (maker.good) {
        make_inputs(&maker);
    }
    if (maker.good) {
        make_masks(&maker);
    }
    if (!maker.good) {
        problem_destroy(problem);
    }
    return maker.good;
}

void problem_destroy(struct problem *problem) {
    for (size_t i = 0; i < problem->n_owned; i++) {
        free(problem->owned[i]);
    }
    mha_layer_destroy(&problem->layer);
    *problem = (struct problem){0};
}

/* ---- The list ------------------------------------------------------------- */

static struct check_case random_case(uint64_t state) {
    uint64_t *s = &state;
    size_t kv_heads = 1 + below(s, 3), heads = kv_heads * (1 + below(s, 3));
    struct check_case check = {.name = "random"};
    check.config = (mha_config){.d_model = 1 + below(s, 70),
                                .n_heads = heads,
                                .n_kv_heads = kv_heads,
                                .head_dim = 1 + below(s, 70),
                                .v_head_dim = 1 + below(s, 70)};
    check.batch = 1 + below(s, 3);
    check.q_len = 1 + below(s, 40);
    check.kv_len = check.q_len;
    if (!one_in(s, 3)) {
        check.cross = true;
        check.kv_len = one_in(s, 6) ? 480 + below(s, 600) : 1 + below(s, 100);
        check.config.k_dim = 1 + below(s, 70);
        check.config.v_dim = 1 + below(s, 70);
    }
    check.config.masked_rows = one_in(s, 2) ? UNIFORM : MHA_MASKED_ROWS_ZERO;
    check.no_biases = one_in(s, 3);
    check.keep = one_in(s, 3);
    check.bias = one_in(s, 3);
    check.lengths = one_in(s, 3);
    check.alibi = one_in(s, 4);
    check.causal = (mha_causal)below(s, 3);
    check.window = one_in(s, 4) ? 1 + below(s, check.kv_len) : 0;
    check.query_offset = one_in(s, 4) ? (int64_t)below(s, 21) - 10 : 0;
    check.values = one_in(s, 3) ? (enum check_values)below(s, 6) : VALUES_ORDINARY;
    return check;
}

size_t check_case_count(bool quick) {
    return N_DIRECTED + (quick ? N_RANDOM_QUICK : N_RANDOM);
}

struct check_case check_case_at(size_t index, uint64_t seed) {
    return index < N_DIRECTED ? directed[index] : random_case(seed ^ UINT64_C(0xc0ffee) * index);
}

void problem_describe(const struct problem *problem, char *out, size_t capacity) {
    const mha_config *c = &problem->config;
    const mha_forward_args *a = &problem->args;
    snprintf(out, capacity,
             "batch %zu, q_len %zu, kv_len %zu, d_model %zu, %zu heads of %zu and %zu, "
             "%zu key/value heads",
             a->batch, a->q_len, a->kv_len, c->d_model, c->n_heads, c->head_dim, c->v_head_dim,
             c->n_kv_heads);
}
