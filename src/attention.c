/* SPDX-License-Identifier: MIT
 *
 * Streaming attention: tiles of queries against blocks of keys, each block a softmax of its
 * own that is merged into the rows' running state (Milakov and Gimelshein 2018; Dao et al.
 * 2022, with blocks at fixed places so that the result doesn't depend on the tiling). Memory
 * is constant in q_len. No ISA in here.
 */
#include "attention.h"

#include <math.h>
#include <string.h>

#include "gemm.h"
#include "layer.h"

void mha_attend_place(struct mha_arena *arena, const struct mha_kernels *kernels, size_t width,
                      size_t kv_len, bool weights, struct mha_attend_scratch *s) {
    size_t rows = kernels->block_rows;
    size_t tile = kernels->gemm_rows;
    size_t blocks = mha_divide_up(kv_len, MHA_KEY_BLOCK);
    s->scores = mha_arena_take(arena, tile, MHA_KEY_BLOCK * sizeof(float));
    s->term = mha_arena_take(arena, tile, MHA_KEY_BLOCK * sizeof(float));
    s->max = mha_arena_take(arena, rows, sizeof(float));
    s->sum = mha_arena_take(arena, rows, sizeof(float));
    s->out = mha_arena_take(arena, width, rows * sizeof(float));
    s->block_max = mha_arena_take(arena, tile, sizeof(float));
    s->block_sum = mha_arena_take(arena, tile, sizeof(float));
    s->block_out = mha_arena_take(arena, width, tile * sizeof(float));
    s->max_history = mha_arena_take(arena, weights ? blocks : 0, rows * sizeof(float));
}

/* Some rows of a query tile: queries first .. first + rows - 1, of which row 0 is row
 * tile_row of the running state. */
struct rows {
    size_t first, count, tile_row;
    bool uniform; /* average all keys: no scores, no mask */
};

/* The keys that the rows may attend to within low .. high - 1, all rows together: no row's
 * range begins or ends before an earlier row's. Empty: begin >= end. */
static void rows_range(const struct mha_attend *a, const struct rows *rows, size_t low, size_t high,
                       size_t *begin, size_t *end) {
    *begin = 0;
    *end = a->mask.kv_length;
    if (!rows->uniform) {
        mha_mask_range(&a->mask, rows->first, rows->count, begin, end);
    }
    *begin = *begin > low ? *begin : low;
    *end = mha_min(*end, high);
}

/* What the rows attend to among keys first .. first + keys - 1. */
static void describe_rows(const struct mha_attend *a, const struct rows *rows, size_t first,
                          size_t keys, struct mha_softmax_row *mask) {
    const struct mha_mask_view *view = &a->mask;
    bool same_range = !view->causal && view->window == 0;
    size_t begin = 0, end = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const struct rows row = {.first = rows->first + i, .count = 1, .uniform = rows->uniform};
        size_t query = row.first;
        if (i == 0 || !same_range) {
            rows_range(a, &row, first, first + keys, &begin, &end);
            begin = mha_min(begin - first, keys);
            end = end > first ? end - first : 0;
        }
        mask[i] = (struct mha_softmax_row){.begin = begin, .end = end > begin ? end : begin};
        if (rows->uniform) {
            continue;
        }
        if (view->keep) {
            mask[i].keep = view->keep + query * view->keep_stride + first;
        }
        if (view->alibi) {
            float *term = a->scratch->term + i * MHA_KEY_BLOCK;
            mha_mask_term(view, query, first + begin, first + mask[i].end, term + begin);
            mask[i].bias = term;
        } else if (view->bias) {
            mask[i].bias = view->bias + query * view->bias_stride + first;
        }
    }
}

static void score(const struct mha_attend *a, const struct rows *rows, size_t first, size_t keys) {
    float *scores = a->scratch->scores;
    if (rows->uniform) {
        memset(scores, 0, keys * sizeof *scores); /* such rows come one at a time */
        return;
    }
    a->kernels->gemm(&(struct mha_gemm){
        .rows = rows->count,
        .columns = keys,
        .depth = a->head_dim,
        .a = a->query + rows->first * a->query_stride,
        .a_stride = a->query_stride,
        .b = a->keys + first * a->head_dim,
        .b_stride = MHA_PANEL,
        .b_panel_stride = MHA_PANEL * a->head_dim,
        .c = scores,
        .c_stride = MHA_KEY_BLOCK,
    });
}

/* More than this doesn't stay in an L2 beside what is in use. */
static const size_t fetch_limit = (size_t)128 * 1024;

/* What these rows' product may fetch meanwhile: where there is one block of keys, so that the next
 * head comes soon, a share of what that reads. */
