/* SPDX-License-Identifier: MIT
 *
 * mha_forward: check, project, attend, project. No ISA in here, and no arithmetic: that is the
 * kernels'. Memory is linear in batch * (q_len + kv_len).
 */
#include <string.h>

#include "arguments.h"
#include "attention.h"
#include "context.h"
#include "error.h"
#include "fpenv.h"
#include "gemm.h"
#include "layer.h"
#include "workspace.h"

/* ---- Workspace of a forward ---------------------------------------------- */

struct forward {
    const struct mha_kernels *kernels;
    const struct mha_layer *layer;
    size_t batch, q_len, kv_len;
    size_t kv_panels; /* most panels of keys of one sequence */
    float *query;     /* [n_heads][batch * q_len][padded head_dim] */
    float *keys;      /* [n_kv_heads][batch][kv_panels][head_dim][16] */
    float *values;    /* [n_kv_heads][batch * kv_len][padded v_head_dim] */
    float *concat;    /* [batch * q_len][n_heads * v_head_dim] */
    float *rows;      /* [block_rows][widest input]: input rows of a block, together */
    float *key_rows;  /* [n_kv_heads][block_rows][padded head_dim]: keys before packing */
    struct mha_attend_scratch attend;
};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool place_forward(struct mha_arena *arena, struct forward *f, bool weights) {
    const mha_config *c = &f->layer->config;
    size_t head = mha_padded(c->head_dim), v_head = mha_padded(c->v_head_dim);
    size_t block = f->kernels->block_rows;
    size_t query, keys, values, concat, rows, key_rows;
    size_t widest =
        larger(larger(c->d_model, c->n_heads * c->v_head_dim), larger(c->k_dim, c->v_dim));
    f->kv_panels = mha_divide_up(f->kv_len, MHA_PANEL);
    if (!MHA_PRODUCT(&query, c->n_heads, f->batch, f->q_len, head) ||
        !MHA_PRODUCT(&keys, c->n_kv_heads, f->batch, f->kv_panels, c->head_dim, MHA_PANEL) ||
        !MHA_PRODUCT(&values, c->n_kv_heads, f->batch, f->kv_len, v_head) ||
        !MHA_PRODUCT(&concat, f->batch, f->q_len, c->n_heads, c->v_head_dim) ||
        !MHA_PRODUCT(&rows, block, widest) || !MHA_PRODUCT(&key_rows, c->n_kv_heads, block, head)) {
        return false;
    }
    f->query = mha_arena_take(arena, query, sizeof(float));
    f->keys = mha_arena_take(arena, keys, sizeof(float));
    f->values = mha_arena_take(arena, values, sizeof(float));
    f->concat = mha_arena_take(arena, concat, sizeof(float));
    f->rows = mha_arena_take(arena, rows, sizeof(float));
    f->key_rows = mha_arena_take(arena, key_rows, sizeof(float));
    mha_attend_place(arena, f->kernels, v_head, f->kv_len, weights, &f->attend);
    return !arena->overflow;
}

/* Sizes the workspace, grows the context's if it must, and sets f's pointers into it. */
static mha_status reserve(struct mha_context *context, struct forward *f, bool weights) {
    struct mha_arena arena = {0};
    if (!place_forward(&arena, f, weights)) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "the workspace for batch %zu, q_len %zu, kv_len %zu is larger than memory "
                        "can be",
                        f->batch, f->q_len, f->kv_len);
    }
    mha_status status = mha_context_grow(context, arena.used);
    if (status == MHA_OK) {
        arena = (struct mha_arena){.base = context->memory};
        place_forward(&arena, f, weights);
    }
    return status;
}

mha_status mha_reserve(mha_context *context, const mha_layer *layer, size_t batch, size_t q_len,
                       size_t kv_len) {
    if (!context || !layer) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", context ? "layer" : "context");
    }
    struct forward f = {.kernels = context->kernels,
                        .layer = layer,
                        .batch = batch,
                        .q_len = q_len,
                        .kv_len = kv_len};
    return reserve(context, &f, true);
}

