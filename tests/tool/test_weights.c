/* SPDX-License-Identifier: MIT
 *
 * Loading a layer from a checkpoint: each naming scheme gives the same weights, widths come
 * from the shapes, prefixes pick layers. What is missing, misshapen or not supported is
 * refused in words, and nothing is kept.
 */
#include "weights.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "failure.h"

static struct layer plain;
static const float zeros[108];

static void setup(void) {
    scratch_setup();
    plain = (struct layer)PLAIN_LAYER;
    fill_layer(&plain);
}

/* ---- What is loaded ------------------------------------------------------------------- */

static void check_array(const char *what, const float *have, const float *want, size_t count) {
    require((have == NULL) == (want == NULL), "%s: %s is%s there", case_name(), what,
            have == NULL ? " not" : "");
    require(have == NULL || memcmp(have, want, count * sizeof *have) == 0, "%s: %s differs",
            case_name(), what);
}

/* without: the number of the missing bias, or 4. */
static void expect_loaded(const char *path, const char *prefix, const struct layer *l, bool biases,
                          size_t without) {
    struct weights w;
    require(weights_load(path, prefix, l->heads, l->kv_heads, &w), "%s: %s", case_name(),
            failure_message());
    const mha_config *c = &w.config;
    require(c->d_model == l->d_model && c->n_heads == l->heads && c->n_kv_heads == l->kv_heads &&
                c->head_dim == l->head_dim && c->v_head_dim == l->v_head_dim &&
                c->k_dim == l->k_dim && c->v_dim == l->v_dim,
            "%s: the configuration differs", case_name());
    const float *weight[4] = {w.arrays.q, w.arrays.k, w.arrays.v, w.arrays.o};
    const float *bias[4] = {w.arrays.q_bias, w.arrays.k_bias, w.arrays.v_bias, w.arrays.o_bias};
    static const char *const names[4] = {"q", "k", "v", "o"};
    for (size_t i = 0; i < 4; i++) {
        check_array(names[i], weight[i], l->weight[i], l->rows[i] * l->columns[i]);
        check_array(names[i], bias[i], biases && i != without ? l->bias[i] : NULL, l->rows[i]);
    }
    weights_free(&w);
}

#define WIDTHS(h, kv, qk, v, m, mk, mv)                                                            \
    {                                                                                              \
        .heads = h, .kv_heads = kv, .head_dim = qk, .v_head_dim = v, .d_model = m, .k_dim = mk,    \
        .v_dim = mv                                                                                \
    }

START_TEST(every_scheme) {
    static const struct layer layers[] = {
        PLAIN_LAYER,
        WIDTHS(4, 2, 3, 3, 8, 8, 8),
        WIDTHS(4, 1, 5, 2, 7, 9, 1),
        WIDTHS(1, 1, 1, 1, 1, 1, 1),
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct layer layer = layers[i];
        fill_layer(&layer);
        for (size_t n = 0; n < N_NAMINGS; n++) {
            if (namings[n].weight[1] == NULL &&
                (layer.head_dim != layer.v_head_dim || layer.k_dim != layer.d_model)) {
                continue; /* one tensor has one width */
            }
            for (int variant = 0; variant < 4; variant++) {
                bool biases = (variant & 1) != 0;
                const char *prefix = variant < 2 ? "" : "encoder.layer.0.";
                struct tensors tensors = {0};
                begin_case("%s, widths %zu, prefix '%s', biases %d", namings[n].label, i, prefix,
                           biases);
                add_layer(&tensors, &layer, &namings[n], prefix, biases, NULL);
                expect_loaded(write_tensors("w", &tensors), NULL, &layer, biases, 4);
            }
        }
    }
}
END_TEST

START_TEST(a_bias_less) {
    for (size_t missing = 0; missing < 4; missing++) {
        struct tensors tensors = {0};
        begin_case("without bias %zu", missing);
        add_layer(&tensors, &plain, &namings[NAMING_BERT], "", true,
                  namings[NAMING_BERT].bias[missing]);
        expect_loaded(write_tensors("w", &tensors), NULL, &plain, true, missing);
    }
}
END_TEST

