/* SPDX-License-Identifier: MIT
 *
 * The three teaching programs that the library is made for, written with mha.h and compared with
 * PyTorch's results in float64 (golden/programs.py is the other half). They differ in what they
 * show; the layer is the same: four linear projections, heads side by side in the width,
 * softmax(Q K^T / sqrt(head_dim)) V. Runs in the folder tests/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_support.h"
#include "mha.h"
#include "support.h"

#define TOLERANCE 1e-5

static mha_context *context;
static mha_layer *layer;

static void setup(void) {
    ck_assert_msg(mha_context_create(NULL, &context) == MHA_OK, "%s", mha_error_message());
}

static void teardown(void) {
    mha_layer_destroy(&layer);
    mha_context_destroy(&context);
    golden_free();
}

/* Weights (and inputs) of a program come from the generator under its name. */
static mha_weights program_weights(const char *program, size_t d_model, int exponent, bool biases) {
    size_t size = d_model * d_model;
    mha_weights weights = {
        .q = golden_floats(program, "q", size, exponent, 16),
        .k = golden_floats(program, "k", size, exponent, 16),
        .v = golden_floats(program, "v", size, exponent, 16),
        .o = golden_floats(program, "o", size, exponent, 16),
    };
    if (biases) {
        weights.q_bias = golden_floats(program, "q_bias", d_model, 1, 16);
        weights.k_bias = golden_floats(program, "k_bias", d_model, 1, 16);
        weights.v_bias = golden_floats(program, "v_bias", d_model, 1, 16);
        weights.o_bias = golden_floats(program, "o_bias", d_model, 1, 16);
    }
    return weights;
}

static void create_layer(const mha_config *config, const mha_weights *weights) {
    mha_layer_destroy(&layer);
    ck_assert_msg(mha_layer_create(config, weights, &layer) == MHA_OK, "%s", mha_error_message());
}

static void forward(const mha_layer *with, const mha_forward_args *args) {
    ck_assert_msg(mha_forward(context, with, args) == MHA_OK, "%s", mha_error_message());
}

/* ---- (a) d_model 512, 8 heads, batch 2, length 4 --------------------------- */

enum { A_BATCH = 2, A_LENGTH = 4, A_MODEL = 512, A_HEADS = 8 };
enum { A_OUTPUT = A_BATCH * A_LENGTH * A_MODEL };
enum { A_ATTENTION = A_BATCH * A_HEADS * A_LENGTH * A_LENGTH };

static void create_layer_a(void) {
    /* Masked scores become -1e9 there: a row without a key averages all values. */
    mha_config config = {
        .d_model = A_MODEL, .n_heads = A_HEADS, .masked_rows = MHA_MASKED_ROWS_UNIFORM};
    mha_weights weights = program_weights("program_a", A_MODEL, -4, true);
    create_layer(&config, &weights);
}

/* The arguments with separate query, key and value, and room for output and weights. */
static mha_forward_args args_a(void) {
    return (mha_forward_args){
        .batch = A_BATCH,
        .q_len = A_LENGTH,
        .kv_len = A_LENGTH,
        .query = golden_floats("program_a", "query", A_OUTPUT, 1, 16),
        .key = golden_floats("program_a", "key", A_OUTPUT, 1, 16),
        .value = golden_floats("program_a", "value", A_OUTPUT, 1, 16),
        .output = golden_output(A_OUTPUT),
        .attention = golden_output(A_ATTENTION),
    };
}

static void compare_a(const char *name, const mha_forward_args *args) {
    char file[64];
    snprintf(file, sizeof file, "%s.npy", name);
    golden_compare(file, args->output, A_BATCH, A_LENGTH, A_MODEL, 1, TOLERANCE);
    snprintf(file, sizeof file, "%s.weights.npy", name);
    golden_compare(file, args->attention, A_BATCH * A_HEADS, A_LENGTH, A_LENGTH, 1, TOLERANCE);
}

/* As the program runs it: Q = K = V, no mask. */
START_TEST(a_plain) {
    create_layer_a();
    mha_forward_args args = args_a();
    args.key = args.value = NULL;
    forward(layer, &args);
    compare_a("program_a_plain", &args);

    args.key = args.value = args.query; /* the same, given explicitly */
    args.output = golden_output(A_OUTPUT);
    args.attention = golden_output(A_ATTENTION);
    forward(layer, &args);
    compare_a("program_a_plain", &args);
}
END_TEST

