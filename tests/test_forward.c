/* SPDX-License-Identifier: MIT
 *
 * mha_forward against the oracle: every shape of a table with every mask of another, each of the
 * caller's arrays between guard pages and, once, 4 bytes off every alignment.
 */
#include "cases.h"
#include "oracle.h"

#include <stdlib.h>

static const struct place at_start = {AT_START, 0};
static const struct place at_end = {AT_END, 0};
static const struct place off_alignment = {AT_START, 4};

static void try_forward(struct generator *generator, mha_context *context,
                        const struct shape_case *shape, const struct mask_case *mask,
                        struct place place) {
    struct forward_problem p;
    make_forward(generator, shape, mask, place, &p);
    mha_layer *layer = new_layer(&p);
    struct oracle oracle;
    oracle_forward(&p.config, &p.weights, &p.args, &oracle);
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    size_t kv_len = shape->kv_len ? shape->kv_len : shape->q_len;
    float *output = gather_forward(&p);
    ck_assert_msg(oracle_agrees("output", oracle.output, output, p.rows, p.width), "%s: output",
                  case_name());
    free(output);
    ck_assert_msg(oracle_agrees("attention", oracle.attention, p.args.attention,
                                p.attentions / kv_len, kv_len),
                  "%s: attention", case_name());
    ck_assert_double_lt(oracle_blindness(oracle.output, p.rows * p.width), 0.05);
    oracle_free(&oracle);
    mha_layer_destroy(&layer);
    guarded_free_all();
}

START_TEST(shapes_and_masks) {
    const struct shape_case *shape = &layer_cases[_i];
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        const struct mask_case *mask = &mask_cases[m];
        struct generator g = begin_case("layer \"%s\", mask \"%s\"", shape->name, mask->name);
        struct place place = m % 3 == 0 ? off_alignment : m % 3 == 1 ? at_start : at_end;
        try_forward(&g, context, shape, mask, place);
        try_forward(&g, context, shape, mask, m % 3 == 2 ? at_start : at_end);
    }
    mha_context_destroy(&context);
}
END_TEST

START_TEST(subsets_of_biases) {
    char biases[5] = "";
    for (int bit = 0, n = 0; bit < 4; bit++) {
        if (_i >> bit & 1) {
            biases[n++] = "qkvo"[bit];
        }
    }
    struct shape_case shape = {"biases", 2, 5, 6, 10, 2, 1, 7, 3, 9, 8, .biases = biases};
    struct generator g = begin_case("biases \"%s\"", biases);
    mha_context *context = new_context();
    try_forward(&g, context, &shape, &mask_cases[0], at_end);
    try_forward(&g, context, &shape, MASK_OF_ALL_PARTS, at_start);
    mha_context_destroy(&context);
}
END_TEST

/* Tails of every length in all four linear layers and in the heads. */
START_TEST(odd_widths) {
    size_t n = (size_t)_i;
    mha_context *context = new_context();
    for (size_t rows = 1; rows <= 35; rows += 2) {
        struct shape_case shape = {"widths", 1,      rows,  36 - rows,
                                   n,        2,      1,     41 - n,
                                   n,        42 - n, 2 * n, .biases = n % 2 ? "qkvo" : ""};
        struct generator g = begin_case("width %zu, %zu queries", n, rows);
        try_forward(&g, context, &shape, &mask_cases[0], n % 3 ? at_end : at_start);
    }
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("forward");
    TCase *tests = tcase_create("forward");
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, shapes_and_masks, 0, (int)n_layer_cases);
    tcase_add_loop_test(tests, subsets_of_biases, 0, 16);
    tcase_add_loop_test(tests, odd_widths, 1, 41);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
