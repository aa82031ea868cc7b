/* SPDX-License-Identifier: MIT
 *
 * Subnormal weights and inputs count as zeros; results that are subnormal stay so.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct place at_end = {AT_END, 0};

/* Makes one in `of` subnormal, or zero instead. */
static void spoil(struct generator *g, const float *data, size_t count, size_t of, bool zero) {
    static const float subnormal[] = {1e-39f, -1e-39f, 0x1p-149f, -0x1.fffffcp-127f};
    for (size_t i = 0; data && i < count; i++) {
        float x = subnormal[next_below(g, 4)];
        if (next_below(g, of) == 0) {
            ((float *)data)[i] = zero ? 0.0f : x;
        }
    }
}

/* The output, for free(); with zeros instead of subnormals or not. */
static float *forward_output(size_t of, bool zero) {
    const struct shape_case shape = {"", 2, 21, 40, 24, 4, 2, 5, 3, .biases = "qkvo"};
    struct generator g = begin_case("one in %zu is subnormal", of);
    struct forward_problem p;
    make_forward(&g, &shape, &mask_cases[0], at_end, &p);
    const mha_weights *w = &p.weights;
    spoil(&g, w->q, 20 * 24, of, zero);
    spoil(&g, w->k, 10 * 24, of, zero);
    spoil(&g, w->v, 6 * 24, of, zero);
    spoil(&g, w->o, 24 * 12, of, zero);
    spoil(&g, w->q_bias, 20, of, zero);
    spoil(&g, w->k_bias, 10, of, zero);
    spoil(&g, w->v_bias, 6, of, zero);
    spoil(&g, w->o_bias, 24, of, zero);
    spoil(&g, p.args.query, 2 * 21 * 24, of, zero);
    spoil(&g, p.args.key, 2 * 40 * 24, of, zero);
    spoil(&g, p.args.value, 2 * 40 * 24, of, zero);
    mha_layer *layer = new_layer(&p);
    mha_context *context = new_context();
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    float *output = copy_floats(p.args.output, p.outputs);
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
    return output;
}

/* v_head_dim is padded or not, few queries or many, heads side by side or not. */
static float *attention_output(size_t of, size_t variant, bool zero) {
    size_t v_head_dim = variant % 2 ? 16 : 7, q_len = variant / 2 % 2 ? 210 : 3;
    const struct shape_case shape = {
        "", 1, q_len, 530, 0, 4, 2, 6, v_head_dim, .layouts = variant / 4 ? "iiii" : "...."};
    struct generator g = begin_case("one in %zu is subnormal, variant %zu", of, variant);
    struct attention_problem p;
    make_attention(&g, &shape, &mask_cases[0], at_end, &p);
    spoil(&g, p.args.query, 4 * q_len * 6, of, zero);
    spoil(&g, p.args.key, 2 * 530 * 6, of, zero);
    spoil(&g, p.args.value, 2 * 530 * v_head_dim, of, zero);
    mha_context *context = new_context();
    ck_assert_succeeds(mha_attention(context, &p.args));
    float *output = copy_floats(p.args.output, p.outputs);
    mha_context_destroy(&context);
    guarded_free_all();
    return output;
}

START_TEST(inputs_count_as_zeros) {
    static const size_t shares[] = {1, 3, 100};
    size_t of = shares[_i];
    float *expected = forward_output(of, true), *actual = forward_output(of, false);
    ck_assert_same("output", expected, 1, actual, 1, 2 * 21 * 24, 1);
    free(expected);
    free(actual);
    for (size_t variant = 0; variant < 8; variant++) {
        size_t count = (variant / 2 % 2 ? 4 * 210u : 4 * 3u) * (variant % 2 ? 16u : 7u);
        expected = attention_output(of, variant, true);
        actual = attention_output(of, variant, false);
        ck_assert_same("output", expected, 1, actual, 1, count, 1);
        free(expected);
        free(actual);
    }
}
END_TEST

/* 1e-20 times 1e-20 is 1e-40. */
START_TEST(results_stay) {
    const float weight = 1e-20f, one = 1.0f, input = 1e-20f;
    float output = 0.0f;
    begin_case("a product of 1e-40");
    const mha_weights weights = {.q = &one, .k = &one, .v = &weight, .o = &one};
    mha_layer *layer = NULL;
    ck_assert_succeeds(
        mha_layer_create(&(mha_config){.d_model = 1, .n_heads = 1}, &weights, &layer));
    mha_context *context = new_context();
    const mha_forward_args args = {.batch = 1, .q_len = 1, .query = &input, .output = &output};
    ck_assert_succeeds(mha_forward(context, layer, &args));
    ck_assert(fpclassify(output) == FP_SUBNORMAL && output == weight * input);
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
}
END_TEST

/* A block whose attended scores are all -infinity: its finite values weigh nothing, and a NaN
 * shows in its column alone. */
START_TEST(blocks_of_minus_infinity) {
    enum { KEYS = 1100, DIM = 3 };
    static float query[2], key[KEYS * 2], value[KEYS * DIM], expected[DIM], output[DIM];
    struct generator g = begin_case("block %d scores -infinity", _i);
    mha_context *context = new_context();
    query[0] = 1.0f;
    query[1] = 0.5f;
    fill_floats(&g, key, KEYS * 2);
    fill_floats(&g, value, KEYS * DIM);
    size_t first = 512 * (size_t)_i, end = first + 512 < KEYS ? first + 512 : KEYS;
    for (size_t j = first; j < end; j++) {
        key[j * 2] = -INFINITY;
    }
    mha_attention_args args = one_head(1, KEYS, 2, query, key, value, output);
    args.v_head_dim = DIM;
    /* The same with the block masked. */
    static uint8_t keep[KEYS];
    for (size_t j = 0; j < KEYS; j++) {
        keep[j] = j < first || j >= end;
    }
    args.mask = &(mha_mask){.keep = keep};
    ck_assert_succeeds(mha_attention(context, &args));
    memcpy(expected, output, sizeof output);
    args.mask = NULL;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert_same("output", expected, 1, output, 1, DIM, 1);
    value[(first + 17) * DIM + 1] = NAN;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(isnan(output[1]));
    ck_assert(bits_equal(output[0], expected[0]) && bits_equal(output[2], expected[2]));
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("subnormal");
    TCase *tests = tcase_create("subnormal");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, inputs_count_as_zeros, 0, 3);
    tcase_add_test(tests, results_stay);
    tcase_add_loop_test(tests, blocks_of_minus_infinity, 0, 3);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
