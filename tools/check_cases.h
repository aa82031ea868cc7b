/* SPDX-License-Identifier: MIT
 *
 * What mha check computes: a list of attention layers and calls, directed ones and random
 * ones, with inputs from an integer generator, so that they are the same on every
 * machine. Knows nothing of ISAs and compares nothing.
 */
#ifndef MHA_TOOL_CHECK_CASES_H
#define MHA_TOOL_CHECK_CASES_H

#include <stdbool.h>

#include "mha.h"

enum check_values {
    VALUES_ORDINARY = 0, /* in [-1, 1), weights of a layer's usual size */
    VALUES_PEAKED,       /* scores in the thousands: all but one weight near 0 */
    VALUES_HUGE,         /* products overflow to infinity and NaN */
    VALUES_TINY,         /* subnormal */
    VALUES_MIXED,        /* all of these side by side, and zeros of both signs */
    VALUES_SPECIAL,      /* with NaN and infinities among them */
};

/* Zero stands for the default, as in mha.h, except in lengths. */
struct check_case {
    const char *name;
    mha_config config;
    size_t batch, q_len, kv_len;
    bool cross; /* separate key and value; else self-attention (kv_len = q_len) */
    bool no_biases;
    bool keep, bias, lengths, alibi;
    mha_causal causal;
    size_t window; /* to both sides */
    int64_t query_offset;
    enum check_values values;
};

/* A case that is ready to compute. */
struct problem {
    mha_layer *layer;
    mha_config config;     /* without defaults */
    mha_forward_args args; /* all but the outputs */
    mha_mask mask;
    size_t output_count, attention_count; /* elements */
    void *owned[16];
    size_t n_owned;
};

size_t check_case_count(bool quick);
struct check_case check_case_at(size_t index, uint64_t seed);

/* On failure *problem is empty. The problem must stay where it is. */
bool problem_create(const struct check_case *check, size_t index, uint64_t seed,
                    struct problem *problem);
void problem_destroy(struct problem *problem);

/* "batch 2, q_len 5, …" of a problem. */
void problem_describe(const struct problem *problem, char *out, size_t capacity);

#endif