/* ---- Keys and values ----------------------------------------------------- */

/* Rows of one sequence that go through the projection together. */
struct segment {
    size_t sequence, first, count;
};

/* A block of rows from one or more sequences. */
struct block {
    struct segment segments[MHA_MAX_BLOCK_ROWS];
    const float *inputs[MHA_MAX_BLOCK_ROWS]; /* of each row */
    size_t n_segments, n_rows;
};

/* The next block of rows after *at, which it moves on. Only keys within the lengths are
 * taken, and a sequence is cut at whole panels only. */
static void fill_block(const struct forward *f, const mha_mask *mask, struct segment *at,
                       struct block *block) {
    block->n_segments = 0;
    block->n_rows = 0;
    while (at->sequence < f->batch) {
        size_t length = mask && mask->kv_lengths ? mask->kv_lengths[at->sequence] : f->kv_len;
        size_t left = length - at->first;
        size_t room = f->kernels->block_rows - block->n_rows;
        size_t count = left <= room ? left : room / MHA_PANEL * MHA_PANEL;
        if (left > 0 && count == 0) {
            return;
        }
        if (count > 0) {
            block->segments[block->n_segments++] = (struct segment){at->sequence, at->first, count};
            block->n_rows += count;
        }
        at->first += count;
        if (at->first == length) {
            *at = (struct segment){.sequence = at->sequence + 1};
        }
    }
}

static void point_at_inputs(const struct forward *f, const float *input, size_t width,
                            struct block *block) {
    size_t n = 0;
    for (size_t i = 0; i < block->n_segments; i++) {
        const struct segment *s = &block->segments[i];
        for (size_t r = 0; r < s->count; r++) {
            block->inputs[n++] = input + (s->sequence * f->kv_len + s->first + r) * width;
        }
    }
}

static void project_keys(const struct forward *f, const float *input, struct block *block) {
    const struct mha_linear *k = &f->layer->k;
    size_t head_dim = f->layer->config.head_dim;
    size_t head_rows = f->kernels->block_rows * k->width;
    point_at_inputs(f, input, k->depth, block);
    mha_linear_rows(f->kernels, k, block->n_rows, block->inputs, f->rows, f->key_rows, k->width,
                    head_rows);
    size_t row = 0;
    for (size_t i = 0; i < block->n_segments; i++) {
        const struct segment *s = &block->segments[i];
        for (size_t h = 0; h < k->groups; h++) {
            size_t panel = (h * f->batch + s->sequence) * f->kv_panels + s->first / MHA_PANEL;
            f->kernels->transpose(s->count, head_dim, f->key_rows + h * head_rows + row * k->width,
                                  k->width, f->keys + panel * head_dim * MHA_PANEL);
        }
        row += s->count;
    }
}

static void project_values(const struct forward *f, const float *input, struct block *block) {
    const struct mha_linear *v = &f->layer->v;
    point_at_inputs(f, input, v->depth, block);
    size_t row = 0;
    for (size_t i = 0; i < block->n_segments; i++) {
        const struct segment *s = &block->segments[i];
        /* Neighbours of full length stand together, so a run of them is one call. */
        size_t n = s->count;
        for (const struct segment *last = s; i + 1 < block->n_segments; last++, i++) {
            if (last->first + last->count < f->kv_len || last[1].sequence > last->sequence + 1) {
                break;
            }
            n += last[1].count;
        }
        mha_linear_rows(f->kernels, v, n, block->inputs + row, f->rows,
                        f->values + (s->sequence * f->kv_len + s->first) * v->width, v->width,
                        f->batch * f->kv_len * v->width);
        row += n;
    }
}

/* ---- The forward --------------------------------------------------------- */

/* What the next head reads that this one doesn't: the heads of a sequence one after the other,
 * then those of the next. */
