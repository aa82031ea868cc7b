/* SPDX-License-Identifier: MIT
 *
 * The faults that other attention libraries shipped, one test for each kind, small enough to
 * check by hand where that is possible: masks here, test_nan.c and test_sizes.c have the rest.
 * The tables' tests cover more of the same.
 */
#include "cases.h"
#include "oracle.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const struct place at_end = {AT_END, 0};

/* Queries that are 0, so that every key scores 0 and its weight is 1 / keys attended to;
 * values that are the rows of a unit matrix, so that the output is the weights. */
enum { MOST = 16 };
static const float zeros[MOST * MOST];
static float unit[MOST * MOST];

static void attend_evenly(size_t q_len, size_t kv_len, const mha_mask *mask, float *weights) {
    for (size_t i = 0; i < kv_len; i++) {
        for (size_t j = 0; j < kv_len; j++) {
            unit[i * kv_len + j] = i == j ? 1.0f : 0.0f;
        }
    }
    mha_context *context = new_context();
    mha_attention_args args = one_head(q_len, kv_len, 1, zeros, zeros, unit, weights);
    args.v_head_dim = kv_len;
    args.mask = mask;
    ck_assert_succeeds(mha_attention(context, &args));
    mha_context_destroy(&context);
}

/* Rows of expected: "1100" attends to the first two of four keys. */
static void check_evenly(const char *name, const mha_mask *mask, size_t kv_len, const char **rows,
                         size_t q_len) {
    float expected[MOST * MOST], actual[MOST * MOST];
    begin_case("%s", name);
    for (size_t i = 0; i < q_len; i++) {
        float n = 0.0f;
        for (size_t j = 0; j < kv_len; j++) {
            n += rows[i][j] == '1' ? 1.0f : 0.0f;
        }
        for (size_t j = 0; j < kv_len; j++) {
            expected[i * kv_len + j] = rows[i][j] == '1' ? 1.0f / n : 0.0f;
        }
    }
    attend_evenly(q_len, kv_len, mask, actual);
    ck_assert_same("weights", expected, kv_len, actual, kv_len, q_len, kv_len);
}

START_TEST(mask_polarity) {
    const uint8_t keep[] = {1, 0, 2, 255, 0, 128};
    check_evenly("nonzero keeps", &(mha_mask){.keep = keep}, 6, (const char *[]){"101101"}, 1);
    const float bias[] = {0.0f, -INFINITY, 0.0f};
    check_evenly("-inf masks", &(mha_mask){.bias = bias}, 3, (const char *[]){"101"}, 1);
}
END_TEST

START_TEST(causal_with_unequal_lengths) {
    const mha_mask top = {.causal = MHA_CAUSAL_TOP_LEFT};
    const mha_mask bottom = {.causal = MHA_CAUSAL_BOTTOM_RIGHT};
    check_evenly("top-left 2 x 4", &top, 4, (const char *[]){"1000", "1100"}, 2);
    check_evenly("bottom-right 2 x 4", &bottom, 4, (const char *[]){"1110", "1111"}, 2);
    check_evenly("top-left 3 x 3", &top, 3, (const char *[]){"100", "110", "111"}, 3);
    check_evenly("bottom-right 3 x 3", &bottom, 3, (const char *[]){"100", "110", "111"}, 3);
    check_evenly("top-left 4 x 2", &top, 2, (const char *[]){"10", "11", "11", "11"}, 4);
    check_evenly("bottom-right 4 x 2", &bottom, 2, (const char *[]){"00", "00", "10", "11"}, 4);
    const size_t length = 3;
    const mha_mask shorter = {.causal = MHA_CAUSAL_BOTTOM_RIGHT, .kv_lengths = &length};
    check_evenly("bottom-right of 3 keys", &shorter, 5, (const char *[]){"11000", "11100"}, 2);
    const mha_mask later = {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = 2};
    check_evenly("top-left from query 2", &later, 4, (const char *[]){"1110", "1111"}, 2);
}
END_TEST

START_TEST(windows) {
    const mha_mask both = {.window_left = 2, .window_right = 2};
    check_evenly("window of 2", &both, 4, (const char *[]){"1100", "1110", "0111", "0011"}, 4);
    const mha_mask past = {.window_left = 2, .window_right = 2, .causal = MHA_CAUSAL_TOP_LEFT};
    check_evenly("causal window", &past, 4, (const char *[]){"1000", "1100", "0110", "0011"}, 4);
    const mha_mask self = {.window_left = 1, .window_right = 1};
    check_evenly("window of 1", &self, 3, (const char *[]){"100", "010", "001"}, 3);
}
END_TEST

START_TEST(grouped_heads_are_repeated) {
    const float value[] = {1.0f, 2.0f, 3.0f}, expected[] = {1, 1, 2, 2, 3, 3};
    float actual[6];
    begin_case("6 heads read 3");
    mha_context *context = new_context();
    mha_attention_args args = {.batch = 1,
                               .n_heads = 6,
                               .n_kv_heads = 3,
                               .q_len = 1,
                               .kv_len = 1,
                               .head_dim = 1,
                               .query = zeros,
                               .key = zeros,
                               .value = value,
                               .output = actual};
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert_same("output", expected, 6, actual, 6, 1, 6);
    mha_context_destroy(&context);
}
END_TEST

