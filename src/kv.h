/* SPDX-License-Identifier: MIT
 *
 * Keys and values of one sequence and key/value head, as the engine reads them.
 */
#ifndef MHA_KV_H
#define MHA_KV_H

#include "kernels.h"

/* Keys that are packed together where one piece of rows reads them: they stay in L1. */
#define MHA_KV_PART ((size_t)64)

/* Packed keys and padded values from key `first` on, a multiple of 16. They stand in a
 * workspace that holds them all, or they are packed from rows of the caller's: a block at a time,
 * or in parts when they are asked for. */
struct mha_kv {
    size_t head_dim, v_head_dim;
    size_t first;
    float *keys;   /* panels [..][head_dim][16] */
    float *values; /* [..][value_stride] */
    size_t value_stride;
    const float *key_rows; /* of the caller's: row 0; NULL: all is packed */
    size_t key_row_stride;
    const float *value_rows;
    size_t value_row_stride;
    bool parts;  /* packed when asked for */
    bool direct; /* values are read where the caller has them */
};

/* Packs keys and values first .. end - 1 of the caller's rows to the start of the arrays. */
void mha_kv_pack(const struct mha_kernels *kernels, struct mha_kv *kv, size_t first, size_t end);

/* Keys first .. end - 1, at most MHA_KV_PART if in parts; first a multiple of 16. Valid until the
 * next call. */
struct mha_operand mha_kv_keys(const struct mha_kernels *kernels, const struct mha_kv *kv,
                               size_t first, size_t end);

/* Values first .. end - 1, as above; any first. */
struct mha_operand mha_kv_values(const struct mha_kernels *kernels, const struct mha_kv *kv,
                                 size_t first, size_t end);

#endif