/* Names that end like a bias of the layer but belong to other parts of the model. */
START_TEST(biases_of_others) {
    static const struct {
        size_t naming;
        const char *others[4];
    } cases[] = {
        {NAMING_BERT,
         {"x.output.dense.bias", "x.intermediate.dense.bias", "x.attention.output.LayerNorm.bias",
          "output.dense.bias"}},
        {NAMING_VIT, {"x.output.dense.bias", "x.layernorm_before.bias"}},
        {NAMING_GPT2, {"x.attn.bias", "x.attn.masked_bias", "x.mlp.c_proj.bias", "x.ln_1.bias"}},
        {NAMING_TIMM, {"x.proj.bias", "x.attn.attn.proj.bias", "proj.bias", "y.attn.qkv.bias"}},
        {NAMING_LLAMA, {"x.o_proj.bias", "x.cross_attn.q_proj.bias", "x.mlp.wo.bias"}},
        {NAMING_PLAIN, {"W_q.bias", "y.W_q.bias", "x.y.b_q", "x.norm.bias"}},
        {NAMING_MHA, {"x.self.in_proj_bias", "x.norm.bias", "q_proj.bias"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        begin_case("%s among others", namings[cases[i].naming].label);
        add_layer(&tensors, &plain, &namings[cases[i].naming], "x.", true, NULL);
        for (size_t n = 0; n < 4 && cases[i].others[n] != NULL; n++) {
            add_tensor(&tensors, cases[i].others[n], "F32", "[6]", zeros, 6);
        }
        expect_loaded(write_tensors("w", &tensors), NULL, &plain, true, 4);
    }
}
END_TEST

/* ---- What is refused ------------------------------------------------------------------ */

static void expect_failure(const char *path, const char *prefix, size_t heads, size_t kv_heads,
                           const char *message) {
    struct weights weights;
    require(!weights_load(path, prefix, heads, kv_heads, &weights), "%s: was taken", case_name());
    require(strstr(failure_message(), message) != NULL && strlen(failure_message()) < 1000,
            "%s: '%s' is not in: %s", case_name(), message, failure_message());
    for (size_t i = 0; i < 8; i++) {
        require(weights.owned[i] == NULL, "%s: not empty", case_name());
    }
}

/* Layers 0, 1 and 10 of one scheme, one of another, and a hundred of a third with long names. */
START_TEST(prefixes) {
    static const struct {
        const char *prefix;
        int layer;           /* -1: an error */
        const char *message; /* part of it */
    } cases[] = {
        {"model.layers.0", 0, ""},
        {"model.layers.0.", 0, ""},
        {"model.layers.0.self_attn", 0, ""},
        {"model.layers.0.self_attn.", 0, ""},
        {"model.layers.1", 1, ""},
        {"model.layers.10", 2, ""},
        {"head_", 3, ""},
        {NULL, -1, "--prefix picks one of: model.layers.0.self_attn, "},
        {"model", -1,
         "--prefix picks one of: model.layers.0.self_attn, model.layers.1.self_attn, "
         "model.layers.10.self_attn"},
        {"some", -1, " more"},
        {"model.layers.2", -1, "no attention layer found at --prefix 'model.layers.2'"},
        {"model.layers.0.self", -1, "no attention layer found at --prefix"},
        {"model.layers.0.mlp", -1, "no attention layer found at --prefix"},
        {"head", -1, "no attention layer found at --prefix 'head'"},
        {"nonsense", -1, "the file has: head_W_k.weight, head_W_o.weight"},
    };
    struct tensors tensors = {0};
    struct layer layers[4];
    static const char *const at[4] = {"model.layers.0.", "model.layers.1.", "model.layers.10.",
                                      "head_"};
    for (size_t i = 0; i < 4; i++) {
        layers[i] = (struct layer)PLAIN_LAYER;
        fill_layer(&layers[i]);
        layers[i].weight[0][0] = (float)i;
        add_layer(&tensors, &layers[i], &namings[i < 3 ? NAMING_LLAMA : NAMING_PLAIN], at[i], false,
                  NULL);
    }
    for (size_t i = 0; i < 100; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "some.rather.long.name.of.a.module.%zu.", i);
        add_layer(&tensors, &plain, &namings[NAMING_MHA], prefix, true, NULL);
    }
    add_tensor(&tensors, "model.layers.0.mlp.down_proj.weight", "F32", "[6,6]", zeros, 36);
    const char *path = write_tensors("w", &tensors);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_case("prefix %s", cases[i].prefix != NULL ? cases[i].prefix : "(none)");
        if (cases[i].layer >= 0) {
            expect_loaded(path, cases[i].prefix, &layers[cases[i].layer], false, 4);
        } else {
            expect_failure(path, cases[i].prefix, 2, 0, cases[i].message);
        }
    }
}
END_TEST

