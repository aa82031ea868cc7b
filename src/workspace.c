/* SPDX-License-Identifier: MIT
 *
 * Checked sizes and the arena; nothing here knows what the memory is for.
 */
#include "workspace.h"

#include <stdlib.h>

bool mha_product(const size_t *factors, size_t n, size_t *product) {
    size_t result = 1;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(result, factors[i], &result)) {
            return false;
        }
    }
    *product = result;
    return true;
}

void *mha_arena_take(struct mha_arena *arena, size_t count, size_t size) {
    size_t start = arena->used;
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        __builtin_add_overflow(bytes, MHA_ALIGNMENT - 1, &bytes) ||
        __builtin_add_overflow(start, bytes & ~(MHA_ALIGNMENT - 1), &arena->used)) {
        arena->overflow = true;
        return NULL;
    }
    return arena->base ? arena->base + start : NULL;
}

void *mha_allocate(size_t size) {
    size_t rounded;
    if (__builtin_add_overflow(size ? size : 1, MHA_ALIGNMENT - 1, &rounded)) {
        return NULL;
    }
    return aligned_alloc(MHA_ALIGNMENT, rounded & ~(MHA_ALIGNMENT - 1));
}
