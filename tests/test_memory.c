/* SPDX-License-Identifier: MIT
 *
 * Memory: every allocation fails once; nothing leaks; none happens after mha_reserve; the
 * workspace grows with the number of keys and never with q_len * kv_len.
 *
 * Linked with --wrap for each allocating function, so the library's calls arrive here.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Allocation, watched --------------------------------------------------- */

static struct {
    bool on;
    size_t fail_at; /* the attempt that fails, from 1; 0: none */
    size_t attempts, bytes;
    long live; /* blocks */
} watch;

static void reset_watch(size_t fail_at) {
    watch.fail_at = fail_at;
    watch.attempts = watch.bytes = 0;
}

static mha_status stop_watching(mha_status status) {
    watch.on = false;
    return status;
}

/* Only the library's own calls are watched: Check allocates too. */
#define WATCHED(call) stop_watching((watch.on = true, (call)))

static bool fails(size_t bytes) {
    if (!watch.on) {
        return false;
    }
    watch.bytes += bytes;
    return ++watch.attempts == watch.fail_at;
}

static void *counted(void *memory) {
    watch.live += watch.on && memory;
    return memory;
}

/* The linker's names. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size) {
    return fails(size) ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails(count * size) ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size) {
    if (fails(size)) {
        return NULL;
    }
    return old ? __real_realloc(old, size) : counted(__real_realloc(old, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails(size) ? NULL : counted(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    int status = fails(size) ? 12 : __real_posix_memalign(memory, alignment, size);
    if (status == 0) {
        counted(*memory);
    }
    return status;
}

void __wrap_free(void *memory) {
    watch.live -= watch.on && memory;
    __real_free(memory);
}

/* ---- Every allocation fails once ------------------------------------------- */

enum { CLONES = 5 };

static struct forward_problem forward;
static struct attention_problem attention;
static mha_layer *layer;
static mha_context *context; /* of each try */
static mha_layer *made[CLONES];

static void set_up(void) {
    const struct shape_case shape = {"", 2, 5, 530, 12, 3, .biases = "qkvo"};
    const struct shape_case view = {"", 2, 5, 530, 0, 3, 0, 5, .layouts = "...."};
    struct generator g = begin_case("memory");
    make_forward(&g, &shape, MASK_OF_ALL_PARTS, (struct place){AT_END, 0}, &forward);
    make_attention(&g, &view, MASK_OF_ALL_PARTS, (struct place){AT_END, 0}, &attention);
    layer = new_layer(&forward);
}

static void tear_down(void) {
    mha_layer_destroy(&layer);
    guarded_free_all();
}

static mha_status try_layer_create(void) {
    return mha_layer_create(&forward.config, &forward.weights, made);
}

static mha_status try_layer_clone(void) {
    return mha_layer_clone(layer, CLONES, made);
}

static mha_status try_context_create(void) {
    return mha_context_create(NULL, &context);
}

static mha_status try_reserve(void) {
    return mha_reserve(context, layer, 2, 5, 530);
}

static mha_status try_forward(void) {
    return mha_forward(context, layer, &forward.args);
}

static mha_status try_attention(void) {
    return mha_attention(context, &attention.args);
}

static const struct {
    const char *name;
    mha_status (*try_it)(void);
    size_t allocations; /* at least */
    bool in_context;
} calls[] = {
    {"mha_layer_create", try_layer_create, 1, false},
    {"mha_layer_clone", try_layer_clone, CLONES, false},
    {"mha_context_create", try_context_create, 1, false},
    {"mha_reserve", try_reserve, 1, true},
    {"mha_forward", try_forward, 1, true},
    {"mha_attention", try_attention, 1, true},
};
enum { CALLS = sizeof calls / sizeof *calls };

static bool outputs_untouched(void) {
    return untouched(forward.args.output, forward.outputs * sizeof(float)) &&
           untouched(forward.args.attention, forward.attentions * sizeof(float)) &&
           untouched(attention.args.output, attention.outputs * sizeof(float)) &&
           untouched(attention.args.attention, attention.attentions * sizeof(float));
}

static void destroy_all(void) {
    mha_context_destroy(&context);
    for (size_t i = 0; i < CLONES; i++) {
        mha_layer_destroy(&made[i]);
    }
}

