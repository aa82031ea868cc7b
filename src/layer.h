/* SPDX-License-Identifier: MIT
 *
 * A layer: its configuration and packed weights in one piece of memory.
 */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "linear.h"
#include "mha.h"

struct mha_layer {
    mha_config config; /* defaults filled in */
    /* Heads are padded to whole panels: of q and k to q.width, of v to v.width columns. */
    struct mha_linear q, k, v, o; /* o.panels NULL: no output projection */
    float *sinks;                 /* [n_heads] or NULL */
    size_t bytes;                 /* of all of it, this struct included */
};

#endif
