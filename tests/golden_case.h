/* SPDX-License-Identifier: MIT
 *
 * The rows of golden/cases.txt, which says what each field means. Knows only how to read
 * them.
 */
#ifndef MHA_GOLDEN_CASE_H
#define MHA_GOLDEN_CASE_H

#include <stdbool.h>
#include <stddef.h>

#define GOLDEN_MAX_BATCH ((size_t)8)

struct golden_case {
    char name[64];
    size_t batch, q_len, kv_len, d_model, n_heads, n_kv_heads, head_dim, v_head_dim, k_dim, v_dim;
    size_t fill, dead, skip, window, alibi, weights, rows;
    int query_offset, input_exp, weight_exp, bits, common;
    double scale, tolerance;
    char op[16], inputs[8], biases[8], layout[8], keep[8], bias[8], kv_lengths[32], causal[16],
        masked_rows[8];
};

/* All rows of a file, to free. NULL, with a message on stderr, if it can't be read or has a
 * malformed row. */
struct golden_case *golden_read_cases(const char *path, size_t *count);

/* The word kv_lengths as numbers; returns how many. */
size_t golden_kv_lengths(const struct golden_case *c, size_t lengths[GOLDEN_MAX_BATCH]);

#endif