START_TEST(every_allocation_fails_once) {
    mha_status (*try_it)(void) = calls[_i].try_it;
    mha_status status = MHA_ERROR_MEMORY;
    size_t n = 0;
    while (status != MHA_OK) {
        n++;
        begin_case("%s, allocation %zu fails", calls[_i].name, n);
        reset_watch(0);
        watch.live = 0;
        if (calls[_i].in_context) {
            ck_assert_succeeds(WATCHED(mha_context_create(NULL, &context)));
        }
        long before = watch.live;
        reset_watch(n);
        status = WATCHED(try_it());
        if (status != MHA_OK) {
            ck_assert_int_eq(status, MHA_ERROR_MEMORY);
            ck_assert_msg(strstr(mha_error_message(), "out of memory: "), "%s",
                          mha_error_message());
            ck_assert_int_eq(watch.live, before);
            ck_assert(outputs_untouched());
            ck_assert(calls[_i].in_context || !context);
            for (size_t i = 0; i < CLONES; i++) {
                ck_assert_ptr_null(made[i]);
            }
            reset_watch(0);
            ck_assert_succeeds(WATCHED(try_it())); /* as if nothing had happened */
        }
        watch.on = true;
        destroy_all();
        watch.on = false;
        ck_assert_int_eq(watch.live, 0);
        memset(forward.args.output, 0xff, forward.outputs * sizeof(float));
        memset(forward.args.attention, 0xff, forward.attentions * sizeof(float));
        memset(attention.args.output, 0xff, attention.outputs * sizeof(float));
        memset(attention.args.attention, 0xff, attention.attentions * sizeof(float));
    }
    ck_assert_uint_gt(n, calls[_i].allocations);
}
END_TEST

/* A workspace that can't grow is still good for what fitted before. */
START_TEST(a_failure_keeps_the_workspace) {
    context = new_context();
    mha_forward_args small = forward.args;
    const size_t lengths[] = {3, 2};
    mha_mask mask = {.kv_lengths = lengths};
    small.kv_len = 3;
    small.mask = &mask;
    ck_assert_succeeds(mha_forward(context, layer, &small));
    float expected[2 * 5 * 12];
    memcpy(expected, small.output, sizeof expected);
    reset_watch(1);
    mha_status status = WATCHED(mha_forward(context, layer, &forward.args));
    ck_assert_int_eq(status, MHA_ERROR_MEMORY);
    reset_watch(1);
    ck_assert_succeeds(WATCHED(mha_forward(context, layer, &small)));
    ck_assert_uint_eq(watch.attempts, 0);
    ck_assert_same("output", expected, 12, small.output, 12, 10, 12);
    mha_context_destroy(&context);
}
END_TEST

/* Growing frees the old workspace. */
START_TEST(one_workspace_at_a_time) {
    begin_case("growth");
    reset_watch(0);
    watch.live = 0;
    ck_assert_succeeds(WATCHED(mha_context_create(NULL, &context)));
    for (size_t kv_len = 1; kv_len < 2000; kv_len *= 3) {
        ck_assert_succeeds(WATCHED(mha_reserve(context, layer, 1, 1, kv_len)));
        ck_assert_int_eq(watch.live, 2); /* and the context itself */
    }
    watch.on = true;
    mha_context_destroy(&context);
    watch.on = false;
    ck_assert_int_eq(watch.live, 0);
}
END_TEST

/* ---- No allocation after mha_reserve --------------------------------------- */

START_TEST(nothing_after_reserve) {
    const struct shape_case *shape = &layer_cases[_i];
    size_t kv_len = shape->kv_len ? shape->kv_len : shape->q_len;
    for (size_t m = (size_t)_i % 3; m < n_mask_cases; m += 3 * mask_step()) {
        struct generator g =
            begin_case("layer \"%s\", mask \"%s\"", shape->name, mask_cases[m].name);
        struct forward_problem p;
        make_forward(&g, shape, &mask_cases[m], (struct place){AT_END, 0}, &p);
        mha_layer *reserved = new_layer(&p);
        context = new_context();
        ck_assert_succeeds(mha_reserve(context, reserved, shape->batch, shape->q_len, kv_len));
        reset_watch(0);
        for (int weights = 0; weights < 2; weights++) {
            mha_forward_args args = p.args;
            args.attention = weights ? args.attention : NULL;
            ck_assert_succeeds(WATCHED(mha_forward(context, reserved, &args)));
            /* Smaller, in one size and then in all. */
            args.batch = 1 + next_below(&g, shape->batch);
            ck_assert_succeeds(WATCHED(mha_forward(context, reserved, &args)));
            args.q_len = 1 + next_below(&g, shape->q_len);
            args.mask = NULL;
            args.kv_len = 0;
            ck_assert_succeeds(WATCHED(mha_forward(context, reserved, &args)));
        }
        ck_assert_uint_eq(watch.attempts, 0);
        mha_context_destroy(&context);
        mha_layer_destroy(&reserved);
        guarded_free_all();
    }
}
END_TEST

