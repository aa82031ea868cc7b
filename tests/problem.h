/* SPDX-License-Identifier: MIT
 *
 * From a row of a table to the arguments of a call: every array of the caller's between
 * guard pages, inputs random, outputs prefilled with NaN. Knows nothing of what comes out.
 */
#ifndef MHA_TEST_PROBLEM_H
#define MHA_TEST_PROBLEM_H

#include "support.h"

struct shape_case {
    const char *name;
    size_t batch, q_len, kv_len; /* of a layer: kv_len 0 is self-attention */
    size_t d_model;              /* of layers alone, as k_dim, v_dim and biases */
    size_t n_heads, n_kv_heads, head_dim, v_head_dim, k_dim, v_dim;
    const char *biases; /* of "qkvo", or NULL */
    bool no_projection; /* a layer without an output projection */
    float scale, softcap;
    const char *sinks; /* a letter a head, over and over: see sink_of_letter(); or NULL */
    mha_masked_rows masked_rows;
    const char *layouts; /* of query, key, value, output: see strides_of_layout(); NULL: "...." */
    mha_result result;
};

struct mask_case {
    const char *name;
    /* The dimensions that have their own stride, slowest first, of "bhq" in any order; "": one
     * row for all; NULL: there is no such part. "r", last, instead of "q": rows of queries
     * overlap, a stride of 1 apart (relative positions). key_keep: of "b" alone. */
    const char *keep, *key_keep, *bias;
    bool nonzero_masks;
    unsigned masked; /* how many of 16 keys these parts mask */
    unsigned dead;   /* how many of 16 of their rows mask all keys */
    /* A letter a sequence, over and over: see length_of_letter(); or NULL. */
    const char *lengths; /* of keys */
    const char *q_lengths;
    mha_causal causal;
    size_t window_left, window_right;
    float slope; /* of head 0; the others' are halved one after the other; 0: no ALiBi */
    int64_t offset;
    const int64_t *offsets; /* of three sequences, over and over; or NULL */
};

/* f: all, h: half of them, m: one less, 0 and 1. */
size_t length_of_letter(char letter, size_t all);

/* r: a random score, l: larger than most scores, -: -infinity, which is no sink. */
float sink_of_letter(struct generator *generator, char letter);

/* Where arrays lie: their side of the pages, and how many bytes from it. */
struct place {
    enum guard_side side;
    size_t shift;
};

/* The mask of a problem of these sizes (batch, n_heads, q_len, kv_len). Rows of its parts reach
 * the longest of the lengths, and there are none for queries beyond all of q_lengths. */
void make_mask(struct generator *generator, const struct mask_case *mask,
               const mha_attention_args *sizes, struct place place, mha_mask *made);

/* The largest length of a batch; `all` if there are no lengths. */
size_t longest_length(const size_t *lengths, size_t batch, size_t all);

struct forward_problem {
    mha_config config;
    mha_weights weights;
    mha_forward_args args;
    mha_mask mask;
    size_t rows, width;             /* of the output: batch * q_len, and what it is wide */
    mha_row_strides output_strides; /* with nothing left to fill in */
    size_t outputs;                 /* floats of the output's whole view, gaps included */
    size_t attentions;              /* elements of attention */
};

/* args.mask points into *problem. Inputs beyond a length stay NaN. Layouts of the arrays are
 * those of one head. */
void make_forward(struct generator *generator, const struct shape_case *shape,
                  const struct mask_case *mask, struct place place,
                  struct forward_problem *problem);

/* Layouts of a [batch][head][row][dim] view:
 *   .  dense, by strides left 0
 *   i  [batch][row][head][dim]
 *   s  [row][batch][head][dim]
 *   g  dense but for gaps behind each row, head and sequence
 *   r  [head][row][batch][dim] with gaps behind rows
 * of inputs alone:
 *   b  expanded over the batch: a batch stride of 0
 *   h  expanded over heads: a head stride of 0
 *   k  expanded over rows: a row stride of 0
 *   o  rows that overlap, one element apart
 */
mha_strides strides_of_layout(char layout, size_t batch, size_t heads, size_t rows, size_t dim);

struct attention_problem {
    mha_attention_args args;
    mha_mask mask;
    mha_strides output_strides; /* with nothing left to fill in */
    size_t outputs;             /* floats of the output's whole view, gaps included */
    size_t attentions;          /* elements of attention */
};

void make_attention(struct generator *generator, const struct shape_case *shape,
                    const struct mask_case *mask, struct place place,
                    struct attention_problem *problem);

/* One sequence, one head, all arrays dense; the rest is left 0. */
mha_attention_args one_head(size_t q_len, size_t kv_len, size_t head_dim, const float *query,
                            const float *key, const float *value, float *output);

/* The elements of the output, dense, to memory to free(); fail the test if a gap between
 * them has changed. */
float *gather_output(const struct attention_problem *problem);
float *gather_forward(const struct forward_problem *problem);

/* To memory to free(). */
float *copy_floats(const float *data, size_t count);

/* Whether all bytes are as guarded_alloc() leaves them. */
bool untouched(const void *data, size_t bytes);

/* The context that MHA_ISA asks for, and a layer; fail the test if they can't be had. */
mha_context *new_context(void);
mha_layer *new_layer(const struct forward_problem *problem);

/* Fails the test, with the library's message, unless the call succeeds. */
#define ck_assert_succeeds(call)                                                                   \
    do {                                                                                           \
        mha_status status_ = (call);                                                               \
        ck_assert_msg(status_ == MHA_OK, "%s: status %d, %s", case_name(), (int)status_,           \
                      mha_error_message());                                                        \
    } while (0)

#endif
