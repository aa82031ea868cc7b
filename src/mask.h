/* SPDX-License-Identifier: MIT
 *
 * Masks: checking the caller's, and what a row of one sequence and head attends to.
 */
#ifndef MHA_MASK_H
#define MHA_MASK_H

#include <stdbool.h>

#include "kernels.h"
#include "mha.h"

/* The sizes a mask belongs to. */
struct mha_mask_shape {
    size_t batch, n_heads, q_len, kv_len;
};

/* Refuses lengths beyond q_len and kv_len, positions that overflow, numbers that aren't. */
mha_status mha_mask_check(const mha_mask *mask, const struct mha_mask_shape *shape);

/* A byte range of the caller's memory, to be compared with the outputs. */
struct mha_extent {
    const char *name;
    const void *start;
    size_t bytes;
};

/* The memory that a checked mask reads, for the overlap check. */
enum { MHA_MASK_EXTENTS = 7 };
size_t mha_mask_extents(const mha_mask *mask, const struct mha_mask_shape *shape,
                        struct mha_extent extents[MHA_MASK_EXTENTS]);

/* Of a sequence; the whole if the mask has no lengths. mask may be NULL. */
size_t mha_mask_q_length(const mha_mask *mask, const struct mha_mask_shape *shape, size_t batch);
size_t mha_mask_kv_length(const mha_mask *mask, const struct mha_mask_shape *shape, size_t batch);

/* A mask seen from one sequence. */
struct mha_mask_view {
    size_t q_length, kv_length;
    bool plain;          /* all rows attend to all keys, and nothing is added */
    const uint8_t *keep; /* head 0, row 0; or NULL */
    size_t keep_head_stride, keep_query_stride;
    const uint8_t *key_keep; /* key 0; or NULL */
    bool nonzero_masks;
    const float *bias; /* head 0, row 0; or NULL */
    size_t bias_head_stride, bias_query_stride;
    bool causal;
    size_t window_left, window_right; /* 0: none */
    int64_t offset;                   /* position of query 0 */
    const float *slopes;              /* of all heads; or NULL */
};

/* mask NULL: everything is attended to. */
struct mha_mask_view mha_mask_at(const mha_mask *mask, const struct mha_mask_shape *shape,
                                 size_t batch);

/* The keys that queries first .. first + count - 1 may attend to by length, causality and
 * windows: *begin .. *end - 1, none if *begin >= *end. */
void mha_mask_range(const struct mha_mask_view *view, size_t first, size_t count, size_t *begin,
                    size_t *end);

/* What a row attends to among keys first .. first + keys - 1. kept: room for `keys` bytes. */
void mha_mask_describe(const struct mha_mask_view *view, size_t head, size_t query, size_t first,
                       size_t keys, uint8_t *kept, struct mha_softmax_row *row);

/* The first key from `from` on that a row may (attended) or may not (!attended) attend to, for
 * any reason; `end` if there is none before. end <= kv_length. */
size_t mha_mask_find(const struct mha_mask_view *view, size_t head, size_t query, size_t from,
                     size_t end, bool attended);

#endif