/* Without it, only a first call of its size does; no cache grows behind. */
START_TEST(flat_memory) {
    context = new_context();
    ck_assert_succeeds(WATCHED(mha_forward(context, layer, &forward.args)));
    reset_watch(0);
    struct generator g = begin_case("1000 calls");
    for (int i = 0; i < 1000; i++) {
        mha_forward_args args = forward.args;
        args.mask = NULL;
        args.batch = 1 + next_below(&g, 2);
        args.q_len = 1 + next_below(&g, 5);
        args.kv_len = 1 + next_below(&g, 30);
        ck_assert_succeeds(WATCHED(mha_forward(context, layer, &args)));
    }
    ck_assert_uint_eq(watch.attempts, 0);
    mha_context_destroy(&context);
}
END_TEST

/* ---- Growth ---------------------------------------------------------------- */

/* Bytes that a fresh context's workspace takes for a call. */
static size_t reserve_bytes(size_t q_len, size_t kv_len) {
    context = new_context();
    reset_watch(0);
    ck_assert_succeeds(WATCHED(mha_reserve(context, layer, 1, q_len, kv_len)));
    mha_context_destroy(&context);
    return watch.bytes;
}

static size_t attention_bytes(size_t q_len, size_t kv_len) {
    enum { DIM = 5 };
    float *query = calloc(q_len * DIM, sizeof *query), *key = calloc(kv_len * DIM, sizeof *key);
    float *output = calloc(q_len * DIM, sizeof *output);
    ck_assert(query && key && output);
    context = new_context();
    mha_attention_args args = one_head(q_len, kv_len, DIM, query, key, key, output);
    reset_watch(0);
    ck_assert_succeeds(WATCHED(mha_attention(context, &args)));
    size_t bytes = watch.bytes;
    mha_context_destroy(&context);
    free(query);
    free(key);
    free(output);
    return bytes;
}

/* For sizes that divide by everything the library rounds to, linear means equal steps. */
static void check_linear(const char *name, size_t (*bytes)(size_t q_len, size_t kv_len)) {
    begin_case("%s", name);
    size_t step = bytes(64, 8192) - bytes(64, 4096);
    ck_assert_uint_eq(bytes(64, 12288) - bytes(64, 8192), step);
    ck_assert_uint_eq(bytes(4096, 8192) - bytes(4096, 4096), step); /* whatever q_len */
    ck_assert_uint_lt(bytes(64, 8192), 2 * bytes(64, 4096));
    size_t q_step = bytes(8192, 64) - bytes(4096, 64);
    ck_assert_uint_eq(bytes(12288, 64) - bytes(8192, 64), q_step);
    ck_assert_uint_lt(bytes(4096, 4096), (size_t)4096 * 4096);
    printf("%s: %zu bytes a key, %zu bytes a query; 4096 x 4096: %zu bytes\n", name, step / 4096,
           q_step / 4096, bytes(4096, 4096));
}

START_TEST(growth_is_linear) {
    check_linear("mha_reserve, 3 heads of 4", reserve_bytes);
    /* mha_attention packs keys by blocks for few queries; for many, all keys of a head. */
    ck_assert_uint_eq(attention_bytes(64, 12288), attention_bytes(64, 4096));
    size_t step = attention_bytes(4096, 8192) - attention_bytes(4096, 4096);
    ck_assert_uint_eq(attention_bytes(4096, 12288) - attention_bytes(4096, 8192), step);
    ck_assert_uint_eq(attention_bytes(8192, 4096), attention_bytes(4096, 4096));
    printf("mha_attention, head_dim 5: %zu bytes for few queries, else %zu a key\n",
           attention_bytes(64, 4096), step / 4096);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("memory");
    TCase *tests = tcase_create("memory");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, every_allocation_fails_once, 0, CALLS);
    tcase_add_test(tests, a_failure_keeps_the_workspace);
    tcase_add_test(tests, one_workspace_at_a_time);
    tcase_add_loop_test(tests, nothing_after_reserve, 0, (int)n_layer_cases);
    tcase_add_test(tests, flat_memory);
    tcase_add_test(tests, growth_is_linear);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
