/* SPDX-License-Identifier: MIT
 *
 * Streaming attention: tiles of rows against blocks of keys, each block a softmax of its own that
 * is merged into the rows' running state (Milakov and Gimelshein 2018; Dao et al. 2022, with
 * blocks at fixed places so that the result doesn't depend on the tiling). Memory is constant in
 * q_len. No ISA in here.
 */
#include "attend.h"

#include <math.h>
#include <string.h>

#include "attend_results.h"
#include "exp2.h"

void mha_attend_place(struct mha_arena *arena, const struct mha_kernels *kernels,
                      const struct mha_attend_sizes *sizes, struct mha_attend_scratch *s) {
    size_t rows = kernels->tile_rows, piece = kernels->gemm_rows;
    size_t width = mha_padded(sizes->v_head_dim);
    size_t blocks = mha_divide_up(sizes->kv_len, MHA_KEY_BLOCK);
    s->scores = mha_arena_take(arena, piece, MHA_KEY_BLOCK * sizeof(float));
    s->kept = mha_arena_take(arena, piece, MHA_KEY_BLOCK);
    s->query = mha_arena_take(arena, sizes->head_dim, piece * sizeof(float));
    s->max = mha_arena_take(arena, rows, sizeof(float));
    s->sum = mha_arena_take(arena, rows, sizeof(float));
    s->out = mha_arena_take(arena, width, rows * sizeof(float));
    s->block_max = mha_arena_take(arena, piece, sizeof(float));
    s->block_sum = mha_arena_take(arena, piece, sizeof(float));
    s->block_out = mha_arena_take(arena, width, piece * sizeof(float));
    s->max_history = mha_arena_take(arena, sizes->weights ? blocks : 0, rows * sizeof(float));
    s->mean = mha_arena_take(arena, sizes->mean ? sizes->kv_len : 0, piece * sizeof(float));
}

/* Some rows of a tile: first .. first + count - 1, of which row 0 is row tile_row of the running
 * state. */
struct rows {
    size_t first, count, tile_row;
    bool uniform; /* average all keys: no scores, no mask */
};

static bool gives_scores(const struct mha_attend *a) {
    return a->attention && a->result >= MHA_RESULT_SCORES;
}

/* The keys that any of the rows needs within low .. high - 1. Empty: begin >= end. */
static void rows_range(const struct mha_attend *a, const struct rows *rows, size_t low, size_t high,
                       size_t *begin, size_t *end) {
    *begin = 0;
    *end = a->mask.kv_length;
    if (!rows->uniform && !gives_scores(a)) {
        size_t query = rows->first / a->group;
        size_t last = (rows->first + rows->count - 1) / a->group;
        mha_mask_range(&a->mask, query, last - query + 1, begin, end);
    }
    *begin = *begin > low ? *begin : low;
    *end = mha_min(*end, high);
}

/* What the rows attend to among keys first .. first + keys - 1. */
static void describe_rows(const struct mha_attend *a, const struct rows *rows, size_t first,
                          size_t keys, struct mha_softmax_row *row) {
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->uniform || a->mask.plain) {
            row[i] = (struct mha_softmax_row){.begin = 0, .end = keys};
        } else {
            size_t r = rows->first + i;
            mha_mask_describe(&a->mask, a->first_head + r % a->group, r / a->group, first, keys,
                              a->scratch->kept + i * MHA_KEY_BLOCK, &row[i]);
        }
    }
}

/* The queries of rows as a matrix. Those that the caller has apart are copied, unless they are
 * evenly far apart and no subnormal is among them. */