static struct mha_region share_of_next(const struct mha_attend *a, const struct rows *rows) {
    size_t total = 0;
    for (size_t i = 0; i < MHA_NEXT_REGIONS; i++) {
        total += mha_min(a->next[i].floats, fetch_limit);
    }
    if (a->mask.kv_length > MHA_KEY_BLOCK || total == 0 || total > fetch_limit) {
        return (struct mha_region){0};
    }
    size_t from = total * rows->first / a->q_len, i = 0;
    while (i < MHA_NEXT_REGIONS - 1 && from >= a->next[i].floats) {
        from -= a->next[i++].floats;
    }
    return (struct mha_region){a->next[i].start + from,
                               mha_divide_up(total * rows->count, a->q_len)};
}

/* out = weights[count][keys] * values[first .. first + keys - 1], on top of start. */
static void weigh(const struct mha_attend *a, size_t count, const float *weights, size_t first,
                  size_t keys, const float *start, float *out, size_t stride,
                  struct mha_region next) {
    a->kernels->gemm(&(struct mha_gemm){
        .rows = count,
        .columns = a->v_head_dim,
        .depth = keys,
        .a = weights,
        .a_stride = MHA_KEY_BLOCK,
        .b = a->values + first * a->value_stride,
        .b_stride = a->value_stride,
        .b_panel_stride = MHA_PANEL,
        .start = start,
        .c = out,
        .c_stride = stride,
        .prefetch = next.floats > 0 ? (uintptr_t)next.start : 0,
        .prefetch_step = mha_divide_up(next.floats * sizeof(float), keys),
    });
}

/* The same where values hold NaN or infinity: 0 * NaN is NaN, so keys that a row may not
 * attend to must not take part at all. A row at a time, one run of attended keys after the
 * other; for finite values it gives the same bits as one call for all. */
static void weigh_runs(const struct mha_attend *a, const struct rows *rows, size_t first,
                       size_t keys, float *out, size_t stride) {
    for (size_t i = 0; i < rows->count; i++) {
        const float *weights = a->scratch->scores + i * MHA_KEY_BLOCK;
        float *row = out + i * stride;
        memset(row, 0, a->v_head_dim * sizeof *row);
        size_t query = rows->first + i;
        size_t end = first + keys;
        for (size_t from = first, to; from < end; from = to) {
            from = rows->uniform ? from : mha_mask_find(&a->mask, query, from, end, true);
            to = rows->uniform ? end : mha_mask_find(&a->mask, query, from, end, false);
            if (from < to) {
                weigh(a, 1, weights + (from - first), from, to - from, row, row, stride,
                      (struct mha_region){0});
            }
        }
    }
}

/* Whether each row attends to all of the block's keys. */
static bool attends_all(const struct mha_softmax_row *mask, size_t rows, size_t keys) {
    for (size_t i = 0; i < rows; i++) {
        if (mask[i].begin > 0 || mask[i].end < keys || mask[i].keep || mask[i].bias) {
            return false;
        }
    }
    return true;
}

static bool all_finite(size_t rows, size_t width, const float *x, size_t stride) {
    uint32_t odd = 0;
    for (size_t i = 0; i < rows; i++) {
        for (size_t d = 0; d < width; d++) {
            uint32_t bits;
            memcpy(&bits, &x[i * stride + d], sizeof bits);
            odd |= (bits & 0x7f800000u) == 0x7f800000u;
        }
    }
    return odd == 0;
}

/* One block of keys, or the part of it that the rows attend to: keys first .. end - 1, first
 * a multiple of 16. alone: there is no other block, so there is nothing to merge with. */
static void attend_block(const struct mha_attend *a, const struct rows *rows, size_t first,
                         size_t end, bool alone) {
    const struct mha_attend_scratch *s = a->scratch;
    size_t keys = end - first;
    size_t width = mha_padded(a->v_head_dim);
    struct mha_partial running = {
        .max = s->max + rows->tile_row,
        .sum = s->sum + rows->tile_row,
        .out = s->out + rows->tile_row * width,
        .stride = width,
    };
    struct mha_partial block = {s->block_max, s->block_sum, s->block_out, width};
    struct mha_partial *to = alone ? &running : &block;

    struct mha_softmax_row mask[MHA_MAX_GEMM_ROWS];
    describe_rows(a, rows, first, keys, mask);
    score(a, rows, first, keys);
    a->kernels->softmax(rows->count, keys, s->scores, MHA_KEY_BLOCK, a->scale, mask, to->max,
                        to->sum);
    weigh(a, rows->count, s->scores, first, keys, NULL, to->out, width, share_of_next(a, rows));
    /* A value that isn't finite shows in the sums, by 0 * NaN of a masked key too. */
    if (!attends_all(mask, rows->count, keys) &&
        !all_finite(rows->count, a->v_head_dim, to->out, width)) {
        weigh_runs(a, rows, first, keys, to->out, width);
    }
    if (a->attention) {
        for (size_t i = 0; i < rows->count; i++) {
            float *row = a->attention + (rows->first + i) * a->attention_stride + first;
            memcpy(row, s->scores + i * MHA_KEY_BLOCK, keys * sizeof *row);
            size_t history = (first / MHA_KEY_BLOCK) * a->kernels->block_rows;
            s->max_history[history + rows->tile_row + i] = to->max[i];
        }
    }
    if (!alone) {
        a->kernels->merge(rows->count, a->v_head_dim, &running, &block);
    }
}

