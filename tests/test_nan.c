/* SPDX-License-Identifier: MIT
 *
 * Faults that other attention libraries shipped, second part: what NaN and infinity may reach
 * and what they must.
 */
#include "cases.h"
#include "oracle.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct place at_end = {AT_END, 0};

static const float poisons[] = {NAN, INFINITY, -INFINITY, FLT_MAX};

/* Key j of a sequence is attended to by a query of some head that reads it. */
static bool anyone_attends(const struct attention_problem *p, const struct oracle *oracle, size_t b,
                           size_t kv_head, size_t j) {
    const mha_attention_args *a = &p->args;
    size_t group = a->n_kv_heads ? a->n_heads / a->n_kv_heads : 1;
    for (size_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
        for (size_t i = 0; i < a->q_len; i++) {
            if (oracle->attention[((b * a->n_heads + h) * a->q_len + i) * a->kv_len + j].value !=
                0.0) {
                return true;
            }
        }
    }
    return false;
}

/* Every key that is masked for all queries that could read it is poisoned: no bit may change. */
START_TEST(what_is_masked_does_not_leak) {
    const struct mask_case *mask = &mask_cases[_i];
    mha_context *context = new_context();
    for (size_t n = 0; n < 12; n += mask_step()) {
        struct generator g = begin_case("poison %zu, mask \"%s\"", n, mask->name);
        struct shape_case shape = {"", 3, 4, n % 2 ? 40 : 540, 0,
                                   4,  2, 5, n % 3 ? 3 : 16,   .layouts = "...."};
        struct attention_problem p;
        make_attention(&g, &shape, mask, at_end, &p);
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *expected = gather_output(&p);
        float *attention = copy_floats(p.args.attention, p.attentions);

        struct oracle oracle;
        oracle_attention(&p.args, &oracle);
        for (size_t b = 0; b < 3; b++) {
            for (size_t h = 0; h < 2; h++) {
                for (size_t j = 0; j < shape.kv_len; j++) {
                    if (anyone_attends(&p, &oracle, b, h, j)) {
                        continue;
                    }
                    size_t row = (b * 2 + h) * shape.kv_len + j;
                    float *key = (float *)p.args.key + row * shape.head_dim;
                    float *value = (float *)p.args.value + row * shape.v_head_dim;
                    key[next_below(&g, shape.head_dim)] = poisons[n % 4];
                    value[next_below(&g, shape.v_head_dim)] = poisons[(n + j) % 4];
                }
            }
        }
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *actual = gather_output(&p);
        size_t rows = 3 * 4 * shape.q_len;
        ck_assert_same("output", expected, shape.v_head_dim, actual, shape.v_head_dim, rows,
                       shape.v_head_dim);
        ck_assert_same("attention", attention, shape.kv_len, p.args.attention, shape.kv_len, rows,
                       shape.kv_len);
        free(expected);
        free(actual);
        free(attention);
        oracle_free(&oracle);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* A few keys, values, queries and biases are poisoned: the queries that attend to them show it,
 * in the elements that they reach; no others do. */
START_TEST(what_is_attended_shows) {
    const struct mask_case *mask = &mask_cases[_i];
    mha_context *context = new_context();
    for (size_t n = 0; n < 12; n += mask_step()) {
        struct generator g = begin_case("attended poison %zu, mask \"%s\"", n, mask->name);
        /* With ALiBi, the weights of far keys are 0, regardless of the near ones. */
        size_t kv_len = n % 2 || mask->slope != 0.0f ? 40 : 540;
        struct shape_case shape = {"", 2, 20, kv_len, 0, 2, 1, 5, 17, .layouts = "...."};
        struct attention_problem p;
        make_attention(&g, &shape, mask, at_end, &p);
        for (size_t i = 0; i < 3; i++) {
            size_t row = next_below(&g, 2 * shape.kv_len);
            if (n % 3 != 0) {
                ((float *)p.args.value)[row * 17 + next_below(&g, 17)] = poisons[n % 2];
            }
            if (n % 3 != 1) {
                ((float *)p.args.key)[row * 5 + next_below(&g, 5)] = NAN;
            }
        }
        ((float *)p.args.query)[next_below(&g, 2 * 2 * 20 * 5)] = NAN;
        size_t keys = longest_length(p.mask.kv_lengths, 2, shape.kv_len);
        if (p.mask.bias && keys > 0 && longest_length(p.mask.q_lengths, 2, 20) > 0) {
            ((float *)p.mask.bias)[next_below(&g, keys)] = NAN;
        }
        ck_assert_succeeds(mha_attention(context, &p.args));
        struct oracle oracle;
        oracle_attention(&p.args, &oracle);
        size_t rows = 2 * 2 * shape.q_len;
        ck_assert_msg(oracle_agrees("output", oracle.output, p.args.output, rows, 17), "%s",
                      case_name());
        ck_assert_msg(
            oracle_agrees("attention", oracle.attention, p.args.attention, rows, shape.kv_len),
            "%s", case_name());
        oracle_free(&oracle);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* One sequence of NaN, projections included, leaves the others' bits alone. */
START_TEST(sequences_do_not_leak) {
    struct generator g = begin_case("NaN in the second of three sequences");
    const struct shape_case shape = {"", 3, 5, 40, 12, 3, .biases = "kv"};
    struct forward_problem p;
    make_forward(&g, &shape, &mask_cases[0], at_end, &p);
    mha_layer *layer = new_layer(&p);
    mha_context *context = new_context();
    float clean[3 * 5 * 12];
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    memcpy(clean, p.args.output, sizeof clean);
    memset((float *)p.args.key + 40 * 12, 0xff, 40 * 12 * sizeof(float));
    memset((float *)p.args.value + 40 * 12, 0xff, 40 * 12 * sizeof(float));
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    memset(clean + 5 * 12, 0xff, 5 * 12 * sizeof *clean);
    ck_assert_same("output", clean, 12, p.args.output, 12, 15, 12);
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
}
END_TEST

/* A masked key whose values overflow in one head only, for each head. */
START_TEST(heads_do_not_leak) {
    enum { HEADS = 3, DIM = 4, WIDTH = HEADS * DIM, KEYS = 40, MASKED = 7 };
    struct generator g = begin_case("infinite values in head %d", _i);
    const struct shape_case shape = {"", 1, 5, KEYS, WIDTH, HEADS, .biases = ""};
    struct forward_problem p;
    make_forward(&g, &shape, &mask_cases[0], at_end, &p);
    for (size_t n = 0; n < WIDTH; n++) {
        for (size_t k = 0; k < WIDTH; k++) {
            ((float *)p.weights.v)[n * WIDTH + k] = n / DIM == (size_t)_i ? 1.0f : 0x1p-5f;
        }
    }
    uint8_t keep[KEYS];
    memset(keep, 1, sizeof keep);
    keep[MASKED] = 0;
    const mha_mask mask = {.keep = keep};
    p.args.mask = &mask;
    mha_layer *layer = new_layer(&p);
    mha_context *context = new_context();
    float clean[5 * WIDTH];
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    memcpy(clean, p.args.output, sizeof clean);
    for (size_t k = 0; k < WIDTH; k++) {
        ((float *)p.args.value)[MASKED * WIDTH + k] = FLT_MAX;
    }
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    ck_assert_same("output", clean, WIDTH, p.args.output, WIDTH, 5, WIDTH);
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
}
END_TEST

/* Scores of -inf by infinite inputs are not a mask: softmax of nothing else is NaN. */
START_TEST(scores_of_minus_infinity_are_no_mask) {
    float query = -1.0f, key[] = {INFINITY, INFINITY, 0.0f}, value[] = {1.0f, 2.0f, 3.0f};
    float output, attention[3];
    begin_case("-inf scores");
    mha_context *context = new_context();
    mha_attention_args args = one_head(1, 3, 1, &query, key, value, &output);
    args.attention = attention;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(output == 3.0f && attention[0] == 0.0f && attention[2] == 1.0f);
    args.kv_len = 2;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(isnan(output) && isnan(attention[0]) && isnan(attention[1]));
    mha_context_destroy(&context);
}
END_TEST

/* An ALiBi term that overflows to -inf masks its key, as the same number in a bias does. */
START_TEST(alibi_overflow_masks) {
    enum { QUERIES = 3, KEYS = 40 };
    struct generator g = begin_case("overflow of ALiBi, %s rows", _i ? "uniform" : "zero");
    float query[QUERIES], key[KEYS], value[KEYS];
    fill_floats(&g, query, QUERIES);
    fill_floats(&g, key, KEYS);
    fill_floats(&g, value, KEYS);
    value[9] = NAN; /* masked for all queries but the one at 9 or 10 */
    mha_context *context = new_context();
    const int64_t offsets[] = {0, 5, -1, -2, -50, 100};
    for (size_t n = 0; n < sizeof offsets / sizeof *offsets; n++) {
        float slope = FLT_MAX, bias[QUERIES][KEYS];
        for (int64_t i = 0; i < QUERIES; i++) {
            for (int64_t j = 0; j < KEYS; j++) {
                int64_t distance = i + offsets[n] > j ? i + offsets[n] - j : j - i - offsets[n];
                bias[i][j] = distance > 1 ? -INFINITY : -FLT_MAX * (float)distance;
            }
        }
        float output[2][QUERIES], attention[2][QUERIES][KEYS];
        for (size_t k = 0; k < 2; k++) {
            mha_mask mask = {.query_offset = offsets[n]};
            if (k == 0) {
                mask.alibi_slopes = &slope;
            } else {
                mask.bias = bias[0];
                mask.bias_query_stride = KEYS;
            }
            mha_attention_args args = one_head(QUERIES, KEYS, 1, query, key, value, output[k]);
            args.attention = attention[k][0];
            args.mask = &mask;
            args.masked_rows = _i ? MHA_MASKED_ROWS_UNIFORM : MHA_MASKED_ROWS_ZERO;
            ck_assert_succeeds(mha_attention(context, &args));
        }
        ck_assert_same("output", output[1], 1, output[0], 1, QUERIES, 1);
        ck_assert_same("attention", attention[1][0], KEYS, attention[0][0], KEYS, QUERIES, KEYS);
        if (offsets[n] == 100 || offsets[n] == -50) { /* out of reach of all keys */
            ck_assert(_i ? isnan(output[0][0]) : output[0][0] == 0.0f);
        }
    }
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("nan");
    TCase *tests = tcase_create("nan");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, what_is_masked_does_not_leak, 0, (int)n_mask_cases);
    tcase_add_loop_test(tests, what_is_attended_shows, 0, (int)n_mask_cases);
    tcase_add_test(tests, sequences_do_not_leak);
    tcase_add_loop_test(tests, heads_do_not_leak, 0, 3);
    tcase_add_test(tests, scores_of_minus_infinity_are_no_mask);
    tcase_add_loop_test(tests, alibi_overflow_masks, 0, 2);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
