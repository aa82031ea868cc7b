/* SPDX-License-Identifier: MIT
 *
 * The faults that other attention libraries shipped, one test for each kind, small enough to
 * check by hand where that is possible. The tables' tests cover more of the same.
 */
#include "cases.h"
#include "oracle.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct place at_end = {AT_END, 0};

/* Queries that are 0, so that every key scores 0 and its weight is 1 / keys attended to;
 * values that are the rows of a unit matrix, so that the output is the weights. */
enum { MOST = 16 };
static const float zeros[MOST * MOST];
static float unit[MOST * MOST];

static void attend_evenly(size_t q_len, size_t kv_len, const mha_mask *mask, bool uniform,
                          float *weights) {
    for (size_t i = 0; i < kv_len; i++) {
        for (size_t j = 0; j < kv_len; j++) {
            unit[i * kv_len + j] = i == j ? 1.0f : 0.0f;
        }
    }
    mha_context *context = new_context();
    mha_attention_args args = {
        .batch = 1,
        .n_heads = 1,
        .q_len = q_len,
        .kv_len = kv_len,
        .head_dim = 1,
        .v_head_dim = kv_len,
        .masked_rows = uniform ? MHA_MASKED_ROWS_UNIFORM : MHA_MASKED_ROWS_ZERO,
        .query = zeros,
        .key = zeros,
        .value = unit,
        .mask = mask,
        .output = weights,
    };
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
    attend_evenly(q_len, kv_len, mask, false, actual);
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
    const mha_mask both = {.window = 2};
    check_evenly("window of 2", &both, 4, (const char *[]){"1100", "1110", "0111", "0011"}, 4);
    const mha_mask past = {.window = 2, .causal = MHA_CAUSAL_TOP_LEFT};
    check_evenly("causal window", &past, 4, (const char *[]){"1000", "1100", "0110", "0011"}, 4);
    const mha_mask self = {.window = 1};
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
    mha_attention_args args = {.batch = 1,
                               .n_heads = 1,
                               .q_len = 1,
                               .kv_len = 2,
                               .head_dim = 1,
                               .query = &query,
                               .key = key,
                               .value = value,
                               .mask = &mask,
                               .output = &output};
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

/* Rows that one after the other have no key for each reason there is; 3 keys and 600. */
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
        {.name = "causal",
         .mask = {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = -2}},
        {.name = "window", .mask = {.window = 5, .query_offset = 10000}},
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
        struct generator g = begin_case("%s, %zu keys, %s", rows[r].name, kv_len,
                                        uniform ? "uniform" : "zero");
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

/* ---- NaN and infinity ------------------------------------------------------ */

static const float poisons[] = {NAN, INFINITY, -INFINITY, FLT_MAX};

/* Key j of a sequence is attended to by a query of some head that reads it. */
static bool anyone_attends(const struct attention_problem *p, const struct oracle *oracle,
                           size_t b, size_t kv_head, size_t j) {
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

/* Every key that is masked for all who could read it is poisoned: not a bit may change. */
START_TEST(what_is_masked_does_not_leak) {
    const struct mask_case *mask = &mask_cases[_i];
    mha_context *context = new_context();
    for (size_t n = 0; n < 12; n++) {
        struct generator g = begin_case("poison %zu, mask \"%s\"", n, mask->name);
        struct shape_case shape = {"", 3, 4, n % 2 ? 40 : 540, 0, 4, 2, 5, n % 3 ? 3 : 16,
                                   .layouts = "...."};
        struct attention_problem p;
        make_attention(&g, &shape, mask, at_end, &p);
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *expected = gather_output(&p);
        float *attention = malloc((p.attentions + 1) * sizeof *attention);
        ck_assert_ptr_nonnull(attention);
        memcpy(attention, p.args.attention, p.attentions * sizeof *attention);

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

/* A few keys, values, queries and biases are poisoned: who attends to them shows it, and in
 * the elements that they reach; nobody else does. */
START_TEST(what_is_attended_shows) {
    const struct mask_case *mask = &mask_cases[_i];
    mha_context *context = new_context();
    for (size_t n = 0; n < 12; n++) {
        struct generator g = begin_case("attended poison %zu, mask \"%s\"", n, mask->name);
        /* With ALiBi, the weights of far keys are 0 whatever happens nearby. */
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
        if (p.mask.bias) {
            ((float *)p.mask.bias)[next_below(&g, shape.kv_len)] = NAN;
        }
        ck_assert_succeeds(mha_attention(context, &p.args));
        struct oracle oracle;
        oracle_attention(&p.args, &oracle);
        size_t rows = 2 * 2 * shape.q_len;
        ck_assert_msg(oracle_agrees("output", oracle.output, p.args.output, rows, 17), "%s",
                      case_name());
        ck_assert_msg(oracle_agrees("attention", oracle.attention, p.args.attention, rows,
                                    shape.kv_len),
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

/* Scores of -inf by infinite inputs are not a mask: softmax of nothing else is NaN. */
START_TEST(scores_of_minus_infinity_are_no_mask) {
    float query = -1.0f, key[] = {INFINITY, INFINITY, 0.0f}, value[] = {1.0f, 2.0f, 3.0f};
    float output, attention[3];
    begin_case("-inf scores");
    mha_context *context = new_context();
    mha_attention_args args = {.batch = 1,
                               .n_heads = 1,
                               .q_len = 1,
                               .kv_len = 3,
                               .head_dim = 1,
                               .query = &query,
                               .key = key,
                               .value = value,
                               .output = &output,
                               .attention = attention};
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(output == 3.0f && attention[0] == 0.0f && attention[2] == 1.0f);
    args.kv_len = 2;
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert(isnan(output) && isnan(attention[0]) && isnan(attention[1]));
    mha_context_destroy(&context);
}
END_TEST

/* Keys beyond a length aren't read, so they need not be there. */
START_TEST(keys_beyond_a_length_are_never_read) {
    struct generator g = begin_case("10 keys of 64 are there");
    const struct shape_case shape = {"", 1, 3, 10, 12, 2, .biases = ""};
    const size_t length = 10;
    const mha_mask mask = {.kv_lengths = &length};
    struct forward_problem p;
    make_forward(&g, &shape, &mask_cases[0], at_end, &p);
    mha_layer *layer = new_layer(&p);
    mha_context *context = new_context();
    float expected[3 * 12], *attention = guarded_floats(2 * 3 * 64, 0, AT_END);
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    memcpy(expected, p.args.output, sizeof expected);
    p.args.kv_len = 64;
    p.args.mask = &mask;
    p.args.attention = attention;
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    ck_assert_same("output", expected, 12, p.args.output, 12, 3, 12);

    mha_attention_args bare = {.batch = 1, .n_heads = 1, .q_len = 3, .kv_len = 64, .head_dim = 12};
    bare.query = p.args.query;
    bare.key = p.args.key;
    bare.value = p.args.value;
    bare.output = p.args.output;
    bare.mask = &mask;
    ck_assert_succeeds(mha_attention(context, &bare));
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
}
END_TEST

/* ---- Sizes ----------------------------------------------------------------- */

START_TEST(zero_sizes) {
    mha_context *context = new_context();
    const struct shape_case shape = {"", 2, 3, 4, 8, 2, .biases = "o"};
    for (unsigned zero = 1; zero < 8; zero++) {
        struct generator g = begin_case("zero sizes 0x%x", zero);
        struct forward_problem p;
        make_forward(&g, &shape, &mask_cases[0], at_end, &p);
        mha_layer *layer = new_layer(&p);
        mha_attention_args bare = {.n_heads = 2,
                                   .head_dim = 4,
                                   .query = p.args.query,
                                   .key = p.args.key,
                                   .value = p.args.value};
        bare.output = p.args.output;
        bare.batch = p.args.batch = zero & 1 ? 0 : 2;
        bare.q_len = p.args.q_len = zero & 2 ? 0 : 3;
        bare.kv_len = p.args.kv_len = zero & 4 ? 0 : 4;
        ck_assert_succeeds(mha_attention(context, &bare));
        for (size_t i = 0; zero == 4 && i < p.outputs; i++) {
            ck_assert(bits_equal(p.args.output[i], 0.0f));
        }
        memset(p.args.output, 0xff, p.outputs * sizeof(float));
        ck_assert_succeeds(mha_forward(context, layer, &p.args));
        if (zero == 4) {
            ck_assert_same("output", p.weights.o_bias, 0, p.args.output, 8, 6, 8);
        } else {
            ck_assert(untouched(p.args.output, p.outputs * sizeof(float)));
        }
        ck_assert(untouched(p.args.attention, p.attentions * sizeof(float)));
        ck_assert_succeeds(mha_reserve(context, layer, bare.batch, bare.q_len, bare.kv_len));
        mha_layer_destroy(&layer);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* Two sequences more than 2^31 floats apart, in memory that is never touched between. */
START_TEST(places_beyond_2_to_the_31) {
#if SIZE_MAX > UINT32_MAX
    enum { ROWS = 3, DIM = 4, EACH = ROWS * DIM };
    const size_t apart = ((size_t)1 << 31) + 7, bytes = (apart + 4 * EACH) * sizeof(float);
    float *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        printf("SKIP: places_beyond_2_to_the_31: %zu bytes of address space can't be had\n",
               bytes);
        return;
    }
    struct generator g = begin_case("sequences 2^31 + 7 floats apart");
    fill_floats(&g, memory, 3 * EACH);
    memcpy(memory + apart, memory, 3 * EACH * sizeof *memory);
    mha_strides strides = {apart, EACH, DIM};
    mha_attention_args args = {
        .batch = 2,
        .n_heads = 1,
        .q_len = ROWS,
        .kv_len = ROWS,
        .head_dim = DIM,
        .query = memory,
        .query_strides = strides,
        .key = memory + EACH,
        .key_strides = strides,
        .value = memory + 2 * EACH,
        .value_strides = strides,
    };
    float output[2 * EACH];
    args.output = output;
    mha_context *context = new_context();
    ck_assert_succeeds(mha_attention(context, &args));
    ck_assert_same("sequence 1", output, DIM, output + EACH, DIM, ROWS, DIM);
    mha_context_destroy(&context);
    munmap(memory, bytes);
#endif
}
END_TEST

/* Below the cut-off of exp a weight is 0 exactly, above it a normal number. */
START_TEST(no_subnormal_weights) {
    mha_context *context = new_context();
    for (int distance = 80; distance < 120; distance++) {
        begin_case("a score %d below the other", distance);
        float query = 1.0f, key[] = {0.0f, (float)-distance}, value[] = {1.0f, 0x1p126f};
        float output, attention[2];
        mha_attention_args args = {.batch = 1,
                                   .n_heads = 1,
                                   .q_len = 1,
                                   .kv_len = 2,
                                   .head_dim = 1,
                                   .query = &query,
                                   .key = key,
                                   .value = value,
                                   .output = &output,
                                   .attention = attention};
        ck_assert_succeeds(mha_attention(context, &args));
        ck_assert(fpclassify(attention[1]) == (distance < 87 ? FP_NORMAL : FP_ZERO));
        ck_assert(attention[0] == 1.0f);
        ck_assert(distance < 87 ? output > 1.0f : output == 1.0f);
    }
    mha_context_destroy(&context);
}
END_TEST

/* Inputs are never written to: hashes of all of them before and after. */
START_TEST(inputs_stay) {
    struct generator g = begin_case("inputs");
    const struct shape_case shape = {"", 2, 20, 530, 12, 3, 0, 5, 7, .biases = "qkvo"};
    struct forward_problem p;
    make_forward(&g, &shape, MASK_OF_ALL_PARTS, at_end, &p);
    const struct {
        const void *data;
        size_t bytes;
    } inputs[] = {
        {p.args.query, 2 * 20 * 12 * sizeof(float)},
        {p.args.key, 2 * 530 * 12 * sizeof(float)},
        {p.args.value, 2 * 530 * 12 * sizeof(float)},
        {p.weights.q, 15 * 12 * sizeof(float)},
        {p.weights.v, 21 * 12 * sizeof(float)},
        {p.weights.o, 21 * 12 * sizeof(float)},
        {p.weights.o_bias, 12 * sizeof(float)},
        {p.mask.keep, 2 * 20 * 533 - 3},
        {p.mask.bias, (3 * 533 - 3) * sizeof(float)},
        {p.mask.kv_lengths, 2 * sizeof(size_t)},
        {p.mask.alibi_slopes, 3 * sizeof(float)},
    };
    enum { INPUTS = sizeof inputs / sizeof *inputs };
    uint64_t before[INPUTS];
    for (size_t i = 0; i < INPUTS; i++) {
        before[i] = fnv1a(FNV_START, inputs[i].data, inputs[i].bytes);
    }
    mha_layer *layer = new_layer(&p);
    mha_context *context = new_context();
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    for (size_t i = 0; i < INPUTS; i++) {
        ck_assert_uint_eq(before[i], fnv1a(FNV_START, inputs[i].data, inputs[i].bytes));
    }
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
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
    tcase_add_loop_test(tests, what_is_masked_does_not_leak, 0, (int)n_mask_cases);
    tcase_add_loop_test(tests, what_is_attended_shows, 0, (int)n_mask_cases);
    tcase_add_test(tests, sequences_do_not_leak);
    tcase_add_test(tests, scores_of_minus_infinity_are_no_mask);
    tcase_add_test(tests, keys_beyond_a_length_are_never_read);
    tcase_add_test(tests, zero_sizes);
    tcase_add_test(tests, places_beyond_2_to_the_31);
    tcase_add_test(tests, no_subnormal_weights);
    tcase_add_test(tests, inputs_stay);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