/* Keys low .. high - 1 for rows of a tile, block by block, in pieces of gemm_rows rows. */
static void attend_rows(const struct mha_attend *a, const struct rows *rows, size_t low,
                        size_t high) {
    size_t pieces = mha_divide_up(rows->count, a->kernels->gemm_rows);
    size_t size = mha_divide_up(rows->count, pieces);
    bool alone = low / MHA_KEY_BLOCK == (high - 1) / MHA_KEY_BLOCK;
    for (size_t block = low / MHA_KEY_BLOCK * MHA_KEY_BLOCK; block < high; block += MHA_KEY_BLOCK) {
        for (size_t i = 0; i < rows->count; i += size) {
            struct rows piece = {
                .first = rows->first + i,
                .count = mha_min(size, rows->count - i),
                .tile_row = rows->tile_row + i,
                .uniform = rows->uniform,
            };
            size_t begin, end;
            rows_range(a, &piece, block, mha_min(block + MHA_KEY_BLOCK, high), &begin, &end);
            if (begin < end) {
                attend_block(a, &piece, begin / MHA_PANEL * MHA_PANEL, end, alone);
            }
        }
    }
}

/* The exp values in a row of the attention matrix to softmax weights. */
static void finish_weights(const struct mha_attend *a, size_t query, size_t tile_row) {
    const struct mha_attend_scratch *s = a->scratch;
    float *row = a->attention + query * a->attention_stride;
    if (s->sum[tile_row] == 0.0f) {
        return; /* zeros already */
    }
    for (size_t block = 0; block < a->mask.kv_length; block += MHA_KEY_BLOCK) {
        size_t history = block / MHA_KEY_BLOCK * a->kernels->block_rows;
        a->kernels->weights(mha_min(MHA_KEY_BLOCK, a->mask.kv_length - block), row + block,
                            s->max_history[history + tile_row], s->max[tile_row], s->sum[tile_row]);
    }
}

static void clear_state(const struct mha_attend *a, size_t count) {
    const struct mha_attend_scratch *s = a->scratch;
    for (size_t i = 0; i < count; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0.0f;
    }
    size_t history = mha_divide_up(a->mask.kv_length, MHA_KEY_BLOCK) * a->kernels->block_rows;
    for (size_t i = 0; a->attention && i < history; i++) {
        s->max_history[i] = -INFINITY;
    }
}

/* A row whose weights are all 0. If it has no key, it is a masked row. If it has, their scores
 * are all -inf, by infinite inputs, and softmax of that is NaN. */
static void attend_nothing(const struct mha_attend *a, size_t query, size_t tile_row) {
    size_t kv_length = a->mask.kv_length;
    size_t key = mha_mask_find(&a->mask, query, 0, kv_length, true);
    if (key == kv_length) {
        if (a->uniform && kv_length > 0) {
            struct rows row = {.first = query, .count = 1, .tile_row = tile_row, .uniform = true};
            attend_rows(a, &row, 0, kv_length);
        }
        return;
    }
    a->scratch->sum[tile_row] = NAN;
    while (a->attention && key < kv_length) {
        a->attention[query * a->attention_stride + key] = NAN;
        key = mha_mask_find(&a->mask, query, key + 1, kv_length, true);
    }
}

static void attend_tile(const struct mha_attend *a, size_t first, size_t count) {
    const struct mha_attend_scratch *s = a->scratch;
    size_t width = mha_padded(a->v_head_dim);
    struct rows rows = {.first = first, .count = count};
    clear_state(a, count);
    if (a->attention) {
        memset(a->attention + first * a->attention_stride, 0,
               count * a->attention_stride * sizeof *a->attention);
    }
    size_t low, high;
    rows_range(a, &rows, 0, a->mask.kv_length, &low, &high);
    if (low < high) {
        attend_rows(a, &rows, low, high);
    }
    for (size_t i = 0; i < count; i++) {
        if (s->sum[i] == 0.0f) {
            attend_nothing(a, first + i, i);
        }
    }
    a->kernels->normalize(count, a->v_head_dim, s->sum, s->out, width,
                          a->output + first * a->output_stride, a->output_stride);
    for (size_t i = 0; a->attention && i < count; i++) {
        finish_weights(a, first + i, i);
    }
}

void mha_attend(const struct mha_attend *a) {
    for (size_t first = 0; first < a->q_len; first += a->kernels->block_rows) {
        attend_tile(a, first, mha_min(a->kernels->block_rows, a->q_len - first));
    }
}