static const float *queries(const struct mha_attend *a, const struct rows *rows, size_t *stride) {
    *stride = a->query_stride;
    if (!a->apart) {
        return a->query + rows->first * a->query_stride;
    }
    size_t head_dim = a->kv.head_dim;
    size_t query = rows->first / a->group, head = rows->first % a->group;
    const float *from = a->query + query * a->query_stride + head * a->query_head_stride;
    if (a->group == 1 || a->mask.q_length == 1) {
        *stride = a->group == 1 ? a->query_stride : a->query_head_stride;
        if (!a->kernels->has_subnormal(rows->count, head_dim, from, *stride)) {
            return from;
        }
    }
    *stride = head_dim;
    for (size_t i = 0; i < rows->count; i++) {
        from = a->query + query * a->query_stride + head * a->query_head_stride;
        a->kernels->copy_inputs(1, head_dim, from, 0, a->scratch->query + i * head_dim, 0);
        head = head + 1 < a->group ? head + 1 : 0;
        query += head == 0;
    }
    return a->scratch->query;
}

static void score(const struct mha_attend *a, const struct rows *rows, size_t first, size_t keys) {
    float *scores = a->scratch->scores;
    if (rows->uniform) {
        memset(scores, 0, keys * sizeof *scores); /* such rows come one at a time */
        return;
    }
    size_t query_stride;
    const float *query = queries(a, rows, &query_stride);
    size_t part = a->kv.parts ? MHA_KV_PART : keys;
    for (size_t from = 0; from < keys; from += part) {
        size_t count = mha_min(part, keys - from);
        a->kernels->gemm(&(struct mha_gemm){
            .rows = rows->count,
            .columns = count,
            .depth = a->kv.head_dim,
            .a = query,
            .a_stride = query_stride,
            .b = mha_kv_keys(a->kernels, &a->kv, first + from, first + from + count),
            .c = scores + from,
            .c_stride = MHA_KEY_BLOCK,
        });
    }
}

/* Softmax of the scores, with what comes before it. */
static void softmax(const struct mha_attend *a, const struct rows *rows, size_t first, size_t keys,
                    const struct mha_softmax_row *row, const struct mha_partial *to) {
    float scale = a->scale;
    for (size_t i = 0; i < rows->count && !rows->uniform; i++) {
        float *scores = a->scratch->scores + i * MHA_KEY_BLOCK;
        if (gives_scores(a) && a->result == MHA_RESULT_SCORES) {
            mha_give_scores(a, rows->first + i, first, keys, scores, a->scale, NULL);
        }
        if (a->softcap != 0.0f) {
            a->kernels->softcap(keys, scores, a->scale / a->softcap, a->softcap);
            scale = 1.0f;
        }
        if (gives_scores(a) && a->result != MHA_RESULT_SCORES) {
            mha_give_scores(a, rows->first + i, first, keys, scores, scale,
                            a->result == MHA_RESULT_MASKED_SCORES ? &row[i] : NULL);
        }
    }
    a->kernels->softmax(&(struct mha_softmax){
        .rows = rows->count,
        .keys = keys,
        .scores = a->scratch->scores,
        .stride = MHA_KEY_BLOCK,
        .row = row,
        .added = a->added && !rows->uniform,
        .scale = scale,
        .factor = a->factor,
        .max = to->max,
        .sum = to->sum,
    });
}

/* out = weights[count][keys] * values[first .. first + keys - 1], on top of start. */
static void weigh(const struct mha_attend *a, size_t count, const float *weights, size_t first,
                  size_t keys, const float *start, float *out, size_t stride) {
    size_t part = a->kv.parts ? MHA_KV_PART : keys;
    for (size_t from = 0; from < keys; from += part) {
        size_t depth = mha_min(part, keys - from);
        a->kernels->gemm(&(struct mha_gemm){
            .rows = count,
            .columns = a->kv.v_head_dim,
            .depth = depth,
            .a = weights + from,
            .a_stride = MHA_KEY_BLOCK,
            .b = mha_kv_values(a->kernels, &a->kv, first + from, first + from + depth),
            .start = from > 0 ? out : start,
            .start_stride = stride,
            .c = out,
            .c_stride = stride,
        });
    }
}

