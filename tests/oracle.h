/* SPDX-License-Identifier: MIT
 *
 * What the library should compute, in binary64 by the textbook formulas: no blocks, no
 * tiles, nothing of the library's but its public structs. Each number comes with a bound on
 * how far binary32 arithmetic by docs/numerics.md may be from it; oracle.c and oracle_attend.c
 * derive it.
 */
#ifndef MHA_TEST_ORACLE_H
#define MHA_TEST_ORACLE_H

#include <stdbool.h>
#include <stddef.h>

#include "mha.h"

struct oracle_number {
    double value; /* NaN where the library owes a NaN */
    double bound; /* 0: the library owes exactly this value */
};

/* Dense, whatever the strides of the caller's output. Both are always computed. */
struct oracle {
    struct oracle_number *output;
    /* What args->result says: [batch][n_heads][q_len][kv_len], or without heads their mean. */
    struct oracle_number *attention;
};

/* output: [batch][q_len][d_model], or [n_heads * v_head_dim] without an output projection.
 * Defaults in the structs may be left to fill in. To be called before the output is written, if
 * it is the query's memory. */
void oracle_forward(const mha_config *config, const mha_weights *weights,
                    const mha_forward_args *args, struct oracle *oracle);

/* output: [batch][n_heads][q_len][v_head_dim] */
void oracle_attention(const mha_attention_args *args, struct oracle *oracle);

void oracle_free(struct oracle *oracle);

/* Whether each element of actual[rows][columns] is within its bound. If not, prints the
 * case's name and the first elements that aren't. */
bool oracle_agrees(const char *what, const struct oracle_number *expected, const float *actual,
                   size_t rows, size_t columns);

/* The largest bound as a share of the largest value: how much a test can't see. 0 if all are
 * exact. */
double oracle_blindness(const struct oracle_number *expected, size_t count);

#endif
