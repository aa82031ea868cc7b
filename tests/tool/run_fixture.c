/* SPDX-License-Identifier: MIT
 *
 * The layer and inputs of run_fixture.h, and running the program on them.
 */
#include "run_fixture.h"

#include <stdio.h>
#include <string.h>

float weight[4][D_MODEL * D_MODEL], bias[4][D_MODEL];
float query[BATCH * Q_LEN * D_MODEL], key[BATCH * KV_LEN * K_DIM], value[BATCH * KV_LEN * V_DIM];

void run_setup(void) {
    static const size_t columns[4] = {D_MODEL, K_DIM, V_DIM, D_MODEL};
    static const char *const names[4] = {"W_q", "W_k", "W_v", "W_o"};
    struct generator g = begin_case("inputs");
    struct tensors tensors = {0};
    scratch_setup();
    for (size_t i = 0; i < 4; i++) {
        char name[32], shape[32];
        fill_floats(&g, weight[i], D_MODEL * columns[i]);
        fill_floats(&g, bias[i], D_MODEL);
        snprintf(name, sizeof name, "%s.weight", names[i]);
        snprintf(shape, sizeof shape, "[%d,%zu]", D_MODEL, columns[i]);
        add_tensor(&tensors, name, "F32", shape, weight[i], D_MODEL * columns[i]);
        snprintf(name, sizeof name, "%s.bias", names[i]);
        snprintf(shape, sizeof shape, "[%d]", D_MODEL);
        add_tensor(&tensors, name, "F32", shape, bias[i], D_MODEL);
    }
    write_tensors("w", &tensors);
    fill_floats(&g, query, BATCH * Q_LEN * D_MODEL);
    fill_floats(&g, key, BATCH * KV_LEN * K_DIM);
    fill_floats(&g, value, BATCH * KV_LEN * V_DIM);
    write_npy_floats("q", "(2, 5, 12)", query, BATCH * Q_LEN * D_MODEL);
    write_npy_floats("k", "(2, 7, 10)", key, BATCH * KV_LEN * K_DIM);
    write_npy_floats("v", "(2, 7, 9)", value, BATCH * KV_LEN * V_DIM);
}

void compute(const mha_config *config, const mha_weights *weights, const mha_forward_args *args) {
    mha_layer *layer = NULL;
    mha_context *context = NULL;
    require(mha_layer_create(config, weights, &layer) == MHA_OK &&
                mha_context_create(NULL, &context) == MHA_OK &&
                mha_forward(context, layer, args) == MHA_OK,
            "%s: %s", case_name(), mha_error_message());
    mha_layer_destroy(&layer);
    mha_context_destroy(&context);
}

void forward(const mha_mask *mask, float scale, mha_masked_rows masked_rows, size_t batch,
             float *output, float *attention) {
    const mha_config config = {.d_model = D_MODEL,
                               .n_heads = HEADS,
                               .k_dim = K_DIM,
                               .v_dim = V_DIM,
                               .scale = scale,
                               .masked_rows = masked_rows};
    const mha_weights weights = {.q = weight[0],
                                 .k = weight[1],
                                 .v = weight[2],
                                 .o = weight[3],
                                 .q_bias = bias[0],
                                 .k_bias = bias[1],
                                 .v_bias = bias[2],
                                 .o_bias = bias[3]};
    const mha_forward_args args = {.batch = batch,
                                   .q_len = Q_LEN,
                                   .kv_len = KV_LEN,
                                   .query = query,
                                   .key = key,
                                   .value = value,
                                   .mask = mask,
                                   .output = output,
                                   .attention = attention};
    compute(&config, &weights, &args);
}

void expect_file(const char *name, const char *shape, const float *want, size_t count) {
    struct bytes bytes = {0};
    put_npy_floats(&bytes, shape, want, count);
    struct bytes file = read_bytes(in_scratch(name));
    require(file.data != NULL, "%s: no file %s", case_name(), name);
    /* The data alone: test_npy.c checks the padding of headers. */
    require(file.size == bytes.size, "%s: %s has %zu bytes, not %zu", case_name(), name, file.size,
            bytes.size);
    size_t header = bytes.size - count * sizeof(float);
    require(strstr((char *)file.data + 10, shape) != NULL, "%s: %s is not of shape %s", case_name(),
            name, shape);
    require(memcmp(file.data + header, bytes.data + header, count * sizeof(float)) == 0,
            "%s: %s differs", case_name(), name);
    bytes_free(&file);
    bytes_free(&bytes);
}

struct outcome run_with(const char *const *more) {
    const char *arguments[40] = {
        "run",           "--weights",     in_scratch("w"), "--heads",       "3",
        "--query",       in_scratch("q"), "--key",         in_scratch("k"), "--value",
        in_scratch("v"), "--output",      in_scratch("y"), "--attention",   in_scratch("a")};
    size_t n = 15;
    for (size_t i = 0; more[i] != NULL; i++) {
        arguments[n++] = more[i][0] == '@' ? in_scratch(more[i] + 1) : more[i];
    }
    struct outcome outcome = run_tool_list(arguments);
    require(outcome.status == 0, "%s: status %d: %s", case_name(), outcome.status, outcome.err);
    require(outcome.err[0] == '\0', "%s: %s", case_name(), outcome.err);
    return outcome;
}

void expect_run(const char *const *more, const mha_mask *mask, float scale,
                mha_masked_rows masked_rows) {
    float output[N_OUTPUT], attention[N_ATTENTION];
    forward(mask, scale, masked_rows, BATCH, output, attention);
    run_with(more);
    expect_file("y", "(2, 5, 12)", output, N_OUTPUT);
    expect_file("a", "(2, 3, 5, 7)", attention, N_ATTENTION);
}
