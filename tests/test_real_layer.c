/* SPDX-License-Identifier: MIT
 *
 * A real attention layer on the hidden states of real sentences (data/README.md), against
 * PyTorch in float64. Reads the files through the tool's readers.
 * Runs in the folder tests/.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "golden_support.h"
#include "mha.h"
#include "npy.h"
#include "safetensors.h"
#include "support.h"

#define PREFIX "encoder.layer.3.attention."
#define D_MODEL ((size_t)384)
#define N_HEADS ((size_t)12)

static mha_context *context;
static mha_layer *layer;

static float *read_tensor(const struct safetensors *file, const char *name, size_t rows,
                          size_t columns) {
    const struct tensor *tensor = safetensors_find(file, PREFIX, strlen(PREFIX), name);
    ck_assert_msg(tensor != NULL, "no " PREFIX "%s", name);
    size_t bytes;
    ck_assert(shape_bytes(&tensor->shape, sizeof(float), &bytes));
    ck_assert_uint_eq(bytes, rows * columns * sizeof(float));
    return golden_keep(safetensors_floats(file, tensor));
}

static void setup(void) {
    struct safetensors file;
    ck_assert_msg(safetensors_open(golden_path("layer.safetensors"), &file), "%s",
                  failure_message());
    mha_config config = {.d_model = D_MODEL, .n_heads = N_HEADS};
    mha_weights weights = {
        .q = read_tensor(&file, "self.query.weight", D_MODEL, D_MODEL),
        .k = read_tensor(&file, "self.key.weight", D_MODEL, D_MODEL),
        .v = read_tensor(&file, "self.value.weight", D_MODEL, D_MODEL),
        .o = read_tensor(&file, "output.dense.weight", D_MODEL, D_MODEL),
        .q_bias = read_tensor(&file, "self.query.bias", 1, D_MODEL),
        .k_bias = read_tensor(&file, "self.key.bias", 1, D_MODEL),
        .v_bias = read_tensor(&file, "self.value.bias", 1, D_MODEL),
        .o_bias = read_tensor(&file, "output.dense.bias", 1, D_MODEL),
    };
    safetensors_close(&file);
    ck_assert_msg(mha_layer_create(&config, &weights, &layer) == MHA_OK, "%s", mha_error_message());
    ck_assert_msg(mha_context_create(NULL, &context) == MHA_OK, "%s", mha_error_message());
}

static void teardown(void) {
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    golden_free();
}

/* Runs "<name>.npy" [batch][length][d_model] and compares with "<name>_expected.npy". */
static const float *run(const char *name, const mha_mask *mask, size_t *batch, size_t *length) {
    char file[64];
    struct npy npy;
    snprintf(file, sizeof file, "%s.npy", name);
    ck_assert_msg(npy_load(golden_path(file), &npy), "%s", failure_message());
    ck_assert_uint_eq(npy.shape.rank, 3);
    ck_assert_uint_eq(npy.shape.dim[2], D_MODEL);
    *batch = npy.shape.dim[0];
    *length = npy.shape.dim[1];
    mha_forward_args args = {
        .batch = *batch,
        .q_len = *length,
        .query = golden_keep(npy_floats(&npy)),
        .mask = mask,
        .output = golden_output(npy.count),
    };
    npy_free(&npy);
    ck_assert_msg(mha_forward(context, layer, &args) == MHA_OK, "%s", mha_error_message());
    snprintf(file, sizeof file, "%s_expected.npy", name);
    golden_compare(file, args.output, *batch, *length, D_MODEL, 1, 1e-5);
    return args.output;
}

START_TEST(english) {
    size_t batch, length;
    run("english", NULL, &batch, &length);
}
END_TEST

START_TEST(chinese) {
    size_t batch, length;
    run("chinese", NULL, &batch, &length);
}
END_TEST

/* Both together, the shorter one padded: its own tokens get the same bits as when it is alone.
 * (The longer one's input is the same in both files; the padded one's as well.) */
START_TEST(padded_batch) {
    static const char *const names[] = {"english", "chinese"};
    struct npy npy;
    size_t lengths[2], batch, length;
    ck_assert_msg(npy_load(golden_path("kv_lengths.npy"), &npy), "%s", failure_message());
    ck_assert_uint_eq(npy.count, 2);
    for (size_t i = 0; i < 2; i++) {
        lengths[i] = (size_t)element_bits(&npy.element, npy_element(&npy, i));
    }
    npy_free(&npy);
    const float *together = run("batch", &(mha_mask){.kv_lengths = lengths}, &batch, &length);
    ck_assert_uint_eq(batch, 2);
    for (size_t i = 0; i < 2; i++) {
        size_t one, own_length;
        const float *alone = run(names[i], NULL, &one, &own_length);
        ck_assert_uint_eq(own_length, lengths[i]);
        ck_assert_mem_eq(alone, together + i * length * D_MODEL,
                         own_length * D_MODEL * sizeof(float));
    }
}
END_TEST

int main(void) {
    golden_set_folder("data");
    TCase *tcase = tcase_create("real layer");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 0); /* emulators and valgrind are slow */
    tcase_add_test(tcase, english);
    tcase_add_test(tcase, chinese);
    tcase_add_test(tcase, padded_batch);
    Suite *suite = suite_create("real layer");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
