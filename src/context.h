/* SPDX-License-Identifier: MIT
 *
 * A context: the kernels chosen and one caller's workspace. Threads would live here.
 */
#ifndef MHA_CONTEXT_H
#define MHA_CONTEXT_H

#include "kernels.h"
#include "mha.h"

struct mha_context {
    const struct mha_kernels *kernels;
    char *memory;
    size_t size; /* of memory, in bytes */
};

/* Makes the workspace at least size bytes; its contents are not kept. On failure it stays
 * as it was. */
mha_status mha_context_grow(struct mha_context *context, size_t size);

#endif
