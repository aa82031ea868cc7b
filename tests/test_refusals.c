/* SPDX-License-Identifier: MIT
 *
 * mha_forward, mha_attention and mha_reserve: every wrong argument is refused in words that
 * contain its value, and nothing is written; arguments that are unusual but valid are accepted.
 * Each line is a case.
 */
#include "cases.h"

#include <math.h>
#include <string.h>

static const struct place at_end = {AT_END, 0};
static const size_t root = (size_t)1 << sizeof(size_t) * 4; /* root * root is SIZE_MAX + 1 */
static const char *const large = "larger than memory can be";

static void check_refusal(mha_status status, const char *message) {
    ck_assert_msg(status == MHA_ERROR_ARGUMENT, "%s: status %d: %s", message, (int)status,
                  mha_error_message());
    ck_assert_msg(strstr(mha_error_message(), message), "expected \"%s\" in \"%s\"", message,
                  mha_error_message());
}

/* What both calls are given. */
static const struct shape_case layer_shape = {"", 2, 4, 5, 12, 3, .biases = ""};
static const struct shape_case view_shape = {"", 2, 4, 5, 0, 4, 2, 3, 6, .layouts = "...."};

static mha_context *context;
static mha_layer *layer;
static struct forward_problem forward;
static struct attention_problem attention;

static void set_up(void) {
    struct generator g = begin_case("refusals");
    context = new_context();
    make_forward(&g, &layer_shape, MASK_OF_ALL_PARTS, at_end, &forward);
    make_attention(&g, &view_shape, MASK_OF_ALL_PARTS, at_end, &attention);
    layer = new_layer(&forward);
}

static void tear_down(void) {
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
}

static bool outputs_untouched(void) {
    return untouched(forward.args.output, forward.outputs * sizeof(float)) &&
           untouched(forward.args.attention, forward.attentions * sizeof(float)) &&
           untouched(attention.args.output, attention.outputs * sizeof(float)) &&
           untouched(attention.args.attention, attention.attentions * sizeof(float));
}

/* The statements after the message spoil a copy of the good arguments. */
#define REFUSE(problem, call, message, ...)                                                        \
    do {                                                                                           \
        mha_mask m = (problem).mask;                                                               \
        __typeof__((problem).args) a = (problem).args;                                             \
        a.mask = &m;                                                                               \
        __VA_ARGS__;                                                                               \
        check_refusal(call, message);                                                              \
        ck_assert_msg(outputs_untouched(), "%s: an output was written", message);                  \
    } while (0)
#define REFUSE_FORWARD(message, ...)                                                               \
    REFUSE(forward, mha_forward(context, layer, &a), message, __VA_ARGS__)
#define REFUSE_ATTENTION(message, ...)                                                             \
    REFUSE(attention, mha_attention(context, &a), message, __VA_ARGS__)
#define REFUSE_BOTH(message, ...)                                                                  \
    do {                                                                                           \
        REFUSE_FORWARD(message, __VA_ARGS__);                                                      \
        REFUSE_ATTENTION(message, __VA_ARGS__);                                                    \
    } while (0)

START_TEST(null_pointers) {
    check_refusal(mha_forward(NULL, layer, &forward.args), "context is NULL");
    check_refusal(mha_forward(context, NULL, &forward.args), "layer is NULL");
    check_refusal(mha_forward(context, layer, NULL), "args is NULL");
    check_refusal(mha_attention(NULL, &attention.args), "context is NULL");
    check_refusal(mha_attention(context, NULL), "args is NULL");
    check_refusal(mha_reserve(NULL, layer, 1, 1, 1), "context is NULL");
    check_refusal(mha_reserve(context, NULL, 1, 1, 1), "layer is NULL");
    size_t size = 77;
    check_refusal(mha_reserve_attention(NULL, &attention.args), "context is NULL");
    check_refusal(mha_reserve_attention(context, NULL), "args is NULL");
    check_refusal(mha_workspace_size(NULL, NULL, 1, 1, 1, &size), "layer is NULL");
    check_refusal(mha_workspace_size(NULL, layer, 1, 1, 1, NULL), "size is NULL");
    check_refusal(mha_workspace_size_attention(NULL, NULL, &size), "args is NULL");
    check_refusal(mha_workspace_size_attention(NULL, &attention.args, NULL), "size is NULL");
    ck_assert_uint_eq(size, 77);
    REFUSE_BOTH("query is NULL", a.query = NULL);
    REFUSE_BOTH("output is NULL", a.output = NULL);
    REFUSE_ATTENTION("key is NULL", a.key = NULL);
    REFUSE_ATTENTION("value is NULL", a.value = NULL);
    REFUSE_FORWARD("key is NULL, so kv_len (5) must be 0 or q_len (4)", a.key = NULL);
    ck_assert(outputs_untouched());
}
END_TEST