START_TEST(missing_weights) {
    for (size_t n = 0; n < N_NAMINGS; n++) {
        for (size_t i = 0; i < 4; i++) {
            struct tensors tensors = {0};
            const char *without = namings[n].weight[i];
            char message[128] = "' is missing";
            if (without == NULL) {
                continue;
            }
            begin_case("%s without %s", namings[n].label, without);
            add_layer(&tensors, &plain, &namings[n], "l.", true, without);
            /* Only this name tells OPT from Llama. */
            if (i != 3 || n != NAMING_OPT) {
                snprintf(message, sizeof message, "tensor 'l.%s' is missing", without);
            }
            expect_failure(write_tensors("w", &tensors), NULL, 2, 0, message);
        }
    }
}
END_TEST

START_TEST(nothing_there) {
    struct tensors tensors = {0};
    begin_case("no layer");
    add_tensor(&tensors, "embeddings.weight", "F32", "[2,2]", zeros, 4);
    add_tensor(&tensors, "output.dense.weight", "F32", "[2,2]", zeros, 4);
    const char *path = write_tensors("w", &tensors);
    expect_failure(path, NULL, 1, 0,
                   "nn.MultiheadAttention, nn.MultiheadAttention (kdim, vdim), BERT, Llama");
    expect_failure(path, NULL, 1, 0, "the file has: embeddings.weight, output.dense.weight");
    begin_case("an empty file");
    expect_failure(write_safetensors("w", "{}", 0), NULL, 1, 0, "the file has: (none)");
}
END_TEST

