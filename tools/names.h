/* SPDX-License-Identifier: MIT
 *
 * What checkpoints call the weights of an attention layer, and finding them in a file by their
 * names. Reads neither shapes nor data.
 */
#ifndef MHA_TOOL_NAMES_H
#define MHA_TOOL_NAMES_H

#include "safetensors.h"

enum { ROLE_Q, ROLE_K, ROLE_V, ROLE_O, ROLES };

struct layer_names {
    const char *scheme; /* the family's name */
    bool transposed;    /* weights are stored (in, out) */
    /* weight[ROLE_K] and [ROLE_V] are NULL where q, k and v are rows of one tensor, which is then
     * weight[ROLE_Q]. Independently of that, the biases may be one tensor, bias[ROLE_Q]. */
    const struct tensor *weight[ROLES];
    const struct tensor *bias[ROLES]; /* NULL: none */
    bool bias_packed;
};

/* Finds the file's only layer, or with a prefix the layer whose names begin with it, up to a dot
 * or exactly. On failure the message lists the choices. */
bool names_find(const struct safetensors *file, const char *prefix, struct layer_names *names);

#endif
