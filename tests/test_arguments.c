/* SPDX-License-Identifier: MIT
 *
 * Layers and contexts: every wrong argument is refused in words that hold the offending
 * values, with nothing written. A line is a case; test_refusals.c has those of computing.
 */
#include "cases.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void check_refusal(mha_status expected, mha_status status, const char *message) {
    ck_assert_msg(status == expected, "%s: status %d, not %d: %s", message, (int)status,
                  (int)expected, mha_error_message());
    ck_assert_msg(strstr(mha_error_message(), message), "expected \"%s\" in \"%s\"", message,
                  mha_error_message());
}

/* ---- Layers ---------------------------------------------------------------- */

static float some_weights[64 * 64];

struct layer_arguments {
    mha_config config;
    mha_weights weights;
};

static struct layer_arguments good_layer(void) {
    return (struct layer_arguments){
        .config = {.d_model = 12, .n_heads = 4},
        .weights = {.q = some_weights, .k = some_weights, .v = some_weights, .o = some_weights},
    };
}

static void refuse_layer(const struct layer_arguments *a, const char *message) {
    mha_layer *const before = (mha_layer *)(void *)some_weights;
    mha_layer *layer = before;
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_create(&a->config, &a->weights, &layer), message);
    ck_assert_ptr_eq(layer, before);
}

/* The statements after the message spoil one good set of arguments. */
#define REFUSE_LAYER(message, ...)                                                                 \
    do {                                                                                           \
        struct layer_arguments a = good_layer();                                                   \
        __VA_ARGS__;                                                                               \
        refuse_layer(&a, message);                                                                 \
    } while (0)

START_TEST(layers) {
    REFUSE_LAYER("d_model is 0", a.config.d_model = 0);
    REFUSE_LAYER("n_heads is 0", a.config.n_heads = 0);
    REFUSE_LAYER("n_heads (7) does not divide d_model (512)", a.config.d_model = 512,
                 a.config.n_heads = 7);
    REFUSE_LAYER("n_heads (13) does not divide d_model (12)", a.config.n_heads = 13);
    REFUSE_LAYER("n_kv_heads (3) does not divide n_heads (4)", a.config.n_kv_heads = 3);
    REFUSE_LAYER("n_kv_heads (8) does not divide n_heads (4)", a.config.n_kv_heads = 8);
    REFUSE_LAYER("n_kv_heads (1000000) does not divide n_heads (4)", a.config.n_kv_heads = 1000000);
    REFUSE_LAYER("is not finite", a.config.scale = NAN);
    REFUSE_LAYER("scale (inf) is not finite", a.config.scale = INFINITY);
    REFUSE_LAYER("scale (-inf) is not finite", a.config.scale = -INFINITY);
    REFUSE_LAYER("masked_rows (2) is not a member of mha_masked_rows", a.config.masked_rows = 2);
    REFUSE_LAYER("weights->q is NULL", a.weights.q = NULL);
    REFUSE_LAYER("weights->k is NULL", a.weights.k = NULL);
    REFUSE_LAYER("weights->v is NULL", a.weights.v = NULL);
    REFUSE_LAYER("weights->o_bias is given, but weights->o is NULL", a.weights.o = NULL,
                 a.weights.o_bias = a.weights.q);
    REFUSE_LAYER("softcap (-2) is neither 0 nor positive and finite", a.config.softcap = -2.0f);
    REFUSE_LAYER("softcap (", a.config.softcap = NAN);
    REFUSE_LAYER("softcap (inf)", a.config.softcap = INFINITY);
    const float sinks[] = {0.0f, INFINITY, NAN, 0.0f};
    REFUSE_LAYER("weights->sinks[1] (inf) is not below 2^126", a.weights.sinks = sinks);
    REFUSE_LAYER("weights->sinks[0] (", a.weights.sinks = sinks + 2);
    /* Each dimension alone, then products that only together are too large. */
    const char *large = "larger than memory can be";
    REFUSE_LAYER(large, a.config.d_model = SIZE_MAX, a.config.head_dim = 1);
    REFUSE_LAYER(large, a.config.n_heads = SIZE_MAX, a.config.head_dim = 1);
    REFUSE_LAYER(large, a.config.head_dim = SIZE_MAX);
    REFUSE_LAYER(large, a.config.head_dim = SIZE_MAX - 15);
    REFUSE_LAYER(large, a.config.v_head_dim = SIZE_MAX);
    REFUSE_LAYER(large, a.config.k_dim = SIZE_MAX);
    REFUSE_LAYER(large, a.config.v_dim = SIZE_MAX);
    REFUSE_LAYER(large, a.config.d_model = SIZE_MAX / 4, a.config.n_heads = 1);
    REFUSE_LAYER(large, a.config.k_dim = SIZE_MAX / 64 + 1);
    REFUSE_LAYER(large, a.config.v_dim = SIZE_MAX / 256 + 1);
    const size_t root = (size_t)1 << sizeof(size_t) * 4; /* root * root is SIZE_MAX + 1 */
    REFUSE_LAYER(large, a.config.n_heads = root, a.config.head_dim = root);
    REFUSE_LAYER(large, a.config.n_heads = root, a.config.head_dim = 1,
                 a.config.v_head_dim = root / 2);
    REFUSE_LAYER(large, a.config.d_model = root, a.config.n_heads = root);
    REFUSE_LAYER("d_model 12, n_heads 4, head_dim 3, v_head_dim 3, k_dim 12, v_dim ",
                 a.config.v_dim = SIZE_MAX);

    struct layer_arguments a = good_layer();
    mha_layer *layer = NULL;
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_create(NULL, &a.weights, &layer), "config is NULL");
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_create(&a.config, NULL, &layer), "weights is NULL");
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_create(&a.config, &a.weights, NULL),
                  "layer is NULL");
    ck_assert_ptr_null(layer);
}
END_TEST