/* The same where values hold NaN or infinity: 0 * NaN is NaN, so keys that a row may not
 * attend to must not take part at all. A row at a time, one run of attended keys after the
 * other; for finite values it gives the same bits as one call for all. */
static void weigh_runs(const struct mha_attend *a, const struct rows *rows, size_t first,
                       size_t keys, float *out, size_t stride) {
    size_t end = first + keys;
    for (size_t i = 0; i < rows->count; i++) {
        const float *weights = a->scratch->scores + i * MHA_KEY_BLOCK;
        float *row = out + i * stride;
        memset(row, 0, a->kv.v_head_dim * sizeof *row);
        size_t r = rows->first + i, head = a->first_head + r % a->group, query = r / a->group;
        for (size_t from = first, to; from < end; from = to) {
            from = rows->uniform ? from : mha_mask_find(&a->mask, head, query, from, end, true);
            to = rows->uniform ? end : mha_mask_find(&a->mask, head, query, from, end, false);
            if (from < to) {
                weigh(a, 1, weights + (from - first), from, to - from, row, row, stride);
            }
        }
    }
}

/* Whether each row attends to all of the block's keys. */
static bool attends_all(const struct mha_softmax_row *row, size_t rows, size_t keys) {
    for (size_t i = 0; i < rows; i++) {
        if (row[i].begin > 0 || row[i].end < keys || row[i].keep || row[i].bias ||
            row[i].slope != 0.0f) {
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
    size_t width = a->kv.value_stride;
    struct mha_partial running = {
        .max = s->max + rows->tile_row,
        .sum = s->sum + rows->tile_row,
        .out = s->out + rows->tile_row * width,
        .stride = width,
    };
    struct mha_partial block = {s->block_max, s->block_sum, s->block_out, width};
    struct mha_partial *to = alone ? &running : &block;

    struct mha_softmax_row row[MHA_MAX_GEMM_ROWS];
    describe_rows(a, rows, first, keys, row);
    score(a, rows, first, keys);
    softmax(a, rows, first, keys, row, to);
    weigh(a, rows->count, s->scores, first, keys, NULL, to->out, width);
    /* A value that isn't finite shows in the sums, by 0 * NaN of a masked key too. */
    if (!attends_all(row, rows->count, keys) &&
        !all_finite(rows->count, a->kv.v_head_dim, to->out, width)) {
        weigh_runs(a, rows, first, keys, to->out, width);
    }
    if (a->attention && !gives_scores(a)) {
        mha_keep_weights(a, rows->first, rows->count, rows->tile_row, first, keys, to->max);
    }
    if (!alone) {
        a->kernels->merge(rows->count, a->kv.v_head_dim, &running, &block, a->factor);
    }
}

/* Keys low .. high - 1 for rows of a tile, block by block, in pieces of gemm_rows rows. */
static void attend_rows(struct mha_attend *a, const struct rows *rows, size_t low, size_t high) {
    size_t pieces = mha_divide_up(rows->count, a->kernels->gemm_rows);
    size_t size = mha_divide_up(rows->count, pieces);
    bool alone = low / MHA_KEY_BLOCK == (high - 1) / MHA_KEY_BLOCK && (!a->sinks || rows->uniform);
    for (size_t block = low / MHA_KEY_BLOCK * MHA_KEY_BLOCK; block < high; block += MHA_KEY_BLOCK) {
        size_t block_end = mha_min(block + MHA_KEY_BLOCK, high);
        a->kv.parts = a->kv.key_rows && pieces == 1;
        if (a->kv.key_rows && pieces > 1) {
            size_t first = low > block ? low / MHA_PANEL * MHA_PANEL : block;
            mha_kv_pack(a->kernels, &a->kv, first, block_end);
        }
        for (size_t i = 0; i < rows->count; i += size) {
            struct rows piece = *rows;
            piece.first += i;
            piece.count = mha_min(size, rows->count - i);
            piece.tile_row += i;
            size_t begin, end;
            rows_range(a, &piece, block, block_end, &begin, &end);
            if (begin < end) {
                attend_block(a, &piece, begin / MHA_PANEL * MHA_PANEL, end, alone);
            }
        }
    }
}

/* Rows that have attended to nothing; a sink counts as a key of weight 1 and value 0. */
static void clear_state(const struct mha_attend *a, const struct rows *rows) {
    const struct mha_attend_scratch *s = a->scratch;
    size_t width = a->kv.value_stride;
    for (size_t i = 0; i < rows->count; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0.0f;
        if (a->sinks && !rows->uniform) {
            s->max[i] = a->sinks[a->first_head + (rows->first + i) % a->group];
            s->sum[i] = 1.0f;
            memset(s->out + i * width, 0, a->kv.v_head_dim * sizeof(float));
        }
    }
    if (a->attention && !gives_scores(a)) {
        mha_clear_weights(a, rows->first, rows->count);
    }
}

/* Row i of the tile, which has attended to nothing: the average of all values where that is
 * asked for. */
static void attend_uniformly(struct mha_attend *a, const struct rows *rows, size_t i) {
    if (a->uniform && a->mask.kv_length > 0) {
        struct rows row = *rows;
        row.first += i;
        row.count = 1;
        row.tile_row = i;
        row.uniform = true;
        attend_rows(a, &row, 0, a->mask.kv_length);
    }
}

/* The results of a tile's rows. */
static void finish_rows(struct mha_attend *a, const struct rows *rows) {
    const struct mha_attend_scratch *s = a->scratch;
    size_t query = rows->first / a->group, head = rows->first % a->group;
    for (size_t i = 0; i < rows->count; i++) {
        float *output = a->output + query * a->output_stride + head * a->output_head_stride;
        if (s->max[i] == -INFINITY) {
            attend_uniformly(a, rows, i);
        }
        if (s->max[i] == -INFINITY) {
            memset(output, 0, a->kv.v_head_dim * sizeof *output);
        } else {
            a->kernels->normalize(a->kv.v_head_dim, s->sum[i], s->out + i * a->kv.value_stride,
                                  output);
        }
        if (a->attention && !gives_scores(a)) {
            mha_finish_weights(a, rows->first + i, i);
        }
        head = head + 1 < a->group ? head + 1 : 0;
        query += head == 0;
    }
}

static void attend_tile(struct mha_attend *a, size_t first, size_t count) {
    struct rows rows = {.first = first, .count = count};
    clear_state(a, &rows);
    size_t low, high;
    rows_range(a, &rows, 0, a->mask.kv_length, &low, &high);
    if (low < high) {
        attend_rows(a, &rows, low, high);
    }
    finish_rows(a, &rows);
}

size_t mha_attend_tile_rows(const struct mha_attend *a) {
    bool mean = a->attention && a->result == MHA_RESULT_MEAN_WEIGHTS;
    return mean ? a->kernels->gemm_rows : a->kernels->tile_rows;
}

void mha_attend(struct mha_attend *a) {
    a->factor = (a->softcap != 0.0f ? 1.0f : a->scale) * MHA_LOG2E;
    a->added = a->mask.bias || a->mask.slopes || a->sinks ||
               !(a->factor >= FLT_MIN && a->factor < INFINITY);
    a->factor = a->added ? MHA_LOG2E : a->factor;
    size_t rows = a->mask.q_length * a->group, tile = mha_attend_tile_rows(a);
    for (size_t first = 0; first < rows; first += tile) {
        attend_tile(a, first, mha_min(tile, rows - first));
    }
    for (size_t i = a->mask.q_length; i < a->q_len; i++) {
        for (size_t h = 0; h < a->group; h++) {
            float *output = a->output + i * a->output_stride + h * a->output_head_stride;
            memset(output, 0, a->kv.v_head_dim * sizeof *output);
        }
    }
    if (a->attention) {
        mha_clear_results(a);
    }
}
