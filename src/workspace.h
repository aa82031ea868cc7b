/* SPDX-License-Identifier: MIT
 *
 * Checked sizes, and memory cut into arrays: a layout function runs once without memory to
 * learn the size, once with it to get the pointers.
 */
#ifndef MHA_WORKSPACE_H
#define MHA_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels.h"

#define MHA_ALIGNMENT ((size_t)64)

/* a * b * c * ... of a {0}-free list of n factors to *product; false if it overflows. */
bool mha_product(const size_t *factors, size_t n, size_t *product);
#define MHA_PRODUCT(product, ...)                                                                  \
    mha_product((const size_t[]){__VA_ARGS__},                                                     \
                sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t), product)

static inline size_t mha_divide_up(size_t n, size_t by) {
    return n / by + (n % by != 0);
}

static inline size_t mha_min(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Columns of a head where the library owns the memory: whole panels. */
static inline size_t mha_padded(size_t dim) {
    return (dim + MHA_PANEL - 1) / MHA_PANEL * MHA_PANEL;
}

struct mha_arena {
    char *base; /* NULL: measure only */
    size_t used;
    bool overflow;
};

/* The next array of count elements of that size, 64-byte aligned; NULL when measuring.
 * The product of several counts overflowing is the caller's to check (MHA_PRODUCT); count
 * times size and the sum are checked here. */
void *mha_arena_take(struct mha_arena *arena, size_t count, size_t size);

/* 64-byte aligned memory for free(); size 0 gives a pointer too. NULL if there is none. */
void *mha_allocate(size_t size);

#endif