START_TEST(widths_of_shared_inputs) {
    struct generator g = begin_case("k_dim and v_dim of their own");
    struct shape_case shape = layer_shape;
    shape.k_dim = 7;
    shape.v_dim = 9;
    struct forward_problem p;
    make_forward(&g, &shape, &mask_cases[0], at_end, &p);
    mha_layer_destroy(&layer);
    layer = new_layer(&p);
    mha_forward_args args = p.args;
    args.key = NULL;
    args.kv_len = 0;
    check_refusal(mha_forward(context, layer, &args),
                  "key is NULL, but k_dim (7) differs from d_model (12)");
    args = p.args;
    args.value = NULL;
    check_refusal(mha_forward(context, layer, &args),
                  "value is NULL, but v_dim (9) differs from k_dim (7)");
    ck_assert(untouched(args.output, p.outputs * sizeof(float)));
}
END_TEST

START_TEST(sizes) {
    REFUSE_BOTH("query is larger than memory can be", a.batch = SIZE_MAX);
    REFUSE_BOTH("query is larger than memory can be", a.batch = SIZE_MAX / 4 + 1);
    REFUSE_BOTH("query is larger than memory can be", a.q_len = SIZE_MAX);
    REFUSE_BOTH(large, a.kv_len = SIZE_MAX);
    REFUSE_BOTH(large, a.batch = root, a.q_len = root);
    REFUSE_BOTH(large, a.batch = root, a.kv_len = root);
    REFUSE_BOTH("attention is larger than memory can be", a.batch = 1, a.q_len = a.kv_len = root);
    REFUSE_ATTENTION("n_heads is 0", a.n_heads = 0);
    REFUSE_ATTENTION("head_dim is 0", a.head_dim = 0);
    REFUSE_ATTENTION("n_kv_heads (3) does not divide n_heads (4)", a.n_kv_heads = 3);
    REFUSE_ATTENTION("n_kv_heads (8) does not divide n_heads (4)", a.n_kv_heads = 8);
    REFUSE_ATTENTION(large, a.n_heads = SIZE_MAX - 1);
    REFUSE_ATTENTION(large, a.head_dim = SIZE_MAX);
    REFUSE_ATTENTION(large, a.head_dim = SIZE_MAX / 4);
    REFUSE_ATTENTION(large, a.v_head_dim = SIZE_MAX);
    REFUSE_ATTENTION(large, a.v_head_dim = SIZE_MAX - 15);
    check_refusal(mha_reserve(context, layer, SIZE_MAX, 1, 1), large);
    check_refusal(mha_reserve(context, layer, 1, SIZE_MAX, 1), large);
    check_refusal(mha_reserve(context, layer, 1, 1, SIZE_MAX), large);
    check_refusal(mha_reserve(context, layer, root, root, 0), large);
    check_refusal(mha_reserve(context, layer, root, 0, root), large);
    check_refusal(mha_reserve(context, layer, 1, SIZE_MAX / 48, 7),
                  "the workspace for batch 1, q_len ");
    check_refusal(mha_reserve(context, layer, 3, 7, SIZE_MAX / 16), "kv_len ");
    size_t size = 77;
    mha_attention_args args = attention.args;
    args.v_head_dim = SIZE_MAX / 8;
    check_refusal(mha_reserve_attention(context, &args), large);
    check_refusal(mha_workspace_size_attention(NULL, &args, &size), large);
    check_refusal(mha_workspace_size(NULL, layer, 1, 1, SIZE_MAX, &size), large);
    args.n_heads = 0;
    check_refusal(mha_reserve_attention(context, &args), "n_heads is 0");
    ck_assert_uint_eq(size, 77);
}
END_TEST

