/* SPDX-License-Identifier: MIT
 *
 * Loading a layer from a checkpoint: each naming scheme gives the same weights, widths come
 * from the shapes, prefixes pick layers. test_weights.c has what is wrong.
 */
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "failure.h"

static void check_array(const char *what, const float *have, const float *want, size_t count) {
    require((have == NULL) == (want == NULL), "%s: %s is%s there", case_name(), what,
            have == NULL ? " not" : "");
    require(have == NULL || memcmp(have, want, count * sizeof *have) == 0, "%s: %s differs",
            case_name(), what);
}

static void check_loaded(const struct weights *w, const struct layer *l, bool biases) {
    const mha_config want = {.d_model = l->d_model,
                             .n_heads = l->heads,
                             .n_kv_heads = l->kv_heads,
                             .head_dim = l->head_dim,
                             .v_head_dim = l->v_head_dim,
                             .k_dim = l->k_dim,
                             .v_dim = l->v_dim};
    const mha_config *c = &w->config;
    require(c->d_model == want.d_model && c->n_heads == want.n_heads &&
                c->n_kv_heads == want.n_kv_heads && c->head_dim == want.head_dim &&
                c->v_head_dim == want.v_head_dim && c->k_dim == want.k_dim &&
                c->v_dim == want.v_dim,
            "%s: the configuration differs", case_name());
    const float *weight[4] = {w->arrays.q, w->arrays.k, w->arrays.v, w->arrays.o};
    const float *bias[4] = {w->arrays.q_bias, w->arrays.k_bias, w->arrays.v_bias, w->arrays.o_bias};
    static const char *const names[4] = {"q", "k", "v", "o"};
    for (size_t i = 0; i < 4; i++) {
        check_array(names[i], weight[i], l->weight[i], l->rows[i] * l->columns[i]);
        check_array(names[i], bias[i], biases ? l->bias[i] : NULL, l->rows[i]);
    }
}

START_TEST(every_scheme) {
    static const char *const prefixes[] = {"", "encoder.layer.0."};
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t n = 0; n < N_NAMINGS; n++) {
        for (int variant = 0; variant < 4; variant++) {
            bool biases = (variant & 1) != 0;
            const char *prefix = prefixes[variant >> 1];
            struct tensors tensors = {0};
            struct weights weights;
            add_layer(&tensors, &layer, &namings[n], prefix, biases, NULL);
            begin_case("%s, prefix '%s', biases %d", namings[n].label, prefix, biases);
            require(weights_load(write_tensors("w", &tensors), NULL, 2, 0, &weights), "%s: %s",
                    case_name(), failure_message());
            check_loaded(&weights, &layer, biases);
            weights_free(&weights);
        }
    }
    free_layer(&layer);
}
END_TEST

/* Widths of their own, and key/value heads fewer than query heads. */
START_TEST(widths_from_shapes) {
    static const struct layer layers[] = {
        {.heads = 4,
         .kv_heads = 2,
         .head_dim = 3,
         .v_head_dim = 3,
         .d_model = 8,
         .k_dim = 8,
         .v_dim = 8},
        {.heads = 4,
         .kv_heads = 1,
         .head_dim = 5,
         .v_head_dim = 2,
         .d_model = 7,
         .k_dim = 9,
         .v_dim = 1},
        {.heads = 1,
         .kv_heads = 1,
         .head_dim = 1,
         .v_head_dim = 1,
         .d_model = 1,
         .k_dim = 1,
         .v_dim = 1},
    };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        struct layer layer = layers[i];
        fill_layer(&layer);
        for (size_t n = 0; n < N_NAMINGS; n++) {
            struct tensors tensors = {0};
            struct weights weights;
            if (namings[n].weight[1] == NULL &&
                (layer.head_dim != layer.v_head_dim || layer.k_dim != layer.d_model)) {
                continue; /* one tensor has one width */
            }
            begin_case("%s, widths %zu", namings[n].label, i);
            add_layer(&tensors, &layer, &namings[n], "a.", true, NULL);
            require(weights_load(write_tensors("w", &tensors), NULL, layer.heads, layer.kv_heads,
                                 &weights),
                    "%s: %s", case_name(), failure_message());
            check_loaded(&weights, &layer, true);
            weights_free(&weights);
        }
        free_layer(&layer);
    }
}
END_TEST

/* Any subset of biases. */
START_TEST(some_biases) {
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t missing = 0; missing < 4; missing++) {
        struct tensors tensors = {0};
        struct weights weights;
        add_layer(&tensors, &layer, &namings[NAMING_BERT], "", true,
                  namings[NAMING_BERT].bias[missing]);
        begin_case("without bias %zu", missing);
        require(weights_load(write_tensors("w", &tensors), NULL, 2, 0, &weights), "%s",
                failure_message());
        const float *bias[4] = {weights.arrays.q_bias, weights.arrays.k_bias, weights.arrays.v_bias,
                                weights.arrays.o_bias};
        for (size_t i = 0; i < 4; i++) {
            check_array("bias", bias[i], i == missing ? NULL : layer.bias[i], layer.rows[i]);
        }
        weights_free(&weights);
    }
    free_layer(&layer);
}
END_TEST

