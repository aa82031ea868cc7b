/* SPDX-License-Identifier: MIT
 *
 * Attention layers and the checkpoints that hold them under every family's names. The names are
 * written here a second time, as the families' files have them.
 */
#ifndef MHA_TEST_TOOL_CHECKPOINT_H
#define MHA_TEST_TOOL_CHECKPOINT_H

#include "fixture.h"

/* The sizes are a case's; the rest is filled in. */
struct layer {
    size_t heads, kv_heads, head_dim, v_head_dim, d_model, k_dim, v_dim;
    size_t rows[4], columns[4];
    float weight[4][144], bias[4][20];
};

/* d_model 6, 2 heads of 3. */
#define PLAIN_LAYER                                                                                \
    {                                                                                              \
        .heads = 2, .kv_heads = 2, .head_dim = 3, .v_head_dim = 3, .d_model = 6, .k_dim = 6,       \
        .v_dim = 6                                                                                 \
    }

void fill_layer(struct layer *layer);

struct naming {
    const char *label;
    const char *weight[4]; /* NULL for k and v: packed in q's */
    const char *bias[4];   /* NULL for k and v: packed */
    bool conv1d;           /* stored (in, out) */
};

enum {
    NAMING_MHA,
    NAMING_MHA_SEPARATE,
    NAMING_BERT,
    NAMING_LLAMA,
    NAMING_LLAMA_META,
    NAMING_OPT,
    NAMING_GPT2,
    NAMING_VIT,
    NAMING_TIMM,
    NAMING_DISTILBERT,
    NAMING_PLAIN,
    NAMING_PLAIN_UPPER,
    NAMING_PLAIN_LOWER,
    NAMING_BARE,
    NAMING_BARE_UPPER,
    NAMING_BARE_LOWER,
    N_NAMINGS
};
extern const struct naming namings[N_NAMINGS];

/* All of the layer, but for the tensor that is named `without` (NULL: all). */
void add_layer(struct tensors *tensors, const struct layer *layer, const struct naming *naming,
               const char *prefix, bool biases, const char *without);

#endif