START_TEST(defaults) {
    struct layer_arguments a = good_layer();
    mha_layer *layer = NULL;
    ck_assert_succeeds(mha_layer_create(&a.config, &a.weights, &layer));
    const mha_config *c = mha_layer_config(layer);
    ck_assert(c->d_model == 12 && c->n_heads == 4 && c->n_kv_heads == 4 && c->head_dim == 3);
    ck_assert(c->v_head_dim == 3 && c->k_dim == 12 && c->v_dim == 12);
    ck_assert_int_eq(c->masked_rows, MHA_MASKED_ROWS_ZERO);
    mha_layer_destroy(&layer);
    a.config = (mha_config){2, 4, 2, 5, 7, 3, 1, -0.5f, 30.0f, MHA_MASKED_ROWS_UNIFORM};
    ck_assert_succeeds(mha_layer_create(&a.config, &a.weights, &layer));
    ck_assert(memcmp(&a.config, mha_layer_config(layer), sizeof a.config) == 0);
    mha_layer_destroy(&layer);
    /* The float nearest to 1 / sqrt(head_dim): no neighbour is nearer. */
    for (size_t dim = 1; dim <= 300; dim++) {
        a.config = (mha_config){.d_model = 1, .n_heads = 1, .head_dim = dim};
        ck_assert_succeeds(mha_layer_create(&a.config, &a.weights, &layer));
        float scale = mha_layer_config(layer)->scale;
        double exact = 1.0 / sqrt((double)dim), error = fabs((double)scale - exact);
        ck_assert(error <= fabs((double)nextafterf(scale, 0.0f) - exact));
        ck_assert(error <= fabs((double)nextafterf(scale, 2.0f) - exact));
        mha_layer_destroy(&layer);
    }
}
END_TEST

START_TEST(clones_and_destruction) {
    struct layer_arguments a = good_layer();
    mha_layer *layer = NULL, *out[2] = {0};
    ck_assert_succeeds(mha_layer_create(&a.config, &a.weights, &layer));
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_clone(NULL, 1, out), "layer is NULL");
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_clone(layer, 1, NULL), "out is NULL");
    check_refusal(MHA_ERROR_ARGUMENT, mha_layer_clone(layer, SIZE_MAX, out),
                  "clones are more than memory can hold");
    ck_assert(!out[0] && !out[1]);
    ck_assert_succeeds(mha_layer_clone(layer, 0, NULL));
    mha_layer_destroy(&layer);
    ck_assert_ptr_null(layer);
    mha_layer_destroy(&layer);
    mha_layer_destroy(NULL);
    mha_context *context = NULL;
    mha_context_destroy(&context);
    mha_context_destroy(NULL);
}
END_TEST

/* ---- Contexts and ISAs ----------------------------------------------------- */

static void refuse_context(mha_status status, mha_options options, const char *message) {
    mha_context *const before = (mha_context *)(void *)some_weights;
    mha_context *context = before;
    check_refusal(status, mha_context_create(&options, &context), message);
    ck_assert_ptr_eq(context, before);
}

static void *no_memory(void *user, size_t size, size_t alignment) {
    (void)user;
    (void)size;
    (void)alignment;
    return NULL;
}

static void no_release(void *user, void *memory, size_t size) {
    (void)user;
    (void)size;
    ck_assert_ptr_null(memory);
}

START_TEST(contexts) {
    check_refusal(MHA_ERROR_ARGUMENT, mha_context_create(NULL, NULL), "context is NULL");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.threads = 2}, "threads (2)");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.memory_size = 64},
                   "memory is NULL, but memory_size is 64");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.memory = (char *)64 + 8, .memory_size = 64},
                   "memory (0x48) is not aligned to 64 bytes");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.allocate = no_memory},
                   "allocate is given, but release is NULL");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.release = no_release},
                   "release is given, but allocate is NULL");
    refuse_context(MHA_ERROR_MEMORY, (mha_options){.allocate = no_memory, .release = no_release},
                   "a context");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.isa = (mha_isa)ISAS},
                   "isa (5) is not a member of mha_isa");
    refuse_context(MHA_ERROR_ARGUMENT, (mha_options){.isa = (mha_isa)-1},
                   "is not a member of mha_isa");
    for (int isa = MHA_ISA_AUTO + 1; isa < ISAS; isa++) {
        if (!mha_isa_supported((mha_isa)isa)) {
            refuse_context(MHA_ERROR_UNSUPPORTED, (mha_options){.isa = (mha_isa)isa},
                           mha_isa_name((mha_isa)isa));
            refuse_context(MHA_ERROR_UNSUPPORTED, (mha_options){.isa = (mha_isa)isa},
                           "supported here: ");
        }
    }
    mha_context *context = NULL;
    ck_assert_succeeds(mha_context_create(&(mha_options){.threads = 1}, &context));
    mha_context_destroy(&context);
}
END_TEST