START_TEST(numbers) {
    REFUSE_ATTENTION("is not finite", a.scale = NAN);
    REFUSE_ATTENTION("scale (inf) is not finite", a.scale = INFINITY);
    REFUSE_ATTENTION("scale (-inf) is not finite", a.scale = -INFINITY);
    REFUSE_ATTENTION("masked_rows (2) is not a member of mha_masked_rows", a.masked_rows = 2);
    REFUSE_BOTH("mask->causal (3) is not a member of mha_causal", m.causal = 3);
    REFUSE_BOTH("is not a member of mha_causal", m.causal = (mha_causal)-1);
    REFUSE_BOTH("query_offset 9223372036854775807, q_len 4, kv_len 5", m.query_offset = INT64_MAX);
    REFUSE_BOTH("query_offset -9223372036854775808", m.query_offset = INT64_MIN);
    const size_t lengths[] = {5, 6};
    REFUSE_BOTH("mask->kv_lengths[1] (6) is above kv_len (5)", m.kv_lengths = lengths);
    const size_t longest[] = {SIZE_MAX, 5};
    REFUSE_BOTH("is above kv_len (5)", m.kv_lengths = longest);
    const float slopes[3][4] = {{1, 2, NAN, 1}, {1, INFINITY, 1, 1}, {-INFINITY, 1, 1, 1}};
    const size_t queries[] = {4, 5};
    REFUSE_BOTH("mask->q_lengths[1] (5) is above q_len (4)", m.q_lengths = queries);
    const int64_t offsets[] = {0, INT64_MAX / 4};
    REFUSE_BOTH("query_offset 2, query_offsets[1] 2305843009213693951", m.query_offset = 2,
                m.query_offsets = offsets);
    const int64_t lowest[] = {INT64_MIN, 0};
    REFUSE_BOTH("query_offset -1, query_offsets[0] -9223372036854775808", m.query_offset = -1,
                m.query_offsets = lowest);
    REFUSE_BOTH("alibi_slopes with positions beyond 2^23: queries 8388606 to 8388609",
                m.causal = MHA_CAUSAL_NONE, m.query_offset = 8388606, m.query_offsets = NULL);
    REFUSE_BOTH("mask->nonzero_masks (2) is neither 0 nor 1", m.nonzero_masks = 2);
    REFUSE_BOTH("result (5) is not a member of mha_result", a.result = (mha_result)5);
    REFUSE_BOTH("result (-1) is not a member of mha_result", a.result = (mha_result)-1);
    REFUSE_ATTENTION("softcap (-1) is neither 0 nor positive and finite", a.softcap = -1.0f);
    REFUSE_ATTENTION("softcap (inf)", a.softcap = INFINITY);
    REFUSE_ATTENTION("is neither 0 nor positive and finite", a.softcap = NAN);
    const float sinks[2][4] = {{0, 0, 0x1p126f, 0}, {0, NAN, 0, 0}};
    REFUSE_ATTENTION("sinks[2] (8.50706e+37) is not below 2^126", a.sinks = sinks[0]);
    REFUSE_ATTENTION("sinks[1] (", a.sinks = sinks[1]);
    REFUSE_BOTH("mask->alibi_slopes[2] (", m.alibi_slopes = slopes[0]);
    REFUSE_BOTH("mask->alibi_slopes[1] (inf) is not finite", m.alibi_slopes = slopes[1]);
    REFUSE_BOTH("mask->alibi_slopes[0] (-inf) is not finite", m.alibi_slopes = slopes[2]);
}
END_TEST