static void note_next(const struct forward *f, size_t b, size_t h, struct mha_attend *attend) {
    const mha_config *c = &f->layer->config;
    if (++h == c->n_heads) {
        h = 0;
        b++;
    }
    if (b == f->batch) {
        return;
    }
    size_t group = c->n_heads / c->n_kv_heads;
    if (h % group == 0) {
        size_t row = h / group * f->batch + b;
        size_t keys = f->kv_panels * c->head_dim * MHA_PANEL;
        size_t values = f->kv_len * f->layer->v.width;
        attend->next[0] = (struct mha_region){f->keys + row * keys, keys};
        attend->next[1] = (struct mha_region){f->values + row * values, values};
    }
    size_t queries = f->q_len * f->layer->q.width;
    attend->next[2] = (struct mha_region){f->query + (h * f->batch + b) * queries, queries};
}

static void attend_heads(const struct forward *f, const mha_forward_args *args) {
    const mha_config *c = &f->layer->config;
    const struct mha_mask_shape shape = {f->batch, c->n_heads, f->q_len, f->kv_len};
    size_t queries = f->batch * f->q_len;
    size_t group = c->n_heads / c->n_kv_heads;
    size_t q_width = f->layer->q.width, v_width = f->layer->v.width;
    for (size_t b = 0; b < f->batch; b++) {
        for (size_t h = 0; h < c->n_heads; h++) {
            size_t kv_head = h / group;
            struct mha_attend attend = {
                .kernels = f->kernels,
                .scratch = &f->attend,
                .q_len = f->q_len,
                .head_dim = c->head_dim,
                .v_head_dim = c->v_head_dim,
                .scale = c->scale,
                .uniform = c->masked_rows == MHA_MASKED_ROWS_UNIFORM,
                .mask = mha_mask_at(args->mask, &shape, b, h),
                .query = f->query + (h * queries + b * f->q_len) * q_width,
                .query_stride = q_width,
                .keys = f->keys + (kv_head * f->batch + b) * f->kv_panels * c->head_dim * MHA_PANEL,
                .values = f->values + (kv_head * f->batch + b) * f->kv_len * v_width,
                .value_stride = v_width,
                .output = f->concat + (b * f->q_len * c->n_heads + h) * c->v_head_dim,
                .output_stride = c->n_heads * c->v_head_dim,
                .attention_stride = f->kv_len,
            };
            if (args->attention) {
                attend.attention = args->attention + (b * c->n_heads + h) * f->q_len * f->kv_len;
            }
            note_next(f, b, h, &attend);
            mha_attend(&attend);
        }
    }
}

static void compute_forward(const struct forward *f, const mha_forward_args *args) {
    const struct mha_layer *layer = f->layer;
    size_t queries = f->batch * f->q_len;
    mha_linear_matrix(f->kernels, &layer->q, queries, args->query, layer->q.depth, f->rows,
                      f->query, layer->q.width, queries * layer->q.width);
    struct segment at = {0};
    while (at.sequence < f->batch) {
        struct block block;
        fill_block(f, args->mask, &at, &block);
        if (block.n_rows > 0) {
            project_keys(f, args->key, &block);
            project_values(f, args->value, &block);
        }
    }
    attend_heads(f, args);
    mha_linear_matrix(f->kernels, &layer->o, queries, f->concat, layer->o.depth, f->rows,
                      args->output, layer->o.width, layer->o.width);
}

mha_status mha_forward(mha_context *context, const mha_layer *layer, const mha_forward_args *args) {
    if (!context || !layer || !args) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL",
                        !context ? "context"
                        : !layer ? "layer"
                                 : "args");
    }
    mha_forward_args checked = *args;
    mha_status status = mha_check_forward(&layer->config, &checked);
    if (status != MHA_OK || checked.batch == 0 || checked.q_len == 0) {
        return status;
    }
    struct forward f = {.kernels = context->kernels,
                        .layer = layer,
                        .batch = checked.batch,
                        .q_len = checked.q_len,
                        .kv_len = checked.kv_len};
    status = reserve(context, &f, checked.attention != NULL);
    if (status == MHA_OK) {
        mha_fpenv saved = mha_fpenv_enter();
        compute_forward(&f, &checked);
        mha_fpenv_leave(saved);
    }
    return status;
}
