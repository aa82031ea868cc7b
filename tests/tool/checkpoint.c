/* SPDX-License-Identifier: MIT
 *
 * Writing checkpoints of every family, for the tests that read them.
 */
#include "checkpoint.h"

#include <stdio.h>
#include <string.h>

void fill_layer(struct layer *layer) {
    struct generator g = begin_case("weights");
    layer->rows[0] = layer->heads * layer->head_dim;
    layer->rows[1] = layer->kv_heads * layer->head_dim;
    layer->rows[2] = layer->kv_heads * layer->v_head_dim;
    layer->rows[3] = layer->d_model;
    layer->columns[0] = layer->d_model;
    layer->columns[1] = layer->k_dim;
    layer->columns[2] = layer->v_dim;
    layer->columns[3] = layer->heads * layer->v_head_dim;
    for (size_t i = 0; i < 4; i++) {
        fill_floats(&g, layer->weight[i], layer->rows[i] * layer->columns[i]);
        fill_floats(&g, layer->bias[i], layer->rows[i]);
    }
}

#define BESIDE(q, k, v, o)                                                                         \
    .weight = {q ".weight", k ".weight", v ".weight", o ".weight"},                                \
    .bias = {q ".bias", k ".bias", v ".bias", o ".bias"}
#define PACKED(qkv, o)                                                                             \
    .weight = {qkv "weight", NULL, NULL, o ".weight"}, .bias = {qkv "bias", NULL, NULL, o ".bias"}

const struct naming namings[N_NAMINGS] = {
    [NAMING_MHA] = {"nn.MultiheadAttention", PACKED("in_proj_", "out_proj")},
    [NAMING_MHA_SEPARATE] = {"nn.MultiheadAttention, separate",
                             {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"},
                             .bias = {"in_proj_bias", NULL, NULL, "out_proj.bias"}},
    [NAMING_BERT] = {"BERT", BESIDE("attention.self.query", "attention.self.key",
                                    "attention.self.value", "attention.output.dense")},
    [NAMING_LLAMA] = {"Llama", BESIDE("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.o_proj")},
    [NAMING_LLAMA_META] = {"Llama (Meta)",
                           BESIDE("attention.wq", "attention.wk", "attention.wv", "attention.wo")},
    [NAMING_OPT] = {"OPT, BART, CLIP", BESIDE("self_attn.q_proj", "self_attn.k_proj",
                                              "self_attn.v_proj", "self_attn.out_proj")},
    [NAMING_GPT2] = {"GPT-2", PACKED("attn.c_attn.", "attn.c_proj"), .conv1d = true},
    [NAMING_VIT] = {"ViT", BESIDE("attention.attention.query", "attention.attention.key",
                                  "attention.attention.value", "attention.output.dense")},
    [NAMING_TIMM] = {"ViT of timm", PACKED("attn.qkv.", "attn.proj")},
    [NAMING_DISTILBERT] = {"DistilBERT", BESIDE("attention.q_lin", "attention.k_lin",
                                                "attention.v_lin", "attention.out_lin")},
    [NAMING_PLAIN] = {"W_q.weight", BESIDE("W_q", "W_k", "W_v", "W_o")},
    [NAMING_PLAIN_UPPER] = {"W_Q.weight", BESIDE("W_Q", "W_K", "W_V", "W_O")},
    [NAMING_PLAIN_LOWER] = {"w_q.weight", BESIDE("w_q", "w_k", "w_v", "w_o")},
    [NAMING_BARE] = {"W_q", {"W_q", "W_k", "W_v", "W_o"}, .bias = {"b_q", "b_k", "b_v", "b_o"}},
    [NAMING_BARE_UPPER] = {"W_Q",
                           {"W_Q", "W_K", "W_V", "W_O"},
                           .bias = {"b_Q", "b_K", "b_V", "b_O"}},
    [NAMING_BARE_LOWER] = {"w_q",
                           {"w_q", "w_k", "w_v", "w_o"},
                           .bias = {"b_q", "b_k", "b_v", "b_o"}},
};

/* A matrix [rows][columns], or with columns 0 a vector; turned: stored transposed. */
static void add_matrix(struct tensors *tensors, const char *prefix, const char *name, size_t rows,
                       size_t columns, const float *values, bool turned) {
    char full[256], shape[64];
    float copy[3 * 144];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    snprintf(shape, sizeof shape, columns == 0 ? "[%zu]" : "[%zu,%zu]", turned ? columns : rows,
             turned ? rows : columns);
    columns = columns == 0 ? 1 : columns;
    for (size_t i = 0; i < rows * columns; i++) {
        copy[turned ? i % columns * rows + i / columns : i] = values[i];
    }
    add_tensor(tensors, full, "F32", shape, copy, rows * columns);
}

void add_layer(struct tensors *tensors, const struct layer *l, const struct naming *n,
               const char *prefix, bool biases, const char *without) {
    float weights[3 * 144], bias[3 * 20];
    size_t all_weights = 0, all_rows = 0;
    for (size_t i = 0; i < 3; i++) {
        size_t size = l->rows[i] * l->columns[i];
        memcpy(weights + all_weights, l->weight[i], size * sizeof *weights);
        memcpy(bias + all_rows, l->bias[i], l->rows[i] * sizeof *bias);
        all_weights += size;
        all_rows += l->rows[i];
    }
    for (size_t i = 0; i < 4; i++) {
        bool packed = i == 0 && n->weight[1] == NULL;
        if (n->weight[i] != NULL && (without == NULL || strcmp(without, n->weight[i]) != 0)) {
            add_matrix(tensors, prefix, n->weight[i], packed ? all_rows : l->rows[i], l->columns[i],
                       packed ? weights : l->weight[i], n->conv1d);
        }
        packed = i == 0 && n->bias[1] == NULL;
        if (biases && n->bias[i] != NULL && (without == NULL || strcmp(without, n->bias[i]) != 0)) {
            add_matrix(tensors, prefix, n->bias[i], packed ? all_rows : l->rows[i], 0,
                       packed ? bias : l->bias[i], false);
        }
    }
}
