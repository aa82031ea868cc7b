/* SPDX-License-Identifier: MIT
 *
 * The cases whose results golden_bits.txt holds, and their inputs. Inputs depend on nothing
 * but the case: a change here that alters them makes the file worthless.
 */
#ifndef MHA_TEST_BITS_CASE_H
#define MHA_TEST_BITS_CASE_H

#include "support.h"

struct bits_case {
    const char *name;
    /* As in mha_config and the arguments; 0 stands for the same defaults. */
    size_t batch, q_len, kv_len, d_model, n_heads, n_kv_heads, head_dim, v_head_dim, k_dim, v_dim;
    bool bare; /* mha_attention, not mha_forward */
    bool biases;
    float scale;
    bool uniform;      /* masked_rows */
    int exponent;      /* queries are in [-1, 1) times 2 to this power */
    unsigned infinite; /* of 1,024 values, how many are NaN or infinite */
    /* Masks: of 16 keys, how many are masked, 16 in one row of eight; 0: no such part. */
    unsigned keep; /* [batch][head][query][key] */
    unsigned bias; /* [1][head][query][key] */
    const size_t *lengths;
    mha_causal causal;
    size_t window;
    float slope; /* of ALiBi, head 0; halved from head to head; 0: no ALiBi */
    int64_t offset;
};

extern const struct bits_case bits_cases[];
extern const size_t n_bits_cases;

/* The arguments of a case: those of mha_forward, or of mha_attention if it is bare. */
struct bits_problem {
    mha_config config;
    mha_weights weights;
    mha_forward_args forward;
    mha_attention_args attention;
    mha_mask mask;
    float *output, *probabilities; /* prefilled with NaN */
    size_t outputs, probability_count;
    void *owned[16];
    size_t n_owned;
};

void make_bits_problem(const struct bits_case *c, struct bits_problem *problem);
void free_bits_problem(struct bits_problem *problem);

/* FNV-1a over the floats' bytes, least significant first; every NaN counts as 0x7fc00000. */
uint64_t hash_floats(const float *data, size_t count);

#endif