/* One tensor is wrong, or there is one too many. */
static const struct {
    size_t naming, heads, kv_heads;
    const char *name; /* added, in place of the layer's own; NULL: none */
    const char *dtype, *shape;
    size_t count;
    const char *message;
} refusals[] = {
    /* Heads. */
    {NAMING_BERT, 4, 0, NULL, "", "", 0, "4 heads do not divide the 6 rows of tensor"},
    {NAMING_BERT, 7, 0, NULL, "", "", 0, "7 heads do not divide the 6 rows"},
    {NAMING_BERT, SIZE_MAX, 0, NULL, "", "", 0, "do not divide the 6 rows"},
    {NAMING_BERT, 2, 1, NULL, "", "", 0, "is not 1 key/value heads of width 3 (--kv-heads 2 fits)"},
    {NAMING_BERT, 2, 4, NULL, "", "", 0, "is not 4 key/value heads of width 3"},
    {NAMING_BERT, 1, 2, NULL, "", "", 0, "is not 2 key/value heads of width 6"},
    {NAMING_MHA, 4, 0, NULL, "", "", 0, "4 heads do not divide the 6 rows of each of q, k and v"},
    {NAMING_MHA, SIZE_MAX, 0, NULL, "", "", 0, "do not divide the 6 rows"},
    {NAMING_MHA, 2, 5, NULL, "", "", 0, "can't be cut into 2 query, 5 key and 5 value heads"},
    {NAMING_MHA, 2, SIZE_MAX / 2, NULL, "", "", 0, "can't be cut into"},
    {NAMING_MHA, SIZE_MAX, SIZE_MAX / 2 + 1, NULL, "", "", 0, "can't be cut into"},
    /* Shapes. */
    {NAMING_PLAIN, 2, 0, "W_q.weight", "F32", "[6]", 6, "(6,); a weight has two dimensions"},
    {NAMING_PLAIN, 2, 0, "W_q.weight", "F32", "[6,6,1]", 36, "a weight has two dimensions"},
    {NAMING_PLAIN, 2, 0, "W_q.weight", "F32", "[6,0]", 0, "a weight has two dimensions, not 0"},
    {NAMING_PLAIN, 2, 0, "W_q.weight", "F32", "[0,6]", 0, "a weight has two dimensions, not 0"},
    {NAMING_PLAIN, 2, 0, "W_q.weight", "F32", "[5,6]", 30, "2 heads do not divide the 5 rows"},
    {NAMING_PLAIN, 2, 0, "W_q.weight", "F32", "[6,5]", 30, "has an output width of 6, not 5"},
    {NAMING_PLAIN, 2, 0, "W_k.weight", "F32", "[5,6]", 30, "not 2 key/value heads of width 3"},
    {NAMING_PLAIN, 2, 0, "W_k.weight", "F32", "[12,6]", 72, "not 2 key/value heads of width 3"},
    {NAMING_PLAIN, 2, 0, "W_v.weight", "F32", "[5,6]", 30, "not 2 key/value heads of any width"},
    {NAMING_PLAIN, 2, 0, "W_v.weight", "F32", "[8,6]", 48, "input width of 6, not 2 heads of 4"},
    {NAMING_PLAIN, 2, 0, "W_o.weight", "F32", "[6,7]", 42, "input width of 7, not 2 heads of 3"},
    {NAMING_PLAIN, 2, 0, "W_o.weight", "F32", "[5,6]", 30, "has an output width of 5, not 6"},
    {NAMING_PLAIN, 2, 0, "W_q.bias", "F32", "[5]", 5, "has shape (5,), not (6,)"},
    {NAMING_PLAIN, 2, 0, "W_k.bias", "F32", "[6,1]", 6, "has shape (6, 1), not (6,)"},
    {NAMING_PLAIN, 2, 0, "W_v.bias", "F32", "[]", 1, "has shape (), not (6,)"},
    {NAMING_PLAIN, 2, 0, "W_o.bias", "F32", "[7]", 7, "has shape (7,), not (6,)"},
    /* GPT-2 stores (in, out); this is the layout of nn.Linear. */
    {NAMING_GPT2, 2, 0, "attn.c_attn.weight", "F32", "[18,6]", 108, "not 2 heads of 1"},
    /* Types: as many bytes of binary16. */
    {NAMING_PLAIN, 2, 0, "W_v.weight", "I16", "[6,6]", 36, "is of type I16; F32, F16, BF16 and"},
    {NAMING_PLAIN, 2, 0, "W_o.bias", "I16", "[6]", 6, "is of type I16; F32, F16, BF16 and F64"},
    /* Parts that are not supported, including those of Swin and BEiT. */
    {NAMING_MHA, 2, 0, "bias_k", "F32", "[1,1,6]", 6, "which is not supported"},
    {NAMING_MHA, 2, 0, "bias_v", "F32", "[1,1,6]", 6, "which is not supported"},
    {NAMING_MHA_SEPARATE, 2, 0, "bias_k", "F32", "[1,1,6]", 6, "which is not supported"},
    {NAMING_LLAMA, 2, 0, "self_attn.q_norm.weight", "F32", "[3]", 3, "which is not supported"},
    {NAMING_BERT, 2, 0, "attention.self.distance_embedding.weight", "F32", "[5,3]", 15,
     "which is not supported"},
    {NAMING_BERT, 2, 0, "attention.self.relative_position_bias_table", "F32", "[6]", 6,
     "which is not supported"},
    {NAMING_BERT, 2, 0, "attention.self.logit_scale", "F32", "[2]", 2, "which is not supported"},
    {NAMING_VIT, 2, 0, "attention.attention.relative_position_bias.relative_position_bias_table",
     "F32", "[6]", 6, "which is not supported"},
    {NAMING_TIMM, 2, 0, "attn.relative_position_bias_table", "F32", "[6]", 6,
     "which is not supported"},
    /* Biases whose names are not those of the layer's family. */
    {NAMING_PLAIN, 2, 0, "b_q", "F32", "[6]", 6, "is named like a bias of the layer"},
    {NAMING_PLAIN, 2, 0, "W_Q.bias", "F32", "[6]", 6, "is named like a bias of the layer"},
    {NAMING_PLAIN, 2, 0, "W_o_bias", "F32", "[6]", 6, "is named like a bias of the layer"},
    {NAMING_BARE, 2, 0, "w_v.bias", "F32", "[6]", 6, "is named like a bias of the layer"},
    {NAMING_OPT, 2, 0, "self_attn.in_proj_bias", "F32", "[6]", 6, "is named like a bias"},
    {NAMING_OPT, 2, 0, "self_attn.o_proj.bias", "F32", "[6]", 6, "is named like a bias"},
    {NAMING_LLAMA, 2, 0, "self_attn.wo.bias", "F32", "[6]", 6, "is named like a bias"},
    {NAMING_MHA_SEPARATE, 2, 0, "k_proj.bias", "F32", "[6]", 6, "is named like a bias"},
    {NAMING_BERT, 2, 0, "attention.q_lin.bias", "F32", "[6]", 6, "is named like a bias"},
    {NAMING_GPT2, 2, 0, "attn.proj.bias", "F32", "[6]", 6, "is named like a bias of the layer"},
    {NAMING_TIMM, 2, 0, "attn.q_bias", "F32", "[6]", 6, "is named like a bias"}, /* BEiT */
};

