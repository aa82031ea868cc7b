/* SPDX-License-Identifier: MIT
 *
 * Threads that share a layer, each with a context of its own, get the bits of one thread. It is run
 * under ThreadSanitizer too.
 */
#include "cases.h"

#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 3, ROUNDS = 6 };

static const struct place at_end = {AT_END, 0};
static const struct shape_case layer_shape = {
    "", 2, 20, 530, 24, 4, 2, 5, 3, .biases = "qo", .softcap = 3.0f, .sinks = "rl"};

struct work {
    const mha_layer *layer;
    mha_forward_args args;
    mha_status status;
};

static void *compute(void *data) {
    struct work *work = data;
    mha_context *context = NULL;
    work->status = mha_context_create(NULL, &context);
    for (int i = 0; i < ROUNDS && work->status == MHA_OK; i++) {
        work->status = mha_forward(context, work->layer, &work->args);
    }
    mha_context_destroy(&context);
    return NULL;
}

/* Makes and destroys layers, and fails, meanwhile. */
static void *create(void *data) {
    const struct forward_problem *p = data;
    for (int i = 0; i < ROUNDS; i++) {
        mha_layer *layer = NULL;
        mha_context *context = NULL;
        if (mha_layer_create(&p->config, &p->weights, &layer) != MHA_OK ||
            mha_context_create(&(mha_options){.threads = 99}, &context) == MHA_OK) {
            return data;
        }
        mha_layer_destroy(&layer);
    }
    return NULL;
}

START_TEST(a_shared_layer) {
    struct generator g = begin_case("%d threads", THREADS);
    struct forward_problem p;
    make_forward(&g, &layer_shape, MASK_OF_ALL_PARTS, at_end, &p);
    mha_layer *layer = new_layer(&p);
    struct work alone = {.layer = layer, .args = p.args};
    compute(&alone);
    ck_assert_succeeds(alone.status);
    struct work works[THREADS];
    pthread_t threads[THREADS + 1];
    ck_assert_int_eq(pthread_create(&threads[THREADS], NULL, create, &p), 0);
    for (int i = 0; i < THREADS; i++) {
        works[i] = (struct work){.layer = layer, .args = p.args};
        works[i].args.output = malloc(p.outputs * sizeof(float));
        works[i].args.attention = malloc(p.attentions * sizeof(float));
        ck_assert(works[i].args.output && works[i].args.attention);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, compute, &works[i]), 0);
    }
    void *failed = NULL;
    ck_assert_int_eq(pthread_join(threads[THREADS], &failed), 0);
    ck_assert_ptr_null(failed);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(works[i].status, MHA_OK);
        ck_assert_same("output", p.args.output, 1, works[i].args.output, 1, p.outputs, 1);
        ck_assert_same("attention", p.args.attention, 1, works[i].args.attention, 1, p.attentions,
                       1);
        free(works[i].args.output);
        free(works[i].args.attention);
    }
    mha_layer_destroy(&layer);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("threads");
    TCase *tests = tcase_create("threads");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, a_shared_layer);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
