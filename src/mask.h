/* SPDX-License-Identifier: MIT
 *
 * Masks: checking the caller's, and what a row of one batch element and head attends to.
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

/* Refuses strides that make rows overlap, lengths beyond kv_len, numbers that aren't. */
mha_status mha_mask_check(const mha_mask *mask, const struct mha_mask_shape *shape);

/* A byte range of the caller's memory, to be compared with the outputs. */
struct mha_extent {
    const char *name;
    const void *start;
    size_t bytes;
};

/* The memory that a checked mask reads, for the overlap check: at most 4 ranges. */
size_t mha_mask_extents(const mha_mask *mask, const struct mha_mask_shape *shape,
                        struct mha_extent extents[4]);

/* A mask seen from one batch element and head. */
struct mha_mask_view {
    size_t kv_length;
    const uint8_t *keep; /* row 0, or NULL */
    size_t keep_stride;
    const float *bias; /* row 0, or NULL */
    size_t bias_stride;
    bool causal;
    int64_t offset; /* position of query 0 */
    size_t window;  /* 0: none */
    bool alibi;
    float slope;
};

/* mask NULL: everything is attended to. */
struct mha_mask_view mha_mask_at(const mha_mask *mask, const struct mha_mask_shape *shape,
                                 size_t batch, size_t head);

/* The keys that queries first .. first + count - 1 may attend to by length, causality and
 * window: *begin .. *end - 1, none if *begin >= *end. */
void mha_mask_range(const struct mha_mask_view *view, size_t first, size_t count, size_t *begin,
                    size_t *end);

/* term[j - first] = the row's additive term for keys first .. end-1: ALiBi's, plus the
 * bias where there is one. */
void mha_mask_term(const struct mha_mask_view *view, size_t query, size_t first, size_t end,
                   float *term);

/* The first key from `from` on that query i may (attended) or may not (!attended) attend to,
 * for any reason; `end` if there is none before. end <= kv_length. */
size_t mha_mask_find(const struct mha_mask_view *view, size_t query, size_t from, size_t end,
                     bool attended);

#endif
