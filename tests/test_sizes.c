/* SPDX-License-Identifier: MIT
 *
 * Faults that other attention libraries shipped, third part: sizes of 0, places beyond 2^31,
 * and what is read or written that shouldn't be.
 */
#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const struct place at_end = {AT_END, 0};

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
        printf("SKIP: places_beyond_2_to_the_31: %zu bytes of address space can't be had\n", bytes);
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
        mha_attention_args args = one_head(1, 2, 1, &query, key, value, &output);
        args.attention = attention;
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
        {p.args.query, 2 * 20 * 12 * sizeof(float)},  {p.args.key, 2 * 530 * 12 * sizeof(float)},
        {p.args.value, 2 * 530 * 12 * sizeof(float)}, {p.weights.q, 15 * 12 * sizeof(float)},
        {p.weights.v, 21 * 12 * sizeof(float)},       {p.weights.o, 21 * 12 * sizeof(float)},
        {p.weights.o_bias, 12 * sizeof(float)},       {p.mask.keep, 2 * 20 * 533 - 3},
        {p.mask.bias, (3 * 533 - 3) * sizeof(float)}, {p.mask.kv_lengths, 2 * sizeof(size_t)},
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
    Suite *suite = suite_create("sizes");
    TCase *tests = tcase_create("sizes");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, keys_beyond_a_length_are_never_read);
    tcase_add_test(tests, zero_sizes);
    tcase_add_test(tests, places_beyond_2_to_the_31);
    tcase_add_test(tests, no_subnormal_weights);
    tcase_add_test(tests, inputs_stay);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
