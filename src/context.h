/* SPDX-License-Identifier: MIT
 *
 * A context: the kernels chosen and one caller's workspace. Threads would live here.
 */
#ifndef MHA_CONTEXT_H
#define MHA_CONTEXT_H

#include <stdbool.h>

#include "kernels.h"
#include "mha.h"

struct mha_context {
    const struct mha_kernels *kernels;
    char *memory;
    size_t size; /* of memory, in bytes */
    bool fixed;  /* memory is the caller's own and can't grow */
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*release)(void *user, void *memory, size_t size);
    void *user;
};

/* Makes the workspace at least size bytes; its contents are not kept. On failure it stays
 * as it was. */
mha_status mha_context_grow(struct mha_context *context, size_t size);

/* The same, and touches its pages. */
mha_status mha_context_reserve(struct mha_context *context, size_t size);

#endif