START_TEST(refused) {
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct tensors tensors = {0};
        const char *name = refusals[i].name;
        char full[96];
        begin_case("%s, %zu heads, %s %s", namings[refusals[i].naming].label, refusals[i].heads,
                   name != NULL ? name : "", refusals[i].shape);
        add_layer(&tensors, &plain, &namings[refusals[i].naming], "x.", true, name);
        if (name != NULL) {
            snprintf(full, sizeof full, "x.%s", name);
            add_tensor(&tensors, full, refusals[i].dtype, refusals[i].shape, zeros,
                       refusals[i].count);
        }
        expect_failure(write_tensors("w", &tensors), NULL, refusals[i].heads, refusals[i].kv_heads,
                       refusals[i].message);
    }
}
END_TEST

/* An unknown type has no size, so its shape may claim anything: here sums of rows or of heads
 * overflow. */
START_TEST(shapes_without_bytes) {
    static const struct {
        const char *weights[3];
        size_t rows, heads, kv_heads;
        const char *message;
    } cases[] = {
        {{"in_proj_weight"},
         SIZE_MAX,
         2,
         SIZE_MAX / 2,
         "can't be cut into 2"}, /* 2 + 2 * kv is 0 */
        {{"in_proj_weight"}, SIZE_MAX, 4, SIZE_MAX / 2, "can't be cut into 4"},
        {{"in_proj_weight"}, SIZE_MAX, SIZE_MAX, 1, "can't be cut into"},
        /* thrice the rows is 2 */
        {{"q_proj_weight", "k_proj_weight", "v_proj_weight"}, SIZE_MAX / 3 + 1, 1, 1, "(2,), not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        char shape[64];
        begin_case("shapes without bytes, case %zu", i);
        snprintf(shape, sizeof shape, "[%zu,1]", cases[i].rows);
        for (size_t n = 0; n < 3 && cases[i].weights[n] != NULL; n++) {
            add_tensor(&tensors, cases[i].weights[n], "F4", shape, NULL, 0);
        }
        snprintf(shape, sizeof shape, "[1,%zu]", cases[i].rows);
        add_tensor(&tensors, "out_proj.weight", "F4", shape, NULL, 0);
        add_tensor(&tensors, "in_proj_bias", "F4", "[2]", NULL, 0);
        expect_failure(write_tensors("w", &tensors), NULL, cases[i].heads, cases[i].kv_heads,
                       cases[i].message);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-weights");
    TCase *tcase = tcase_create("weights");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, setup, scratch_teardown);
    tcase_add_test(tcase, every_scheme);
    tcase_add_test(tcase, a_bias_less);
    tcase_add_test(tcase, biases_of_others);
    tcase_add_test(tcase, prefixes);
    tcase_add_test(tcase, missing_weights);
    tcase_add_test(tcase, nothing_there);
    tcase_add_test(tcase, refused);
    tcase_add_test(tcase, shapes_without_bytes);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
