/* SPDX-License-Identifier: MIT
 *
 * The two parts of the oracle: oracle.c makes numbers of the caller's arrays and applies the
 * linear layers, oracle_attend.c attends. Not for tests.
 */
#ifndef MHA_TEST_ORACLE_ATTEND_H
#define MHA_TEST_ORACLE_ATTEND_H

#include "oracle.h"

#define ORACLE_UNIT 0x1p-24
/* Covers all underflow of one term. */
#define ORACLE_TINY 0x1p-120

/* The largest relative error of n roundings. */
static inline double oracle_gamma(size_t n) {
    return (double)n * ORACLE_UNIT / (1.0 - (double)n * ORACLE_UNIT);
}

/* Zeros, to be freed. */
struct oracle_number *oracle_numbers(size_t count);

/* One attention problem. Arrays are [batch][len][heads][dim]. */
struct oracle_problem {
    size_t batch, n_heads, n_kv_heads, q_len, kv_len, head_dim, v_head_dim;
    double scale, scale_bound;
    double softcap; /* 0: none */
    bool uniform;
    const float *sinks;
    const mha_mask *mask;
    mha_result result;
    const struct oracle_number *query, *key, *value;
};

/* The number of queries of a sequence that count, and of its keys. */
size_t oracle_q_length(const struct oracle_problem *p, size_t b);
size_t oracle_kv_length(const struct oracle_problem *p, size_t b);

/* Row i of head h of sequence b goes to output[b * batch + h * head + i * row]. attention: what
 * the result says, dense. Both are zeros before. */
void oracle_attend(const struct oracle_problem *p, struct oracle_number *output,
                   mha_strides strides, struct oracle_number *attention);

#endif