START_TEST(fillers_do_not_mask) {
    /* With the filler, key 0 is still the likelier of the two. */
    float query = 1.0f, key[] = {0.0f, -20000.0f}, bias[] = {-10000.0f, 0.0f};
    float value[] = {1.0f, 2.0f}, output;
    begin_case("a filler of -1e4");
    mha_mask mask = {.bias = bias};
    mha_context *context = new_context();
    mha_attention_args args = one_head(1, 2, 1, &query, key, value, &output);
    args.mask = &mask;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(output == 1.0f);
    /* A row of nothing but the lowest float is a row of equals, not a masked one. */
    begin_case("a row of the lowest float");
    bias[0] = bias[1] = -FLT_MAX;
    key[1] = 0.0f;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(output == 1.5f);
    mha_context_destroy(&context);
}
END_TEST

/* Rows without a key, one for each possible reason; 3 keys and 600. */
START_TEST(rows_with_no_key) {
    static const struct {
        const char *name;
        bool keep, bias, length, kv_len;
        mha_mask mask;
    } rows[] = {
        {.name = "keep", .keep = true},
        {.name = "bias", .bias = true},
        {.name = "length", .length = true},
        {.name = "no keys at all", .kv_len = true},
        {.name = "causal", .mask = {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = -2}},
        {.name = "window", .mask = {.window_left = 5, .window_right = 5, .query_offset = 10000}},
    };
    mha_context *context = new_context();
    const size_t none = 0, widths[] = {3, 600};
    uint8_t keep[600] = {0};
    float bias[600];
    for (size_t j = 0; j < 600; j++) {
        bias[j] = -INFINITY;
    }
    for (size_t n = 0; n < 4 * sizeof rows / sizeof *rows; n++) {
        size_t r = n / 4, kv_len = widths[n % 2];
        bool uniform = n / 2 % 2;
        struct generator g =
            begin_case("%s, %zu keys, %s", rows[r].name, kv_len, uniform ? "uniform" : "zero");
        struct shape_case shape = {"", 1, 2, kv_len, 8, 2, .biases = "qkvo"};
        shape.masked_rows = uniform ? MHA_MASKED_ROWS_UNIFORM : MHA_MASKED_ROWS_ZERO;
        struct forward_problem p;
        make_forward(&g, &shape, &mask_cases[0], at_end, &p);
        mha_mask mask = rows[r].mask;
        mask.keep = rows[r].keep ? keep : NULL;
        mask.bias = rows[r].bias ? bias : NULL;
        mask.kv_lengths = rows[r].length ? &none : NULL;
        p.args.mask = &mask;
        p.args.kv_len = kv_len = rows[r].kv_len ? 0 : kv_len;
        mha_layer *layer = new_layer(&p);
        float output[16], *attention = p.args.attention;
        ck_assert_succeeds(mha_forward(context, layer, &p.args));
        memcpy(output, p.args.output, sizeof output);
        p.args.attention = NULL;
        ck_assert_succeeds(mha_forward(context, layer, &p.args));
        ck_assert_same("output without weights", output, 8, p.args.output, 8, 2, 8);

        bool average = uniform && !rows[r].length && !rows[r].kv_len;
        for (size_t j = 0; j < 2 * 2 * kv_len; j++) {
            float weight = average ? 1.0f / (float)kv_len : 0.0f;
            ck_assert_msg(fabsf(attention[j] - weight) <= weight * 0x1p-23f, "%s: weight %zu is %g",
                          case_name(), j, (double)attention[j]);
        }
        struct oracle oracle;
        oracle_forward(&p.config, &p.weights, &p.args, &oracle);
        ck_assert(oracle_agrees("output", oracle.output, output, 2, 8));
        if (!average) {
            ck_assert_same("output", p.weights.o_bias, 0, output, 8, 2, 8);
        }
        oracle_free(&oracle);
        mha_layer_destroy(&layer);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

START_TEST(first_key_blocks_wholly_masked) {
    enum { KEYS = 2100, BLOCK = 512 };
    uint8_t keep[KEYS];
    float bias[KEYS];
    mha_context *context = new_context();
    /* Bit b masks block b. */
    for (unsigned masked = 1; masked < 32; masked++) {
        struct generator g = begin_case("blocks 0x%x masked", masked);
        struct shape_case shape = {"", 1, 3, KEYS, 0, 1, 0, 4, .layouts = "...."};
        struct attention_problem p;
        make_attention(&g, &shape, &mask_cases[0], at_end, &p);
        for (size_t j = 0; j < KEYS; j++) {
            keep[j] = !(masked >> j / BLOCK & 1);
            bias[j] = keep[j] ? 0.25f : -INFINITY;
        }
        const mha_mask masks[] = {{.keep = keep}, {.bias = bias}};
        for (size_t i = 0; i < 2; i++) {
            p.args.mask = &masks[i];
            ck_assert_succeeds(mha_attention(context, &p.args));
            struct oracle oracle;
            oracle_attention(&p.args, &oracle);
            ck_assert(oracle_agrees("output", oracle.output, p.args.output, 3, 4));
            ck_assert(oracle_agrees("attention", oracle.attention, p.args.attention, 3, KEYS));
            oracle_free(&oracle);
        }
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("faults");
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, mask_polarity);
    tcase_add_test(tests, causal_with_unequal_lengths);
    tcase_add_test(tests, windows);
    tcase_add_test(tests, grouped_heads_are_repeated);
    tcase_add_test(tests, fillers_do_not_mask);
    tcase_add_test(tests, rows_with_no_key);
    tcase_add_test(tests, first_key_blocks_wholly_masked);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