/* A mask [1][1][length][length] in which 0 hides: each token sees itself and what is before. */
START_TEST(a_causal_mask) {
    static const uint8_t keep[A_LENGTH][A_LENGTH] = {
        {1, 0, 0, 0},
        {1, 1, 0, 0},
        {1, 1, 1, 0},
        {1, 1, 1, 1},
    };
    create_layer_a();
    mha_forward_args args = args_a();
    args.mask = &(mha_mask){.keep = keep[0], .keep_query_stride = A_LENGTH};
    forward(layer, &args);
    compare_a("program_a_causal", &args);

    float *output = args.output;
    args.output = golden_output(A_OUTPUT);
    args.mask = &(mha_mask){.causal = MHA_CAUSAL_TOP_LEFT}; /* the same mask by its name */
    forward(layer, &args);
    ck_assert_mem_eq(args.output, output, A_OUTPUT * sizeof(float));
}
END_TEST

/* A mask [batch][1][length][length]: sequence 0 ends in padding; in sequence 1 a token sees only
 * what is before it, so the first has no key at all. */
START_TEST(a_padding_mask) {
    static const uint8_t keep[A_BATCH][A_LENGTH][A_LENGTH] = {
        {{1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}},
        {{0, 0, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 1, 0}},
    };
    create_layer_a();
    mha_forward_args args = args_a();
    args.mask = &(mha_mask){.keep = keep[0][0],
                            .keep_batch_stride = sizeof keep[0],
                            .keep_query_stride = sizeof keep[0][0]};
    forward(layer, &args);
    compare_a("program_a_padding", &args);
    for (size_t h = 0; h < A_HEADS; h++) {
        const float *row = args.attention + (A_HEADS + h) * A_LENGTH * A_LENGTH;
        for (size_t j = 0; j < A_LENGTH; j++) {
            ck_assert_float_eq(row[j], 0.25f);
        }
    }
}
END_TEST

/* clones(module, 6): six deep copies, which live on without the original and without each
 * other. */
START_TEST(a_clones) {
    mha_layer *clones[6] = {NULL};
    create_layer_a();
    mha_forward_args args = args_a();
    forward(layer, &args);
    const float *output = args.output, *attention = args.attention;

    ck_assert_msg(mha_layer_clone(layer, 6, clones) == MHA_OK, "%s", mha_error_message());
    mha_layer_destroy(&layer);
    for (size_t i = 0; i < 6; i++) {
        ck_assert_ptr_nonnull(clones[i]);
        args.output = golden_output(A_OUTPUT);
        args.attention = golden_output(A_ATTENTION);
        forward(clones[i], &args);
        ck_assert_mem_eq(args.output, output, A_OUTPUT * sizeof(float));
        ck_assert_mem_eq(args.attention, attention, A_ATTENTION * sizeof(float));
        mha_layer_destroy(&clones[i]);
    }
}
END_TEST

/* ---- (b) d_model 8, 2 heads, batch 2, length 5 ----------------------------- */

enum { B_BATCH = 2, B_LENGTH = 5, B_MODEL = 8, B_HEADS = 2 };
enum { B_OUTPUT = B_BATCH * B_LENGTH * B_MODEL };

static const mha_config config_b = {.d_model = B_MODEL, .n_heads = B_HEADS};

static float *forward_b(const mha_weights *weights) {
    mha_forward_args args = {
        .batch = B_BATCH,
        .q_len = B_LENGTH,
        .query = golden_floats("program_b", "query", B_OUTPUT, 1, 16),
        .output = golden_output(B_OUTPUT),
    };
    create_layer(&config_b, weights);
    forward(layer, &args);
    return args.output;
}

/* The program asks for 1e-5, absolutely; outputs are below 3, so this asks for more. */
static void compare_b(const char *file, const float *output) {
    golden_compare(file, output, B_BATCH, B_LENGTH, B_MODEL, 1, TOLERANCE / 3);
}

/* As nn.MultiheadAttention(8, 2, batch_first=True, bias=False) does. */
START_TEST(b_without_biases) {
    mha_weights weights = program_weights("program_b", B_MODEL, -1, false);
    compare_b("program_b.npy", forward_b(&weights));
}
END_TEST

/* And with bias=True, and biases that aren't zero. The program as it is written gives its own
 * layer biases and the official one none, and so fails: they do matter. */
START_TEST(b_with_biases) {
    mha_weights weights = program_weights("program_b", B_MODEL, -1, true);
    const float *output = forward_b(&weights);
    compare_b("program_b_biases.npy", output);

    mha_weights none = program_weights("program_b", B_MODEL, -1, false);
    const float *without = forward_b(&none);
    float largest = 0;
    for (size_t i = 0; i < B_OUTPUT; i++) {
        float difference = output[i] > without[i] ? output[i] - without[i] : without[i] - output[i];
        largest = difference > largest ? difference : largest;
    }
    ck_assert_float_gt(largest, 0.1f);
}
END_TEST

