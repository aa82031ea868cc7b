/* SPDX-License-Identifier: MIT
 *
 * mha_attention against the oracle: views and masks of the tables, all head sizes, and views
 * into one packed array.
 */
#include "cases.h"
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

static const struct place at_start = {AT_START, 0};
static const struct place at_end = {AT_END, 0};
static const struct place off_alignment = {AT_START, 4};

static void check(const struct attention_problem *p) {
    const mha_attention_args *a = &p->args;
    size_t rows = a->batch * a->n_heads * a->q_len;
    size_t v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    struct oracle oracle;
    oracle_attention(a, &oracle);
    float *output = gather_output(p);
    ck_assert_msg(oracle_agrees("output", oracle.output, output, rows, v_head_dim), "%s: output",
                  case_name());
    ck_assert_msg(oracle_agrees("attention", oracle.attention, a->attention,
                                p->attentions / a->kv_len, a->kv_len),
                  "%s: attention", case_name());
    ck_assert_double_lt(oracle_blindness(oracle.output, rows * v_head_dim), 0.05);
    free(output);
    oracle_free(&oracle);
}

static void try_attention(struct generator *generator, mha_context *context,
                          const struct shape_case *shape, const struct mask_case *mask,
                          struct place place) {
    struct attention_problem p;
    make_attention(generator, shape, mask, place, &p);
    ck_assert_succeeds(mha_attention(context, &p.args));
    check(&p);
    guarded_free_all();
}

START_TEST(views_and_masks) {
    const struct shape_case *shape = &view_cases[_i];
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        const struct mask_case *mask = &mask_cases[m];
        struct generator g = begin_case("view \"%s\", mask \"%s\"", shape->name, mask->name);
        struct place place = m % 3 == 0 ? off_alignment : m % 3 == 1 ? at_start : at_end;
        try_attention(&g, context, shape, mask, place);
        try_attention(&g, context, shape, mask, m % 3 == 2 ? at_start : at_end);
    }
    mha_context_destroy(&context);
}
END_TEST

static const size_t head_dims[] = {1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11, 12, 13, 14,
                                   15, 16, 17, 18, 19, 20, 21, 22,  23,  24,  25, 26, 27, 28,
                                   29, 30, 31, 32, 33, 34, 35, 36,  37,  38,  39, 40, 47, 48,
                                   49, 63, 64, 65, 72, 80, 96, 100, 127, 128, 129};
enum { HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

START_TEST(head_sizes) {
    size_t dim = head_dims[_i];
    mha_context *context = new_context();
    for (size_t i = 0; i < HEAD_DIMS; i += mask_step() + i % 5) {
        struct shape_case shape = {
            "heads", 2, 5, 19 + i, 0, 2, 1, dim, head_dims[i], .layouts = i % 2 ? "...." : "iiii"};
        struct generator g = begin_case("head_dim %zu, v_head_dim %zu", dim, head_dims[i]);
        try_attention(&g, context, &shape, &mask_cases[0], at_end);
        try_attention(&g, context, &shape, MASK_OF_ALL_PARTS, at_start);
    }
    mha_context_destroy(&context);
}
END_TEST

/* Rows of q_len below, equal to and above kv_len, at every step around a panel. */
START_TEST(lengths) {
    size_t q_len = (size_t)_i;
    mha_context *context = new_context();
    for (size_t kv_len = 1; kv_len <= 34; kv_len++) {
        for (size_t m = 0; m < n_mask_cases; m += mask_step() * (1 + (q_len + kv_len) % 7)) {
            struct shape_case shape = {"lengths", 2, q_len, kv_len, 0, 1, 0, 3, .layouts = "...."};
            struct generator g =
                begin_case("%zu queries, %zu keys, mask \"%s\"", q_len, kv_len, mask_cases[m].name);
            try_attention(&g, context, &shape, &mask_cases[m], at_end);
        }
    }
    mha_context_destroy(&context);
}
END_TEST

/* What a fused projection gives: one array [batch][len][3][head][dim]. */
START_TEST(packed_views) {
    const size_t batch = 2, len = 21, heads = 3, dim = 16, token = 3 * heads * dim;
    struct generator g = begin_case("query, key and value in one array");
    float *packed = guarded_floats(batch * len * token, 0, AT_END);
    fill_floats(&g, packed, batch * len * token);
    mha_strides strides = {len * token, dim, token};
    mha_mask causal = {.causal = MHA_CAUSAL_TOP_LEFT};
    struct attention_problem p = {.outputs = batch * len * heads * dim,
                                  .output_strides = {len * heads * dim, dim, heads * dim}};
    p.args = (mha_attention_args){
        .batch = batch,
        .n_heads = heads,
        .q_len = len,
        .kv_len = len,
        .head_dim = dim,
        .query = packed,
        .query_strides = strides,
        .key = packed + heads * dim,
        .key_strides = strides,
        .value = packed + 2 * heads * dim,
        .value_strides = strides,
        .mask = &causal,
        .output = guarded_floats(p.outputs, 0, AT_END),
        .output_strides = p.output_strides,
        .attention = guarded_floats(batch * heads * len * len, 0, AT_START),
    };
    mha_context *context = new_context();
    ck_assert_succeeds(mha_attention(context, &p.args));
    check(&p);
    mha_context_destroy(&context);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention");
    TCase *tests = tcase_create("attention");
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, views_and_masks, 0, (int)n_view_cases);
    tcase_add_loop_test(tests, head_sizes, 0, HEAD_DIMS);
    tcase_add_loop_test(tests, lengths, 1, 35);
    tcase_add_test(tests, packed_views);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
