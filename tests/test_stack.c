/* SPDX-License-Identifier: MIT
 *
 * The stack of a call is at most what mha.h promises: a thread's is painted, and what the call has
 * changed is measured.
 */
#include "cases.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMISED = 16384, SIZE = 262144, PAINT = 0xa5 };

static const struct place at_end = {AT_END, 0};

struct work {
    mha_context *context;
    const mha_layer *layer;
    const mha_forward_args *forward;
    const mha_attention_args *attention;
    mha_status status;
    uintptr_t top; /* of the stack when the call is made */
};

static void *run(void *data) {
    struct work *work = data;
    char here;
    work->top = (uintptr_t)&here;
    work->status = work->forward ? mha_forward(work->context, work->layer, work->forward)
                                 : mha_attention(work->context, work->attention);
    return NULL;
}

static void check(struct work work) {
    pthread_t thread;
    pthread_attr_t attributes;
    unsigned char *stack = aligned_alloc(4096, SIZE);
    ck_assert_ptr_nonnull(stack);
    memset(stack, PAINT, SIZE);
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstack(&attributes, stack, SIZE), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, run, &work), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(pthread_attr_destroy(&attributes), 0);
    ck_assert_int_eq(work.status, MHA_OK);
    size_t untouched = 0;
    while (untouched < SIZE && stack[untouched] == PAINT) {
        untouched++;
    }
    size_t used = (size_t)(work.top - (uintptr_t)stack) - untouched;
    printf("%s: %zu bytes of stack\n", case_name(), used);
    ck_assert_msg(untouched > 0 && used > 256 && used <= PROMISED, "%s: %zu bytes of stack",
                  case_name(), used);
    free(stack);
}

START_TEST(calls) {
    mha_result result = (mha_result)_i;
    mha_context *context = new_context();
    const struct shape_case layer_shape = {"",
                                           40,
                                           3,
                                           530,
                                           24,
                                           4,
                                           2,
                                           5,
                                           3,
                                           .biases = "qkvo",
                                           .softcap = 3.0f,
                                           .sinks = "rl",
                                           .result = result};
    struct generator g = begin_case("mha_forward, result %d", (int)result);
    struct forward_problem p;
    make_forward(&g, &layer_shape, MASK_OF_ALL_PARTS, at_end, &p);
    mha_layer *layer = new_layer(&p);
    check((struct work){.context = context, .layer = layer, .forward = &p.args});
    mha_layer_destroy(&layer);

    const struct shape_case view_shape = {"",
                                          3,
                                          210,
                                          530,
                                          0,
                                          4,
                                          2,
                                          5,
                                          3,
                                          .softcap = 3.0f,
                                          .sinks = "rl",
                                          .result = result,
                                          .masked_rows = MHA_MASKED_ROWS_UNIFORM};
    g = begin_case("mha_attention, result %d", (int)result);
    struct attention_problem q;
    make_attention(&g, &view_shape, MASK_OF_ALL_PARTS, at_end, &q);
    check((struct work){.context = context, .attention = &q.args});
    mha_context_destroy(&context);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stack");
    TCase *tests = tcase_create("stack");
    tcase_add_loop_test(tests, calls, 0, MHA_RESULT_MASKED_SCORES + 1);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
