/* SPDX-License-Identifier: MIT
 *
 * Contexts.
 */
#include "context.h"

#include <stdlib.h>

#include "dispatch.h"
#include "error.h"
#include "workspace.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *mha_version(void) {
    return VERSION(MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
}

mha_status mha_context_create(const mha_options *options, mha_context **context) {
    static const mha_options defaults = {0};
    options = options ? options : &defaults;
    if (!context) {
        return mha_fail(MHA_ERROR_ARGUMENT, "context is NULL");
    }
    if (options->threads > 1) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "threads (%zu): this version computes on the calling thread alone; "
                        "ask for 0 or 1",
                        options->threads);
    }
    const struct mha_kernels *kernels;
    mha_status status = mha_dispatch_select(options->isa, &kernels);
    if (status != MHA_OK) {
        return status;
    }
    struct mha_context *made = malloc(sizeof *made);
    if (!made) {
        return mha_fail_memory("a context", sizeof *made);
    }
    *made = (struct mha_context){.kernels = kernels};
    *context = made;
    return MHA_OK;
}

mha_status mha_context_grow(struct mha_context *context, size_t size) {
    if (size <= context->size) {
        return MHA_OK;
    }
    char *memory = mha_allocate(size);
    if (!memory) {
        return mha_fail_memory("the workspace", size);
    }
    free(context->memory);
    context->memory = memory;
    context->size = size;
    return MHA_OK;
}

mha_isa mha_context_isa(const mha_context *context) {
    return context->kernels->isa;
}

void mha_context_destroy(mha_context **context) {
    if (context && *context) {
        free((*context)->memory);
        free(*context);
        *context = NULL;
    }
}
