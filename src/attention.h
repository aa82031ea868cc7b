/* SPDX-License-Identifier: MIT
 *
 * Streaming attention of one head: the library's middle, used by mha_forward on projected
 * heads and by mha_attention on the caller's.
 */
#ifndef MHA_ATTENTION_H
#define MHA_ATTENTION_H

#include "kernels.h"
#include "mask.h"
#include "workspace.h"

/* Scratch memory of one computing thread; its size depends on the shapes, not on q_len. */
struct mha_attend_scratch {
    float *scores;                /* [gemm_rows][MHA_KEY_BLOCK] */
    float *term;                  /* the same: additive terms */
    float *max, *sum;             /* [block_rows]: running, per row */
    float *out;                   /* [block_rows][value width] */
    float *block_max, *block_sum; /* [gemm_rows]: of a block */
    float *block_out;             /* [gemm_rows][value width] */
    float *max_history;           /* [block_rows][key blocks]: for returned weights */
};

/* width: of values, padded. kv_len: the most keys. weights: whether they'll be returned. */
void mha_attend_place(struct mha_arena *arena, const struct mha_kernels *kernels, size_t width,
                      size_t kv_len, bool weights, struct mha_attend_scratch *scratch);

/* Memory that will be read soon; floats 0: none. */
struct mha_region {
    const float *start;
    size_t floats;
};

enum { MHA_NEXT_REGIONS = 4 };

/* One head of one batch element. */
struct mha_attend {
    const struct mha_kernels *kernels;
    const struct mha_attend_scratch *scratch;
    size_t q_len;
    size_t head_dim, v_head_dim;
    float scale;
    bool uniform; /* rows with no key average all of them */
    struct mha_mask_view mask;
    const float *query; /* [q_len][head_dim] */
    size_t query_stride;
    const float *keys;   /* panels [ceil(kv_length / 16)][head_dim][16] */
    const float *values; /* [kv_length], rows padded to 16 readable floats */
    size_t value_stride;
    float *output; /* [q_len][v_head_dim] */
    size_t output_stride;
    float *attention; /* [q_len][attention_stride], or NULL */
    size_t attention_stride;
    /* What comes after this head, to be fetched meanwhile: it changes no value. */
    struct mha_region next[MHA_NEXT_REGIONS];
};

void mha_attend(const struct mha_attend *attend);

#endif