/* From in_proj_weight [3 * d_model][d_model] and in_proj_bias [3 * d_model], as PyTorch keeps
 * them: q, k and v one after another, so slices of them are enough. */
START_TEST(b_packed) {
    mha_weights separate = program_weights("program_b", B_MODEL, -1, true);
    float in_proj_weight[3 * B_MODEL][B_MODEL];
    float in_proj_bias[3 * B_MODEL];
    const float *const parts[3][2] = {{separate.q, separate.q_bias},
                                      {separate.k, separate.k_bias},
                                      {separate.v, separate.v_bias}};
    for (size_t i = 0; i < 3; i++) {
        memcpy(in_proj_weight[i * B_MODEL], parts[i][0], B_MODEL * sizeof in_proj_weight[0]);
        memcpy(in_proj_bias + i * B_MODEL, parts[i][1], B_MODEL * sizeof in_proj_bias[0]);
    }
    mha_weights packed = {
        .q = in_proj_weight[0],
        .k = in_proj_weight[B_MODEL],
        .v = in_proj_weight[2 * B_MODEL],
        .o = separate.o,
        .q_bias = in_proj_bias,
        .k_bias = in_proj_bias + B_MODEL,
        .v_bias = in_proj_bias + 2 * B_MODEL,
        .o_bias = separate.o_bias,
    };
    const float *output = forward_b(&packed);
    compare_b("program_b_biases.npy", output);
    ck_assert_mem_eq(output, forward_b(&separate), B_OUTPUT * sizeof(float));
}
END_TEST

/* ---- (c) hidden_size 64 and 66, sequences of any length -------------------- */

static const struct {
    const char *name;
    size_t hidden_size, heads_num;
} programs_c[] = {{"program_c_64", 64, 4}, {"program_c_66", 66, 6}};

START_TEST(c_any_length) {
    static const size_t lengths[] = {1, 7, 40};
    for (size_t p = 0; p < 2; p++) {
        const char *name = programs_c[p].name;
        size_t hidden_size = programs_c[p].hidden_size;
        mha_weights weights = program_weights(name, hidden_size, -2, true);
        create_layer(&(mha_config){.d_model = hidden_size, .n_heads = programs_c[p].heads_num},
                     &weights);
        for (size_t i = 0; i < 3; i++) {
            char file[64];
            size_t count = 2 * lengths[i] * hidden_size;
            mha_forward_args args = {
                .batch = 2,
                .q_len = lengths[i],
                .query = golden_floats(name, "query", count, 1, 16),
                .output = golden_output(count),
            };
            forward(layer, &args);
            snprintf(file, sizeof file, "%s_%zu.npy", name, lengths[i]);
            golden_compare(file, args.output, 2, lengths[i], hidden_size, 1, TOLERANCE);
        }
    }
}
END_TEST

/* hidden_size must be divisible by the number of heads: refused, with both numbers. */
START_TEST(c_indivisible) {
    static const struct {
        size_t d_model, n_heads;
        const char *numbers[2];
    } refused[] = {{64, 6, {"(64)", "(6)"}}, {66, 4, {"(66)", "(4)"}}, {512, 7, {"(512)", "(7)"}}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        mha_config config = {.d_model = refused[i].d_model, .n_heads = refused[i].n_heads};
        mha_weights weights = program_weights("program_c", refused[i].d_model, -2, true);
        ck_assert_int_eq(mha_layer_create(&config, &weights, &layer), MHA_ERROR_ARGUMENT);
        ck_assert_ptr_null(layer);
        for (size_t n = 0; n < 2; n++) {
            ck_assert_msg(strstr(mha_error_message(), refused[i].numbers[n]) != NULL,
                          "no %s in \"%s\"", refused[i].numbers[n], mha_error_message());
        }
    }
}
END_TEST

int main(void) {
    golden_set_folder("golden");
    TCase *tcase = tcase_create("programs");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 0); /* emulators and valgrind are slow */
    tcase_add_test(tcase, a_plain);
    tcase_add_test(tcase, a_causal_mask);
    tcase_add_test(tcase, a_padding_mask);
    tcase_add_test(tcase, a_clones);
    tcase_add_test(tcase, b_without_biases);
    tcase_add_test(tcase, b_with_biases);
    tcase_add_test(tcase, b_packed);
    tcase_add_test(tcase, c_any_length);
    tcase_add_test(tcase, c_indivisible);
    Suite *suite = suite_create("programs");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
