/* SPDX-License-Identifier: MIT
 *
 * The memory of one call: what its workers share, and what each has of its own. The same
 * functions serve the calls, the reserving of their workspace and the asking for its size.
 */
#ifndef MHA_PLAN_H
#define MHA_PLAN_H

#include "attend.h"
#include "layer.h"
#include "project.h"
#include "workspace.h"

struct mha_forward_plan {
    size_t kv_panels; /* of one sequence */
    /* Shared: */
    float *query;  /* [batch][n_kv_heads][q_len][group][padded head_dim] */
    float *keys;   /* [batch][n_kv_heads][kv_panels][head_dim][16] */
    float *values; /* [batch][n_kv_heads][kv_len][padded v_head_dim] */
    float *concat; /* [batch][q_len][n_heads * v_head_dim] */
    /* Of a worker: */
    struct mha_project_scratch project;
    struct mha_attend_scratch attend;
};

struct mha_attention_plan {
    bool whole; /* a head's keys and values are packed once for several tiles, not by blocks */
    /* Of a worker: */
    float *keys;   /* [ceil(kv_len / 16) or 32][head_dim][16] */
    float *values; /* [kv_len or 512][padded v_head_dim] */
    struct mha_attend_scratch attend;
};

/* result: what is asked for, or NULL for no more than the output; MHA_RESULT_MEAN_WEIGHTS needs
 * most. base NULL: no pointers are set. *size: the bytes. */
mha_status mha_plan_forward(const struct mha_kernels *kernels, const struct mha_layer *layer,
                            size_t batch, size_t q_len, size_t kv_len, const mha_result *result,
                            char *base, struct mha_forward_plan *plan, size_t *size);

/* args: defaults filled in. */
mha_status mha_plan_attention(const struct mha_kernels *kernels, const mha_attention_args *args,
                              const mha_result *result, char *base, struct mha_attention_plan *plan,
                              size_t *size);

#endif
