/* SPDX-License-Identifier: MIT
 *
 * The engine: streaming attention of the query heads that share a key/value head. mha_forward
 * uses it on projected heads, mha_attention on the caller's.
 *
 * A row is (query, query head of the group), in this order; a tile is some rows that meet all
 * keys together; a block is 512 keys; a piece is the rows of a tile that are one GEMM call.
 */
#ifndef MHA_ATTEND_H
#define MHA_ATTEND_H

#include "kernels.h"
#include "kv.h"
#include "mask.h"
#include "workspace.h"

/* Scratch memory of one computing thread; its size depends on the shapes, not on q_len. */
struct mha_attend_scratch {
    float *scores;                /* [gemm_rows][MHA_KEY_BLOCK] */
    uint8_t *kept;                /* the same: bytes of combined masks */
    float *query;                 /* [gemm_rows][head_dim]: rows that the caller has apart */
    float *max, *sum;             /* [tile_rows]: running, per row */
    float *out;                   /* [tile_rows][padded v_head_dim] */
    float *block_max, *block_sum; /* [gemm_rows]: of a block */
    float *block_out;             /* [gemm_rows][padded v_head_dim] */
    float *max_history;           /* [blocks][tile_rows]: for weights */
    float *mean;                  /* [gemm_rows][kv_len]: weights of heads, for their mean */
};

/* The attention of one sequence and one group of query heads. */
struct mha_attend {
    const struct mha_kernels *kernels;
    const struct mha_attend_scratch *scratch;
    size_t group;               /* query heads */
    size_t first_head, n_heads; /* of the group, of all groups */
    size_t q_len, kv_len;
    float scale, softcap;
    const float *sinks; /* of all heads; or NULL */
    bool uniform;       /* rows with no key average all of them */
    bool added;         /* what the softmax kernel is to do */
    float factor;       /* the same */
    struct mha_mask_view mask;
    struct mha_kv kv;
    const float *query; /* row r at query + r * query_stride, unless the rows are apart */
    size_t query_stride;
    bool apart; /* (query i, head h) at query + i * query_stride + h * query_head_stride */
    size_t query_head_stride;
    float *output; /* (i, h) at output + i * output_stride + h * output_head_stride */
    size_t output_stride, output_head_stride;
    mha_result result;
    float *attention; /* of the sequence: [n_heads][q_len][kv_len]; or NULL */
};

/* Sizes of a call that its scratch memory depends on. */
struct mha_attend_sizes {
    size_t head_dim, v_head_dim; /* head_dim 0: no rows of queries are apart */
    size_t kv_len;
    bool weights, mean; /* may be asked for */
};

void mha_attend_place(struct mha_arena *arena, const struct mha_kernels *kernels,
                      const struct mha_attend_sizes *sizes, struct mha_attend_scratch *scratch);

/* Rows of a tile. */
size_t mha_attend_tile_rows(const struct mha_attend *attend);

/* All rows of a task: fills in `added` and `factor`, and clears the rows beyond the sequence's
 * queries. */
void mha_attend(struct mha_attend *attend);

#endif