START_TEST(isa_by_environment) {
    mha_layer *layer = NULL;
    mha_context *context = NULL;
    struct layer_arguments a = good_layer();
    setenv("MHA_ISA", "sse9", 1);
    check_refusal(MHA_ERROR_UNSUPPORTED, mha_context_create(NULL, &context), "\"sse9\"");
    ck_assert_succeeds(mha_layer_create(&a.config, &a.weights, &layer)); /* it isn't read there */
    mha_layer_destroy(&layer);
    setenv("MHA_ISA", "Scalar", 1);
    check_refusal(MHA_ERROR_UNSUPPORTED, mha_context_create(NULL, &context), "\"Scalar\"");
    for (int isa = MHA_ISA_AUTO + 1; isa < ISAS; isa++) {
        setenv("MHA_ISA", mha_isa_name((mha_isa)isa), 1);
        if (mha_isa_supported((mha_isa)isa)) {
            ck_assert_succeeds(mha_context_create(NULL, &context));
            ck_assert_int_eq(mha_context_isa(context), isa);
            mha_context_destroy(&context);
        } else {
            check_refusal(MHA_ERROR_UNSUPPORTED, mha_context_create(NULL, &context), "MHA_ISA: ");
        }
    }
    /* An option is asked before the environment is. */
    setenv("MHA_ISA", "sse9", 1);
    ck_assert_succeeds(mha_context_create(&(mha_options){.isa = MHA_ISA_SCALAR}, &context));
    ck_assert_int_eq(mha_context_isa(context), MHA_ISA_SCALAR);
    mha_context_destroy(&context);
    static const char *const any[] = {"", "auto"};
    for (int i = 0; i < 2; i++) {
        setenv("MHA_ISA", any[i], 1);
        ck_assert_succeeds(mha_context_create(NULL, &context));
        ck_assert_int_ne(mha_context_isa(context), MHA_ISA_AUTO);
        mha_context_destroy(&context);
    }
    unsetenv("MHA_ISA");
}
END_TEST

START_TEST(names_of_isas) {
    mha_isa isa = (mha_isa)ISAS;
    check_refusal(MHA_ERROR_ARGUMENT, mha_isa_from_name(NULL, &isa), "name is NULL");
    check_refusal(MHA_ERROR_ARGUMENT, mha_isa_from_name("avx2", NULL), "isa is NULL");
    check_refusal(MHA_ERROR_UNSUPPORTED, mha_isa_from_name("avx", &isa), "\"avx\"");
    check_refusal(MHA_ERROR_UNSUPPORTED, mha_isa_from_name("", &isa), "supported here: auto, ");
    ck_assert_int_eq(isa, ISAS);
    for (int i = 0; i < ISAS; i++) {
        ck_assert_succeeds(mha_isa_from_name(mha_isa_name((mha_isa)i), &isa));
        ck_assert_int_eq(isa, i);
    }
    ck_assert_ptr_null(mha_isa_name((mha_isa)ISAS));
    ck_assert_ptr_null(mha_isa_name((mha_isa)-1));
    ck_assert(!mha_isa_built((mha_isa)ISAS) && !mha_isa_supported((mha_isa)ISAS));
    ck_assert(mha_isa_built(MHA_ISA_SCALAR) && mha_isa_supported(MHA_ISA_SCALAR));
}
END_TEST

/* ---- Messages -------------------------------------------------------------- */

static void *fail_elsewhere(void *was_empty) {
    *(bool *)was_empty = mha_error_message()[0] == '\0';
    mha_isa_from_name("of another thread", &(mha_isa){0});
    return NULL;
}

START_TEST(a_message_is_its_threads_own) {
    mha_isa_from_name("of this thread", &(mha_isa){0});
    pthread_t thread;
    bool was_empty = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, &was_empty), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(was_empty);
    ck_assert(strstr(mha_error_message(), "of this thread"));
    mha_context *context = new_context(); /* success leaves it */
    ck_assert(strstr(mha_error_message(), "of this thread"));
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("arguments");
    TCase *tests = tcase_create("arguments");
    tcase_add_test(tests, layers);
    tcase_add_test(tests, defaults);
    tcase_add_test(tests, clones_and_destruction);
    tcase_add_test(tests, contexts);
    tcase_add_test(tests, isa_by_environment);
    tcase_add_test(tests, names_of_isas);
    tcase_add_test(tests, a_message_is_its_threads_own);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
