/* SPDX-License-Identifier: MIT
 *
 * mha_workspace_size says what a context in the caller's memory needs, for every kind of result;
 * with less the calls fail, and write nothing.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct place at_end = {AT_END, 0};

/* A context in size bytes between guard pages. */
static mha_context *context_in(size_t size) {
    void *memory = size > 0 ? guarded_alloc(size, 0, AT_START) : NULL;
    mha_context *context = NULL;
    ck_assert_succeeds(
        mha_context_create(&(mha_options){.memory = memory, .memory_size = size}, &context));
    return context;
}

static void check_refusal(mha_status status, size_t needs, size_t has) {
    char text[96];
    snprintf(text, sizeof text, "the workspace needs %zu bytes; the caller's memory has %zu", needs,
             has);
    ck_assert_int_eq(status, MHA_ERROR_MEMORY);
    ck_assert_str_eq(mha_error_message(), text);
}

START_TEST(layers) {
    struct shape_case shape = layer_cases[_i];
    shape.result = MHA_RESULT_WEIGHTS; /* room for any */
    struct generator g = begin_case("layer \"%s\"", shape.name);
    struct forward_problem p;
    make_forward(&g, &shape, MASK_OF_ALL_PARTS, at_end, &p);
    mha_layer *layer = new_layer(&p);
    size_t kv_len = shape.kv_len ? shape.kv_len : shape.q_len, size;
    ck_assert_succeeds(mha_workspace_size(NULL, layer, shape.batch, shape.q_len, kv_len, &size));
    mha_context *context = context_in(size - 64);
    check_refusal(mha_reserve(context, layer, shape.batch, shape.q_len, kv_len), size, size - 64);
    p.args.result = MHA_RESULT_MEAN_WEIGHTS; /* which needs most */
    check_refusal(mha_forward(context, layer, &p.args), size, size - 64);
    ck_assert(untouched(p.args.output, p.outputs * sizeof(float)));
    ck_assert(untouched(p.args.attention, p.attentions * sizeof(float)));
    mha_context_destroy(&context);
    context = context_in(size);
    ck_assert_succeeds(mha_reserve(context, layer, shape.batch, shape.q_len, kv_len));
    for (int result = 0; result <= MHA_RESULT_MASKED_SCORES; result++) {
        p.args.result = (mha_result)result;
        ck_assert_succeeds(mha_forward(context, layer, &p.args));
    }
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    guarded_free_all();
}
END_TEST

START_TEST(views) {
    struct shape_case shape = view_cases[_i];
    shape.result = MHA_RESULT_WEIGHTS; /* room for any */
    struct generator g = begin_case("view \"%s\"", shape.name);
    struct attention_problem p;
    make_attention(&g, &shape, MASK_OF_ALL_PARTS, at_end, &p);
    size_t size;
    ck_assert_succeeds(mha_workspace_size_attention(NULL, &p.args, &size));
    mha_context *context = context_in(size - 64);
    check_refusal(mha_reserve_attention(context, &p.args), size, size - 64);
    p.args.result = MHA_RESULT_MEAN_WEIGHTS;
    check_refusal(mha_attention(context, &p.args), size, size - 64);
    ck_assert(untouched(p.args.output, p.outputs * sizeof(float)));
    mha_context_destroy(&context);
    context = context_in(size);
    ck_assert_succeeds(mha_reserve_attention(context, &p.args));
    for (int result = 0; result <= MHA_RESULT_MASKED_SCORES; result++) {
        p.args.result = (mha_result)result;
        ck_assert_succeeds(mha_attention(context, &p.args));
    }
    mha_context_destroy(&context);
    guarded_free_all();
}
END_TEST

/* What an allocator gave comes back, each with its size. */
struct ledger {
    size_t given, returned, left; /* bytes, bytes, calls that may still succeed */
};

static void *allocate(void *user, size_t size, size_t alignment) {
    struct ledger *ledger = user;
    ck_assert_uint_le(alignment, 64);
    if (ledger->left == 0) {
        return NULL;
    }
    ledger->left--;
    ledger->given += size;
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

static void release(void *user, void *memory, size_t size) {
    struct ledger *ledger = user;
    ledger->returned += size;
    free(memory);
}

START_TEST(allocators) {
    const struct shape_case shape = {"", 2, 20, 30, 24, 4, 2, 5, 3, .biases = ""};
    struct generator g = begin_case("%d allocations", _i);
    struct forward_problem p;
    make_forward(&g, &shape, &mask_cases[0], at_end, &p);
    mha_layer *layer = new_layer(&p);
    struct ledger ledger = {.left = (size_t)_i};
    mha_context *context = NULL;
    const mha_options options = {.allocate = allocate, .release = release, .user = &ledger};
    if (_i == 0) {
        ck_assert_int_eq(mha_context_create(&options, &context), MHA_ERROR_MEMORY);
        ck_assert_ptr_null(context);
    } else {
        ck_assert_succeeds(mha_context_create(&options, &context));
        mha_status status = mha_forward(context, layer, &p.args);
        ck_assert_int_eq(status, _i == 1 ? MHA_ERROR_MEMORY : MHA_OK);
        ck_assert(untouched(p.args.output, p.outputs * sizeof(float)) == (_i == 1));
    }
    mha_context_destroy(&context);
    ck_assert_uint_eq(ledger.given, ledger.returned);
    mha_layer_destroy(&layer);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("workspace");
    TCase *tests = tcase_create("workspace");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, layers, 0, (int)n_layer_cases);
    tcase_add_loop_test(tests, views, 0, (int)n_view_cases);
    tcase_add_loop_test(tests, allocators, 0, 4);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
