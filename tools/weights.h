/* SPDX-License-Identifier: MIT
 *
 * From a checkpoint to what mha_layer_create() takes: finds the layer by its names, takes its
 * widths from the shapes, and converts the weights to nn.Linear's layout. Knows nothing of
 * inputs.
 */
#ifndef MHA_TOOL_WEIGHTS_H
#define MHA_TOOL_WEIGHTS_H

#include "mha.h"
#include "names.h"

struct weights {
    mha_config config;
    mha_weights arrays; /* point into `owned` */
    float *owned[2 * ROLES];
    const char *scheme; /* the family's name */
};

/* n_kv_heads 0: n_heads. On failure *weights is empty. */
bool weights_load(const char *path, const char *prefix, size_t n_heads, size_t n_kv_heads,
                  struct weights *weights);
void weights_free(struct weights *weights);

#endif
