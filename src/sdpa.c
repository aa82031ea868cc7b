/* SPDX-License-Identifier: MIT
 *
 * mha_attention: scaled dot-product attention alone, on the caller's heads and strides. It packs
 * one head's keys, and values where it must, and leaves the rest to attention.c. No ISA in here.
 */
#include <string.h>

#include "arguments.h"
#include "attention.h"
#include "context.h"
#include "error.h"
#include "fpenv.h"
#include "layer.h"
#include "workspace.h"

struct bare {
    const struct mha_kernels *kernels;
    float *keys;   /* [ceil(kv_len / 16)][head_dim][16]: of one head */
    float *values; /* [kv_len][padded v_head_dim]: of one head, if copied */
    struct mha_attend_scratch attend;
};

/* Rows of values must be padded to whole panels, as the kernels read them. Far apart they cost
 * more than copying them once: rows of many heads side by side share few sets of the caches. One
 * tile of queries reads them but once. */
static bool copies_values(const struct bare *bare, const mha_attention_args *a) {
    size_t width = mha_padded(a->v_head_dim);
    return width != a->v_head_dim ||
           (a->value_strides.row != width && a->q_len > bare->kernels->gemm_rows);
}

static bool place_bare(struct mha_arena *arena, struct bare *bare, const mha_attention_args *a) {
    size_t width = mha_padded(a->v_head_dim);
    size_t keys, values;
    if (a->head_dim > SIZE_MAX - MHA_PANEL || width < a->v_head_dim ||
        !MHA_PRODUCT(&keys, mha_divide_up(a->kv_len, MHA_PANEL), MHA_PANEL, a->head_dim) ||
        !MHA_PRODUCT(&values, a->kv_len, width)) {
        return false;
    }
    bare->keys = mha_arena_take(arena, keys, sizeof(float));
    bare->values = mha_arena_take(arena, copies_values(bare, a) ? values : 0, sizeof(float));
    mha_attend_place(arena, bare->kernels, width, a->kv_len, a->attention != NULL, &bare->attend);
    return !arena->overflow;
}

static void prepare_values(const struct bare *bare, const mha_attention_args *a,
                           struct mha_attend *attend, const float *values) {
    attend->values = values;
    attend->value_stride = a->value_strides.row;
    if (copies_values(bare, a)) {
        size_t width = mha_padded(a->v_head_dim);
        for (size_t j = 0; j < attend->mask.kv_length; j++) {
            float *row = bare->values + j * width;
            memcpy(row, values + j * a->value_strides.row, a->v_head_dim * sizeof *row);
            memset(row + a->v_head_dim, 0, (width - a->v_head_dim) * sizeof *row);
        }
        attend->values = bare->values;
        attend->value_stride = width;
    }
}

/* What the next head reads that this one doesn't, where it lies together: rows far apart aren't
 * worth fetching. */
static void note_next_dense(const mha_attention_args *a, size_t b, size_t h,
                            struct mha_attend *attend) {
    memset(attend->next, 0, sizeof attend->next);
    if (++h == a->n_heads) {
        h = 0;
        b++;
    }
    if (b == a->batch) {
        return;
    }
    size_t group = a->n_heads / a->n_kv_heads, g = h / group;
    size_t new_keys = h % group == 0 ? a->kv_len : 0;
    const struct {
        const float *start;
        const mha_strides *strides;
        size_t head, rows, width;
    } arrays[MHA_NEXT_REGIONS] = {
        {a->key, &a->key_strides, g, new_keys, a->head_dim},
        {a->value, &a->value_strides, g, new_keys, a->v_head_dim},
        {a->query, &a->query_strides, h, a->q_len, a->head_dim},
        {a->output, &a->output_strides, h, a->q_len, a->v_head_dim},
    };
    for (size_t i = 0; i < MHA_NEXT_REGIONS; i++) {
        const mha_strides *strides = arrays[i].strides;
        if (strides->row == arrays[i].width) {
            attend->next[i].start =
                arrays[i].start + b * strides->batch + arrays[i].head * strides->head;
            attend->next[i].floats = arrays[i].rows * arrays[i].width;
        }
    }
}

static void compute_attention(const struct bare *bare, const mha_attention_args *a) {
    const struct mha_mask_shape shape = {a->batch, a->n_heads, a->q_len, a->kv_len};
    size_t group = a->n_heads / a->n_kv_heads;
    for (size_t b = 0; b < a->batch; b++) {
        struct mha_attend attend = {
            .kernels = bare->kernels,
            .scratch = &bare->attend,
            .q_len = a->q_len,
            .head_dim = a->head_dim,
            .v_head_dim = a->v_head_dim,
            .scale = a->scale,
            .uniform = a->masked_rows == MHA_MASKED_ROWS_UNIFORM,
            .query_stride = a->query_strides.row,
            .keys = bare->keys,
            .output_stride = a->output_strides.row,
            .attention_stride = a->kv_len,
        };
        for (size_t h = 0; h < a->n_heads; h++) {
            attend.mask = mha_mask_at(a->mask, &shape, b, h);
            attend.query = a->query + b * a->query_strides.batch + h * a->query_strides.head;
            attend.output = a->output + b * a->output_strides.batch + h * a->output_strides.head;
            if (a->attention) {
                attend.attention = a->attention + (b * a->n_heads + h) * a->q_len * a->kv_len;
            }
            if (h % group == 0) {
                size_t g = h / group;
                bare->kernels->transpose(attend.mask.kv_length, a->head_dim,
                                         a->key + b * a->key_strides.batch +
                                             g * a->key_strides.head,
                                         a->key_strides.row, bare->keys);
                prepare_values(bare, a, &attend,
                               a->value + b * a->value_strides.batch + g * a->value_strides.head);
            }
            note_next_dense(a, b, h, &attend);
            mha_attend(&attend);
        }
    }
}

mha_status mha_attention(mha_context *context, const mha_attention_args *args) {
    if (!context || !args) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", context ? "args" : "context");
    }
    mha_attention_args checked = *args;
    mha_fpenv saved = mha_fpenv_enter(); /* the default scale is arithmetic too */
    mha_status status = mha_check_attention(&checked);
    if (status == MHA_OK && checked.batch > 0 && checked.q_len > 0) {
        struct bare bare = {.kernels = context->kernels};
        struct mha_arena arena = {0};
        if (!place_bare(&arena, &bare, &checked)) {
            status =
                mha_fail(MHA_ERROR_ARGUMENT,
                         "the workspace for kv_len %zu, head_dim %zu, v_head_dim %zu is larger "
                         "than memory can be",
                         checked.kv_len, checked.head_dim, checked.v_head_dim);
        } else {
            status = mha_context_grow(context, arena.used);
        }
        if (status == MHA_OK) {
            arena = (struct mha_arena){.base = context->memory};
            place_bare(&arena, &bare, &checked);
            compute_attention(&bare, &checked);
        }
    }
    mha_fpenv_leave(saved);
    return status;
}