START_TEST(strides) {
    REFUSE_BOTH("mask->keep with strides", m.keep_batch_stride = SIZE_MAX);
    REFUSE_BOTH("mask->keep with strides", m.keep_query_stride = SIZE_MAX / 2);
    REFUSE_BOTH("mask->bias with strides", m.bias_head_stride = SIZE_MAX / 4);
    REFUSE_BOTH("mask->bias with strides", m.bias_batch_stride = SIZE_MAX / 4);

    REFUSE_ATTENTION("query is larger", a.query_strides.batch = SIZE_MAX);
    REFUSE_ATTENTION("key is larger", a.key_strides.head = SIZE_MAX);
    REFUSE_ATTENTION("value is larger", a.value_strides.row = SIZE_MAX);
    REFUSE_ATTENTION("output is larger", a.output_strides.head = SIZE_MAX / 4);

    /* Output elements that share a place; [batch 2][heads 4][rows 4][dim 6]. */
    REFUSE_ATTENTION("output_strides (batch 96, head 23, row 6) make rows of 6 overlap",
                     a.output_strides = (mha_strides){96, 23, 6});
    REFUSE_ATTENTION("make rows of 6 overlap", a.output_strides = (mha_strides){95, 24, 6});
    REFUSE_ATTENTION("make rows of 6 overlap", a.output_strides = (mha_strides){96, 6, 23});
    REFUSE_ATTENTION("make rows of 6 overlap", a.output_strides = (mha_strides){5, 12, 48});
    REFUSE_ATTENTION("make rows of 6 overlap", a.output_strides = (mha_strides){24, 24, 6});
    REFUSE_ATTENTION("(batch 0, head 24, row 6)", a.output_strides = (mha_strides){0, 24, 6});
    REFUSE_ATTENTION("(batch 96, head 0, row 6)", a.output_strides = (mha_strides){96, 0, 6});
    REFUSE_ATTENTION("(batch 96, head 24, row 0)", a.output_strides = (mha_strides){96, 24, 0});
    REFUSE_FORWARD("output_strides (batch 0, row 12) make rows of 12 overlap",
                   a.output_strides = (mha_row_strides){0, 12});
    REFUSE_FORWARD("make rows of 12 overlap", a.output_strides = (mha_row_strides){48, 11});
    REFUSE_FORWARD("query is larger", a.query_strides = (mha_row_strides){SIZE_MAX, 12});
}
END_TEST

START_TEST(overlaps) {
    /* Every other array, and its last byte alone. */
    REFUSE_ATTENTION("output overlaps query", a.output = (float *)a.query);
    REFUSE_FORWARD("output overlaps query", a.output = (float *)a.query,
                   a.output_strides = (mha_row_strides){12, 24});
    REFUSE_BOTH("output overlaps key", a.output = (float *)a.key);
    REFUSE_BOTH("output overlaps value", a.output = (float *)a.value);
    REFUSE_BOTH("output overlaps mask->bias", a.output = (float *)m.bias);
    REFUSE_BOTH("output overlaps mask->keep", m.keep = (const uint8_t *)a.output);
    REFUSE_BOTH("output overlaps mask->alibi_slopes", a.output = (float *)m.alibi_slopes);
    const size_t five[] = {5, 5};
    REFUSE_BOTH("output overlaps mask->kv_lengths", m.kv_lengths = five,
                a.output = (float *)(void *)five);
    REFUSE_BOTH("output overlaps attention", a.attention = a.output);
    REFUSE_BOTH("attention overlaps query", a.attention = (float *)a.query);
    REFUSE_BOTH("attention overlaps key", a.attention = (float *)a.key);
    REFUSE_BOTH("attention overlaps value", a.attention = (float *)a.value);
    REFUSE_BOTH("attention overlaps mask->bias", a.attention = (float *)m.bias);
    REFUSE_BOTH("attention overlaps mask->keep", m.keep = (const uint8_t *)a.attention);
    REFUSE_BOTH("attention overlaps mask->alibi_slopes", a.attention = (float *)m.alibi_slopes);
    REFUSE_BOTH("attention overlaps mask->kv_lengths", m.kv_lengths = five,
                a.attention = (float *)(void *)five);
    REFUSE_FORWARD("output overlaps query", a.output = (float *)a.query + 2 * 4 * 12 - 1);
    REFUSE_ATTENTION("output overlaps key", a.output = (float *)a.key + 2 * 2 * 5 * 3 - 1);
    REFUSE_FORWARD("output overlaps mask->keep",
                   m.keep = (const uint8_t *)(a.output + forward.outputs) - 1);
    /* The output's last element in the query's first. */
    float room[2 * 2 * 4 * 12];
    REFUSE_FORWARD("output overlaps query", a.output = room, a.query = room + 2 * 4 * 12 - 1);
}
END_TEST

