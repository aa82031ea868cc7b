/* SPDX-License-Identifier: MIT
 *
 * From .npy files to the arguments of mha_forward(): compares their shapes with the layer's and
 * with each other, and masks with what they broadcast to. Knows nothing of weights' names and
 * computes nothing.
 */
#ifndef MHA_TOOL_INPUTS_H
#define MHA_TOOL_INPUTS_H

#include <stdbool.h>

#include "mha.h"

/* Files to read; NULL for what is not given, except query. */
struct input_paths {
    const char *query, *key, *value;
    const char *mask[2]; /* at most one that keeps and one that adds */
    const char *kv_lengths;
    const char *alibi; /* a file of slopes, or "auto" */
};

struct inputs {
    mha_forward_args args; /* all but the outputs; .mask points to `mask` */
    mha_mask mask;
    bool batched; /* the query has shape (batch, q_len, d_model), not (q_len, d_model) */
    float *query, *key, *value, *bias, *slopes;
    uint8_t *keep;
    size_t *kv_lengths;
};

/* Fills *inputs, which must stay where it is while its args are in use. On failure it is
 * empty. */
bool inputs_load(const struct input_paths *paths, const mha_config *config, struct inputs *inputs);
void inputs_free(struct inputs *inputs);

#endif
