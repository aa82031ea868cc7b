/* SPDX-License-Identifier: MIT
 *
 * A stack of layers that start as copies of one, as Transformer encoders are often built
 * (clones(layer, n), copy.deepcopy in a ModuleList), with residual connections. One context
 * serves them all, and after mha_reserve nothing is allocated.
 */
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 64, HEADS = 4, LAYERS = 6, BATCH = 2, LENGTH = 10 };

static float weights[4][WIDTH * WIDTH], bias[WIDTH];
static float x[BATCH * LENGTH * WIDTH], attended[BATCH * LENGTH * WIDTH];

static void fill(float *data, size_t count, float range) {
    static unsigned state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = range * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

static void require(mha_status status) {
    if (status != MHA_OK) {
        fprintf(stderr, "stack: %s\n", mha_error_message());
        exit(1);
    }
}

int main(void) {
    for (int i = 0; i < 4; i++) {
        fill(weights[i], WIDTH * WIDTH, 0.2f);
    }
    fill(bias, WIDTH, 0.1f);
    fill(x, BATCH * LENGTH * WIDTH, 1.0f);

    mha_layer *first = NULL, *layers[LAYERS] = {NULL};
    mha_context *context = NULL;
    require(mha_layer_create(
        &(mha_config){.d_model = WIDTH, .n_heads = HEADS},
        &(mha_weights){
            .q = weights[0], .k = weights[1], .v = weights[2], .o = weights[3], .o_bias = bias},
        &first));
    require(mha_layer_clone(first, LAYERS, layers));
    mha_layer_destroy(&first); /* the copies don't need it */
    require(mha_context_create(NULL, &context));
    require(mha_reserve(context, layers[0], BATCH, LENGTH, LENGTH));

    /* The second sequence is 7 tokens long and padded to 10. */
    const size_t lengths[BATCH] = {LENGTH, 7};
    mha_mask padding = {.kv_lengths = lengths};
    for (int i = 0; i < LAYERS; i++) {
        require(mha_forward(context, layers[i],
                            &(mha_forward_args){.batch = BATCH,
                                                .q_len = LENGTH,
                                                .query = x,
                                                .mask = &padding,
                                                .output = attended}));
        for (size_t n = 0; n < BATCH * LENGTH * WIDTH; n++) {
            x[n] += attended[n];
        }
        printf("after layer %d: %9.6f %9.6f %9.6f ...\n", i + 1, (double)x[0], (double)x[1],
               (double)x[2]);
    }
    for (int i = 0; i < LAYERS; i++) {
        mha_layer_destroy(&layers[i]);
    }
    mha_context_destroy(&context);
    return 0;
}
