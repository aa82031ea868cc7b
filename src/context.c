/* SPDX-License-Identifier: MIT
 *
 * Contexts.
 */
#include "context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"
#include "error.h"
#include "workspace.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *mha_version(void) {
    return VERSION(MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
}

static void *allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    (void)alignment; /* mha_allocate() aligns to MHA_ALIGNMENT */
    return mha_allocate(size);
}

static void release(void *user, void *memory, size_t size) {
    (void)user;
    (void)size;
    free(memory);
}

static mha_status check_options(const mha_options *o) {
    if (o->threads > 1) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "threads (%zu): this version computes on the calling thread alone; "
                        "ask for 0 or 1",
                        o->threads);
    }
    if (!o->allocate != !o->release) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is given, but %s is NULL",
                        o->allocate ? "allocate" : "release", o->allocate ? "release" : "allocate");
    }
    if (!o->memory && o->memory_size > 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "memory is NULL, but memory_size is %zu",
                        o->memory_size);
    }
    if ((uintptr_t)o->memory % MHA_ALIGNMENT != 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "memory (%p) is not aligned to %zu bytes", o->memory,
                        MHA_ALIGNMENT);
    }
    return MHA_OK;
}

mha_status mha_context_create(const mha_options *options, mha_context **context) {
    static const mha_options defaults = {0};
    options = options ? options : &defaults;
    if (!context) {
        return mha_fail(MHA_ERROR_ARGUMENT, "context is NULL");
    }
    struct mha_context c = {
        .memory = options->memory,
        .size = options->memory_size,
        .fixed = options->memory != NULL,
        .allocate = options->allocate ? options->allocate : allocate,
        .release = options->allocate ? options->release : release,
        .user = options->user,
    };
    mha_status status = check_options(options);
    status = status ? status : mha_dispatch_select(options->isa, &c.kernels);
    if (status != MHA_OK) {
        return status;
    }
    struct mha_context *made = c.allocate(c.user, sizeof c, _Alignof(struct mha_context));
    if (!made) {
        return mha_fail_memory("a context", sizeof c);
    }
    *made = c;
    *context = made;
    return MHA_OK;
}

mha_status mha_context_grow(struct mha_context *c, size_t size) {
    if (size <= c->size) {
        return MHA_OK;
    }
    if (c->fixed) {
        return mha_fail(MHA_ERROR_MEMORY,
                        "the workspace needs %zu bytes; the caller's memory has %zu", size,
                        c->size);
    }
    char *memory = c->allocate(c->user, size, MHA_ALIGNMENT);
    if (!memory) {
        return mha_fail_memory("the workspace", size);
    }
    if ((uintptr_t)memory % MHA_ALIGNMENT != 0) {
        c->release(c->user, memory, size);
        return mha_fail(MHA_ERROR_MEMORY,
                        "allocate gave memory (%p) that isn't aligned to %zu bytes", (void *)memory,
                        MHA_ALIGNMENT);
    }
    if (c->memory) {
        c->release(c->user, c->memory, c->size);
    }
    c->memory = memory;
    c->size = size;
    return MHA_OK;
}

mha_status mha_context_reserve(struct mha_context *c, size_t size) {
    mha_status status = mha_context_grow(c, size);
    if (status == MHA_OK && size > 0) {
        memset(c->memory, 0, size);
    }
    return status;
}

mha_isa mha_context_isa(const mha_context *context) {
    return context->kernels->isa;
}

void mha_context_destroy(mha_context **context) {
    if (context && *context) {
        struct mha_context c = **context;
        if (c.memory && !c.fixed) {
            c.release(c.user, c.memory, c.size);
        }
        c.release(c.user, *context, sizeof c);
        *context = NULL;
    }
}
