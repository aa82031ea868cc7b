/* SPDX-License-Identifier: MIT
 *
 * A layer: its configuration and packed weights in one block of memory.
 */
#ifndef MHA_LAYER_H
#define MHA_LAYER_H

#include "gemm.h"
#include "mha.h"

struct mha_layer {
    mha_config config; /* defaults filled in */
    /* Heads are padded to whole panels: of q and k to q.width, of v to v.width columns. */
    struct mha_linear q, k, v, o;
    size_t bytes; /* of the whole block, this struct included */
};

/* Columns of a head where the library owns the memory. */
static inline size_t mha_padded(size_t dim) {
    return (dim + MHA_PANEL - 1) / MHA_PANEL * MHA_PANEL;
}

#endif
