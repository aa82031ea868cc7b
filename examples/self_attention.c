/* SPDX-License-Identifier: MIT
 *
 * One causal self-attention layer, made and applied once. README shows attend().
 */
#include <mha.h>
#include <stdio.h>

/* One self-attention layer: x and y are [batch][length][512], weights as nn.Linear stores them. */
int attend(size_t batch, size_t length, const mha_weights *weights, const float *x, float *y) {
    mha_layer *layer = NULL;
    mha_context *context = NULL;
    mha_status status =
        mha_layer_create(&(mha_config){.d_model = 512, .n_heads = 8}, weights, &layer);
    if (status == MHA_OK) {
        status = mha_context_create(NULL, &context);
    }
    if (status == MHA_OK) {
        mha_mask causal = {.causal = MHA_CAUSAL_TOP_LEFT};
        mha_forward_args args = {
            .batch = batch, .q_len = length, .query = x, .mask = &causal, .output = y};
        status = mha_forward(context, layer, &args);
    }
    if (status != MHA_OK) {
        fprintf(stderr, "attention: %s\n", mha_error_message());
    }
    mha_context_destroy(&context);
    mha_layer_destroy(&layer);
    return status == MHA_OK ? 0 : -1;
}

enum { WIDTH = 512, BATCH = 2, LENGTH = 5 };

static float q[WIDTH * WIDTH], k[WIDTH * WIDTH], v[WIDTH * WIDTH], o[WIDTH * WIDTH];
static float x[BATCH * LENGTH * WIDTH], y[BATCH * LENGTH * WIDTH];

/* Numbers in -range .. range, for want of trained ones. */
static void fill(float *data, size_t count, float range) {
    static unsigned state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = range * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

int main(void) {
    float *const weights[] = {q, k, v, o};
    for (int i = 0; i < 4; i++) {
        fill(weights[i], WIDTH * WIDTH, 0.05f);
    }
    fill(x, BATCH * LENGTH * WIDTH, 1.0f);
    if (attend(BATCH, LENGTH, &(mha_weights){.q = q, .k = k, .v = v, .o = o}, x, y) != 0) {
        return 1;
    }
    for (int b = 0; b < BATCH; b++) {
        for (int i = 0; i < LENGTH; i++) {
            const float *row = y + (b * LENGTH + i) * WIDTH;
            printf("sequence %d, token %d: %9.6f %9.6f %9.6f ...\n", b, i, (double)row[0],
                   (double)row[1], (double)row[2]);
        }
    }
    return 0;
}
