/* SPDX-License-Identifier: MIT
 *
 * Views of keys and values, and packing the caller's.
 */
#include "kv.h"

#include <string.h>

static void pack_keys(const struct mha_kernels *kernels, const struct mha_kv *kv, size_t first,
                      size_t end) {
    kernels->pack(end - first, kv->head_dim, kv->key_rows + first * kv->key_row_stride,
                  kv->key_row_stride, kv->keys, true);
}

static void copy_values(const struct mha_kernels *kernels, const struct mha_kv *kv, size_t first,
                        size_t end) {
    kernels->copy_inputs(end - first, kv->v_head_dim, kv->value_rows + first * kv->value_row_stride,
                         kv->value_row_stride, kv->values, kv->value_stride);
    for (size_t j = 0; kv->v_head_dim < kv->value_stride && j < end - first; j++) {
        memset(kv->values + j * kv->value_stride + kv->v_head_dim, 0,
               (kv->value_stride - kv->v_head_dim) * sizeof *kv->values);
    }
}

/* Whether the kernels can read the caller's values as they are: padded to whole panels, and no
 * subnormal among them. Far apart, rows that are read more than once are better copied: they share
 * few sets of the caches. */
static bool reads_directly(const struct mha_kernels *kernels, const struct mha_kv *kv, size_t first,
                           size_t end) {
    return kv->v_head_dim == kv->value_stride &&
           (kv->parts || kv->value_row_stride == kv->value_stride) &&
           !kernels->has_subnormal(end - first, kv->v_head_dim,
                                   kv->value_rows + first * kv->value_row_stride,
                                   kv->value_row_stride);
}

void mha_kv_pack(const struct mha_kernels *kernels, struct mha_kv *kv, size_t first, size_t end) {
    pack_keys(kernels, kv, first, end);
    kv->direct = reads_directly(kernels, kv, first, end);
    if (!kv->direct) {
        copy_values(kernels, kv, first, end);
    }
    kv->first = first;
}

struct mha_operand mha_kv_keys(const struct mha_kernels *kernels, const struct mha_kv *kv,
                               size_t first, size_t end) {
    if (kv->parts) {
        pack_keys(kernels, kv, first, end);
    }
    return (struct mha_operand){
        .data = kv->keys + (kv->parts ? 0 : (first - kv->first) * kv->head_dim),
        .step = MHA_PANEL,
        .panel_step = MHA_PANEL * kv->head_dim,
    };
}

struct mha_operand mha_kv_values(const struct mha_kernels *kernels, const struct mha_kv *kv,
                                 size_t first, size_t end) {
    if (kv->direct || (kv->parts && reads_directly(kernels, kv, first, end))) {
        return (struct mha_operand){
            .data = kv->value_rows + first * kv->value_row_stride,
            .step = kv->value_row_stride,
            .panel_step = MHA_PANEL,
        };
    }
    if (kv->parts) {
        copy_values(kernels, kv, first, end);
    }
    return (struct mha_operand){
        .data = kv->values + (kv->parts ? 0 : (first - kv->first) * kv->value_stride),
        .step = kv->value_stride,
        .panel_step = MHA_PANEL,
    };
}