/* What is allowed: arrays that touch, inputs that are one another, nothing where nothing is
 * needed. */
START_TEST(what_is_not_refused) {
    float room[4 * 2 * 4 * 12];
    struct generator g = begin_case("arrays side by side");
    fill_floats(&g, room, sizeof room / sizeof *room);
    mha_forward_args args = {.batch = 2, .q_len = 4, .query = room, .output = room + 2 * 4 * 12};
    args.attention = args.output + 2 * 4 * 12;
    ck_assert_succeeds(mha_forward(context, layer, &args));
    args.key = args.query;
    args.kv_len = 3; /* 2 * 3 of the same rows, cut another way */
    ck_assert_succeeds(mha_forward(context, layer, &args));
    args.value = args.query + 12;
    ck_assert_succeeds(mha_forward(context, layer, &args));

    /* The strides of an axis with one element; the output in the query's place. */
    args = (mha_forward_args){.batch = 1, .q_len = 1, .query = room, .output = room};
    args.query_strides = args.output_strides = (mha_row_strides){1, SIZE_MAX};
    ck_assert_succeeds(mha_forward(context, layer, &args));
    const mha_strides single = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 2};
    ck_assert_succeeds(mha_attention(context, &(mha_attention_args){.batch = 1,
                                                                    .n_heads = 1,
                                                                    .head_dim = 16,
                                                                    .q_len = 1,
                                                                    .kv_len = 1,
                                                                    .query = room,
                                                                    .key = room + 16,
                                                                    .value = room + 32,
                                                                    .output = room + 48,
                                                                    .query_strides = single,
                                                                    .key_strides = single,
                                                                    .value_strides = single,
                                                                    .output_strides = single}));
    args = (mha_forward_args){.batch = 2, .q_len = 4, .query = room, .output = room + 2 * 4 * 12};
    args.attention = args.output + 2 * 4 * 12;
    args.key = args.query;

    ck_assert_succeeds(mha_forward(context, layer, &(mha_forward_args){0}));
    ck_assert_succeeds(mha_forward(context, layer, &(mha_forward_args){.batch = 7}));
    ck_assert_succeeds(mha_forward(context, layer, &(mha_forward_args){.q_len = 7}));
    ck_assert_succeeds(mha_attention(context, &(mha_attention_args){.n_heads = 3, .head_dim = 2}));
    ck_assert_succeeds(mha_reserve(context, layer, 0, 0, 0));
    /* Without keys, neither a mask nor weights have elements. */
    mha_mask mask = {.keep = (const uint8_t *)args.output,
                     .keep_query_stride = SIZE_MAX,
                     .bias = args.output,
                     .bias_head_stride = SIZE_MAX};
    args.kv_len = 0;
    args.mask = &mask;
    args.attention = args.output;
    ck_assert_succeeds(mha_forward(context, layer, &args));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("refusals");
    TCase *tests = tcase_create("refusals");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, null_pointers);
    tcase_add_test(tests, widths_of_shared_inputs);
    tcase_add_test(tests, sizes);
    tcase_add_test(tests, numbers);
    tcase_add_test(tests, strides);
    tcase_add_test(tests, overlaps);
    tcase_add_test(tests, what_is_not_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
