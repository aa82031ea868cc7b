/* SPDX-License-Identifier: MIT
 *
 * Writing checkpoints of every family, for the tests that read them.
 */
#include "checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
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
        layer->weight[i] = malloc(layer->rows[i] * layer->columns[i] * sizeof(float));
        layer->bias[i] = malloc(layer->rows[i] * sizeof(float));
        fill_floats(&g, layer->weight[i], layer->rows[i] * layer->columns[i]);
        fill_floats(&g, layer->bias[i], layer->rows[i]);
    }
}

void free_layer(struct layer *layer) {
    for (size_t i = 0; i < 4; i++) {
        free(layer->weight[i]);
        free(layer->bias[i]);
    }
}

const struct naming namings[N_NAMINGS] = {
    [NAMING_MHA] = {"nn.MultiheadAttention",
                    {"in_proj_weight", NULL, NULL, "out_proj.weight"},
                    {"in_proj_bias", NULL, NULL, "out_proj.bias"},
                    false},
    [NAMING_MHA_SEPARATE] = {"nn.MultiheadAttention, separate",
                             {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"},
                             {"in_proj_bias", NULL, NULL, "out_proj.bias"},
                             false},
    [NAMING_BERT] = {"BERT",
                     {"attention.self.query.weight", "attention.self.key.weight",
                      "attention.self.value.weight", "attention.output.dense.weight"},
                     {"attention.self.query.bias", "attention.self.key.bias",
                      "attention.self.value.bias", "attention.output.dense.bias"},
                     false},
    [NAMING_LLAMA] = {"Llama",
                      {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                       "self_attn.v_proj.weight", "self_attn.o_proj.weight"},
                      {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
                       "self_attn.o_proj.bias"},
                      false},
    [NAMING_OPT] = {"OPT, BART, CLIP",
                    {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                     "self_attn.v_proj.weight", "self_attn.out_proj.weight"},
                    {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias",
                     "self_attn.out_proj.bias"},
                    false},
    [NAMING_OPT_PACKED] = {"OPT, biases packed",
                           {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                            "self_attn.v_proj.weight", "self_attn.out_proj.weight"},
                           {"self_attn.in_proj_bias", NULL, NULL, "self_attn.out_proj.bias"},
                           false},
    [NAMING_GPT2] = {"GPT-2",
                     {"attn.c_attn.weight", NULL, NULL, "attn.c_proj.weight"},
                     {"attn.c_attn.bias", NULL, NULL, "attn.c_proj.bias"},
                     true},
    [NAMING_VIT] = {"ViT",
                    {"attention.attention.query.weight", "attention.attention.key.weight",
                     "attention.attention.value.weight", "attention.output.dense.weight"},
                    {"attention.attention.query.bias", "attention.attention.key.bias",
                     "attention.attention.value.bias", "attention.output.dense.bias"},
                    false},
    [NAMING_TIMM] = {"ViT of timm",
                     {"attn.qkv.weight", NULL, NULL, "attn.proj.weight"},
                     {"attn.qkv.bias", NULL, NULL, "attn.proj.bias"},
                     false},
    [NAMING_DISTILBERT] = {"DistilBERT",
                           {"attention.q_lin.weight", "attention.k_lin.weight",
                            "attention.v_lin.weight", "attention.out_lin.weight"},
                           {"attention.q_lin.bias", "attention.k_lin.bias", "attention.v_lin.bias",
                            "attention.out_lin.bias"},
                           false},
    [NAMING_PLAIN] = {"W_q.weight",
                      {"W_q.weight", "W_k.weight", "W_v.weight", "W_o.weight"},
                      {"W_q.bias", "W_k.bias", "W_v.bias", "W_o.bias"},
                      false},
    [NAMING_PLAIN_UPPER] = {"W_Q.weight",
                            {"W_Q.weight", "W_K.weight", "W_V.weight", "W_O.weight"},
                            {"W_Q.bias", "W_K.bias", "W_V.bias", "W_O.bias"},
                            false},
    [NAMING_PLAIN_LOWER] = {"w_q.weight",
                            {"w_q.weight", "w_k.weight", "w_v.weight", "w_o.weight"},
                            {"w_q.bias", "w_k.bias", "w_v.bias", "w_o.bias"},
                            false},
    [NAMING_PLAIN_B] = {"W_q.weight, b_q",
                        {"W_q.weight", "W_k.weight", "W_v.weight", "W_o.weight"},
                        {"b_q", "b_k", "b_v", "b_o"},
                        false},
    [NAMING_PLAIN_JOINED] = {"w_q.weight, w_q_bias",
                             {"w_q.weight", "w_k.weight", "w_v.weight", "w_o.weight"},
                             {"w_q_bias", "w_k_bias", "w_v_bias", "w_o_bias"},
                             false},
    [NAMING_PLAIN_LETTER] = {"W_Q.weight, q_bias",
                             {"W_Q.weight", "W_K.weight", "W_V.weight", "W_O.weight"},
                             {"q_bias", "k_bias", "v_bias", "o_bias"},
                             false},
    [NAMING_BARE] = {"W_q", {"W_q", "W_k", "W_v", "W_o"}, {"b_q", "b_k", "b_v", "b_o"}, false},
    [NAMING_BARE_LOWER] = {"w_q",
                           {"w_q", "w_k", "w_v", "w_o"},
                           {"w_q_bias", "w_k_bias", "w_v_bias", "w_o_bias"},
                           false},
    [NAMING_BARE_UPPER] = {"W_Q",
                           {"W_Q", "W_K", "W_V", "W_O"},
                           {"W_Q.bias", "W_K.bias", "W_V.bias", "W_O.bias"},
                           false},
    [NAMING_BARE_MIXED] = {"w_Q and more",
                           {"w_Q", "W_k", "w_v", "W_O"},
                           {"B_q", "b_K", "b_v", "B_O"},
                           false},
};

void add_matrix(struct tensors *tensors, const char *prefix, const char *name, size_t rows,
                size_t columns, const float *values, bool turned) {
    char full[256], shape[64];
    float *copy = malloc((rows * (columns + 1) + 1) * sizeof *copy);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    if (columns == 0) { /* a bias */
        snprintf(shape, sizeof shape, "[%zu]", rows);
        memcpy(copy, values, rows * sizeof *copy);
    } else {
        snprintf(shape, sizeof shape, "[%zu,%zu]", turned ? columns : rows,
                 turned ? rows : columns);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < columns; c++) {
                copy[turned ? c * rows + r : r * columns + c] = values[r * columns + c];
            }
        }
    }
    add_tensor(tensors, full, "F32", shape, copy, rows * (columns > 0 ? columns : 1));
    free(copy);
}

/* n arrays of at most 3, one after the other. */
static float *concatenate(float *const *arrays, const size_t *sizes, size_t n) {
    size_t total = 0;
    float *all = malloc((sizes[0] + sizes[1] + sizes[2]) * sizeof *all);
    for (size_t i = 0; i < n; i++) {
        memcpy(all + total, arrays[i], sizes[i] * sizeof *all);
        total += sizes[i];
    }
    return all;
}

void add_layer(struct tensors *tensors, const struct layer *l, const struct naming *n,
               const char *prefix, bool biases, const char *without) {
    const size_t sizes[3] = {l->rows[0] * l->columns[0], l->rows[1] * l->columns[1],
                             l->rows[2] * l->columns[2]};
    size_t all_rows = l->rows[0] + l->rows[1] + l->rows[2];
    float *weights = concatenate(l->weight, sizes, 3);
    float *bias = concatenate(l->bias, l->rows, 3);
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
    free(weights);
    free(bias);
}