/* Names that end like a bias of the layer, but are other tensors of the same model. */
START_TEST(biases_of_others) {
    static const struct {
        size_t naming;
        const char *others[4];
    } cases[] = {
        {NAMING_BERT,
         {"x.output.dense.bias", "x.intermediate.dense.bias", "x.attention.output.LayerNorm.bias",
          "output.dense.bias"}},
        {NAMING_VIT, {"x.output.dense.bias", "x.layernorm_before.bias", "x.attention.bias"}},
        {NAMING_GPT2, {"x.attn.bias", "x.attn.masked_bias", "x.mlp.c_proj.bias", "x.ln_1.bias"}},
        {NAMING_TIMM, {"x.proj.bias", "x.attn.attn.proj.bias", "proj.bias", "y.attn.qkv.bias"}},
        {NAMING_LLAMA, {"x.o_proj.bias", "x.cross_attn.q_proj.bias", "x.mlp.wo.bias"}},
        {NAMING_OPT, {"x.out_proj.bias", "x.self_attn_layer_norm.bias", "x.fc1.bias"}},
        {NAMING_DISTILBERT, {"x.ffn.lin1.bias", "x.out_lin.bias", "x.sa_layer_norm.bias"}},
        {NAMING_PLAIN, {"W_q.bias", "y.W_q.bias", "x.y.b_q", "x.W_r.bias"}},
        {NAMING_MHA, {"x.self.in_proj_bias", "x.norm.bias", "q_proj.bias"}},
    };
    const float zeros[6] = {0};
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        struct weights weights;
        begin_case("%s among others", namings[cases[i].naming].label);
        add_layer(&tensors, &layer, &namings[cases[i].naming], "x.", true, NULL);
        for (size_t n = 0; n < 4 && cases[i].others[n] != NULL; n++) {
            add_tensor(&tensors, cases[i].others[n], "F32", "[6]", zeros, 6);
        }
        require(weights_load(write_tensors("w", &tensors), NULL, 2, 0, &weights), "%s: %s",
                case_name(), failure_message());
        check_loaded(&weights, &layer, true);
        weights_free(&weights);
    }
    free_layer(&layer);
}
END_TEST

/* ---- Choosing a layer ---------------------------------------------------------------- */

/* A file with layers 0, 1 and 10 of one scheme and one of another, weights in other orders. */
static const char *write_model(const struct layer *layers) {
    struct tensors tensors = {0};
    add_layer(&tensors, &layers[0], &namings[NAMING_LLAMA], "model.layers.0.", false, NULL);
    add_layer(&tensors, &layers[1], &namings[NAMING_LLAMA], "model.layers.1.", false, NULL);
    add_layer(&tensors, &layers[2], &namings[NAMING_LLAMA], "model.layers.10.", false, NULL);
    add_layer(&tensors, &layers[3], &namings[NAMING_PLAIN], "head_", false, NULL);
    add_matrix(&tensors, "", "model.layers.0.mlp.down_proj.weight", 6, 6, layers[0].weight[0],
               false);
    return write_tensors("w", &tensors);
}

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
        {NULL, -1,
         "--prefix picks one of: model.layers.0.self_attn, model.layers.1.self_attn, "
         "model.layers.10.self_attn"},
        {"model", -1, "--prefix picks one of: model.layers.0.self_attn"},
        {"model.layers.2", -1, "no attention layer found at --prefix 'model.layers.2'"},
        {"model.layers.0.self", -1, "no attention layer found at --prefix"},
        {"model.layers.0.mlp", -1, "no attention layer found at --prefix"},
        {"head", -1, "no attention layer found at --prefix 'head'"},
        {"nonsense", -1, "the file has: head_W_k.weight, head_W_o.weight"},
    };
    struct layer layers[4];
    for (size_t i = 0; i < 4; i++) {
        layers[i] = (struct layer)PLAIN_LAYER;
        fill_layer(&layers[i]);
        layers[i].weight[0][0] = (float)i;
    }
    const char *path = write_model(layers);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weights weights;
        bool good = weights_load(path, cases[i].prefix, 2, 0, &weights);
        begin_case("prefix %s", cases[i].prefix != NULL ? cases[i].prefix : "(none)");
        require(good == (cases[i].layer >= 0), "%s: %s", case_name(), failure_message());
        if (good) {
            check_loaded(&weights, &layers[cases[i].layer], false);
            weights_free(&weights);
        } else {
            require(strstr(failure_message(), cases[i].message) != NULL, "%s: %s", case_name(),
                    failure_message());
        }
    }
    for (size_t i = 0; i < 4; i++) {
        free_layer(&layers[i]);
    }
}
END_TEST

/* Too many layers for one line: it counts the rest. */
START_TEST(a_hundred_layers) {
    struct layer layer = PLAIN_LAYER;
    struct tensors tensors = {0};
    struct weights weights;
    fill_layer(&layer);
    for (size_t i = 0; i < 100; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "some.rather.long.name.of.a.module.%zu.", i);
        add_layer(&tensors, &layer, &namings[NAMING_MHA], prefix, true, NULL);
    }
    const char *path = write_tensors("w", &tensors);
    ck_assert(!weights_load(path, NULL, 2, 0, &weights));
    ck_assert_ptr_nonnull(strstr(failure_message(), "some.rather.long.name.of.a.module.0, "));
    ck_assert_ptr_nonnull(strstr(failure_message(), " more"));
    ck_assert(strlen(failure_message()) < 1000);
    ck_assert(weights_load(path, "some.rather.long.name.of.a.module.99", 2, 0, &weights));
    weights_free(&weights);
    free_layer(&layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-names");
    TCase *tcase = tcase_create("names");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, every_scheme);
    tcase_add_test(tcase, widths_from_shapes);
    tcase_add_test(tcase, some_biases);
    tcase_add_test(tcase, biases_of_others);
    tcase_add_test(tcase, prefixes);
    tcase_add_test(tcase, a_hundred_layers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
