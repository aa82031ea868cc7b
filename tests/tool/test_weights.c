/* SPDX-License-Identifier: MIT
 *
 * Checkpoints from which no layer can be loaded: what is missing, misshapen or not supported
 * is said in words, and nothing is kept.
 */
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "failure.h"

static void expect_failure(struct tensors *tensors, size_t heads, size_t kv_heads,
                           const char *message) {
    struct weights weights;
    bool good = weights_load(write_tensors("w", tensors), NULL, heads, kv_heads, &weights);
    require(!good, "%s: was taken", case_name());
    require(strstr(failure_message(), message) != NULL, "%s: '%s' is not in: %s", case_name(),
            message, failure_message());
    for (size_t i = 0; i < 8; i++) {
        require(weights.owned[i] == NULL, "%s: not empty", case_name());
    }
}

START_TEST(missing_weights) {
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t n = 0; n < N_NAMINGS; n++) {
        for (size_t i = 0; i < 4; i++) {
            struct tensors tensors = {0};
            const char *without = namings[n].weight[i];
            char message[128];
            if (without == NULL) {
                continue;
            }
            begin_case("%s without %s", namings[n].label, without);
            add_layer(&tensors, &layer, &namings[n], "l.", true, without);
            /* Without the name of its case, which can't be known; and the schemes that share
             * a name for the output are told apart by nothing else. */
            bool plain = strchr("wW", without[0]) != NULL;
            bool guess =
                i == 3 && strstr(without, "out_proj") != NULL && namings[n].bias[1] != NULL;
            snprintf(message, sizeof message, "%s%s' is missing", plain || guess ? "" : "'l.",
                     plain || guess ? "" : without);
            expect_failure(&tensors, 2, 0, message);
        }
    }
    free_layer(&layer);
}
END_TEST

START_TEST(nothing_there) {
    struct tensors tensors = {0};
    const float values[4] = {0};
    begin_case("no layer");
    add_tensor(&tensors, "embeddings.weight", "F32", "[2,2]", values, 4);
    add_tensor(&tensors, "output.dense.weight", "F32", "[2,2]", values, 4);
    expect_failure(&tensors, 1, 0,
                   "nn.MultiheadAttention, nn.MultiheadAttention (kdim, vdim), BERT, Llama");
    add_tensor(&tensors, "embeddings.weight", "F32", "[2,2]", values, 4);
    expect_failure(&tensors, 1, 0, "the file has: embeddings.weight");
    begin_case("an empty file");
    put_text(&tensors.json, " ");
    expect_failure(&tensors, 1, 0, "the file has: (none)");
}
END_TEST

START_TEST(heads_that_do_not_divide) {
    static const struct {
        size_t naming, heads, kv_heads;
        const char *message;
    } cases[] = {
        {NAMING_BERT, 4, 0, "4 heads do not divide the 6 rows of tensor"},
        {NAMING_BERT, 7, 0, "7 heads do not divide the 6 rows"},
        {NAMING_BERT, SIZE_MAX, 0, "do not divide the 6 rows"},
        {NAMING_BERT, 2, 1, "is not 1 key/value heads of width 3 (--kv-heads 2 fits)"},
        {NAMING_BERT, 2, 4, "is not 4 key/value heads of width 3"},
        {NAMING_BERT, 1, 2, "is not 2 key/value heads of width 6"},
        {NAMING_MHA, 4, 0, "4 heads do not divide the 6 rows of each of q, k and v in tensor"},
        {NAMING_MHA, SIZE_MAX, 0, "do not divide the 6 rows"},
        {NAMING_MHA, 2, 5, "can't be cut into 2 query, 5 key and 5 value heads"},
        {NAMING_MHA, 2, SIZE_MAX / 2, "can't be cut into"},
        {NAMING_MHA, SIZE_MAX, SIZE_MAX / 2 + 1, "can't be cut into"},
    };
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        begin_case("heads, case %zu", i);
        add_layer(&tensors, &layer, &namings[cases[i].naming], "", true, NULL);
        expect_failure(&tensors, cases[i].heads, cases[i].kv_heads, cases[i].message);
    }
    free_layer(&layer);
}
END_TEST

START_TEST(misshapen) {
    static const struct {
        const char *name, *shape;
        size_t count;
        const char *message;
    } cases[] = {
        {"W_q.weight", "[6]", 6, "has shape (6,); a weight has two dimensions"},
        {"W_q.weight", "[6,6,1]", 36, "has shape (6, 6, 1); a weight has two dimensions"},
        {"W_q.weight", "[6,0]", 0, "a weight has two dimensions, not 0"},
        {"W_q.weight", "[0,6]", 0, "a weight has two dimensions, not 0"},
        {"W_q.weight", "[5,6]", 30, "2 heads do not divide the 5 rows"},
        {"W_q.weight", "[6,5]", 30, "has an output width of 6, not 5"},
        {"W_k.weight", "[5,6]", 30, "(5, 6) is not 2 key/value heads of width 3"},
        {"W_k.weight", "[12,6]", 72, "(12, 6) is not 2 key/value heads of width 3"},
        {"W_v.weight", "[5,6]", 30, "(5, 6) is not 2 key/value heads of any width"},
        {"W_v.weight", "[8,6]", 48, "has an input width of 6, not 2 heads of 4"},
        {"W_o.weight", "[6,7]", 42, "has an input width of 7, not 2 heads of 3"},
        {"W_o.weight", "[5,6]", 30, "has an output width of 5, not 6"},
        {"W_q.bias", "[5]", 5, "tensor 'W_q.bias' has shape (5,), not (6,)"},
        {"W_k.bias", "[6,1]", 6, "tensor 'W_k.bias' has shape (6, 1), not (6,)"},
        {"W_v.bias", "[]", 1, "tensor 'W_v.bias' has shape (), not (6,)"},
        {"W_o.bias", "[7]", 7, "tensor 'W_o.bias' has shape (7,), not (6,)"},
    };
    const float zeros[72] = {0};
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        begin_case("%s as %s", cases[i].name, cases[i].shape);
        add_layer(&tensors, &layer, &namings[NAMING_PLAIN], "", true, cases[i].name);
        add_tensor(&tensors, cases[i].name, "F32", cases[i].shape, zeros, cases[i].count);
        expect_failure(&tensors, 2, 0, cases[i].message);
    }
    free_layer(&layer);
}
END_TEST

/* A type that is not known has no size, and its shape may claim anything: sums of rows and of
 * heads that are beyond SIZE_MAX. */
START_TEST(shapes_without_bytes) {
    enum { PACKED, SEPARATE };
    static const struct {
        int layout;
        size_t rows, bias_rows, heads, kv_heads;
        const char *message;
    } cases[] = {
        {PACKED, SIZE_MAX, 0, 2, SIZE_MAX / 2, "can't be cut into 2 query"}, /* 2 + 2 * kv is 0 */
        {PACKED, SIZE_MAX, 0, 4, SIZE_MAX / 2, "can't be cut into 4 query"},
        {PACKED, SIZE_MAX, 0, SIZE_MAX, 1, "can't be cut into"},
        {PACKED, SIZE_MAX, 0, SIZE_MAX, SIZE_MAX / 2 + 1, "can't be cut into"},
        {SEPARATE, SIZE_MAX / 3 + 1, 2, 1, 1, "has shape (2,), not"}, /* thrice the rows is 2 */
    };
    static const char *const weights[][4] = {
        [PACKED] = {"in_proj_weight"},
        [SEPARATE] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        char shape[64];
        begin_case("shapes without bytes, case %zu", i);
        snprintf(shape, sizeof shape, "[%zu,1]", cases[i].rows);
        for (size_t n = 0; weights[cases[i].layout][n] != NULL; n++) {
            add_tensor(&tensors, weights[cases[i].layout][n], "F4", shape, NULL, 0);
        }
        snprintf(shape, sizeof shape, "[1,%zu]", cases[i].rows);
        add_tensor(&tensors, "out_proj.weight", "F4", shape, NULL, 0);
        snprintf(shape, sizeof shape, "[%zu]", cases[i].bias_rows);
        add_tensor(&tensors, "in_proj_bias", "F4", shape, NULL, 0);
        expect_failure(&tensors, cases[i].heads, cases[i].kv_heads, cases[i].message);
    }
}
END_TEST

/* GPT-2 stores (in, out): the layout of nn.Linear is misshapen there. */
START_TEST(conv1d_only) {
    struct layer layer = PLAIN_LAYER;
    struct tensors tensors = {0};
    struct naming linear = namings[NAMING_GPT2];
    fill_layer(&layer);
    linear.conv1d = false;
    begin_case("c_attn as (out, in)");
    add_layer(&tensors, &layer, &linear, "", false, NULL);
    expect_failure(&tensors, 2, 0, "");
    free_layer(&layer);
}
END_TEST

START_TEST(not_supported) {
    static const struct {
        size_t naming;
        const char *more;
    } cases[] = {
        {NAMING_MHA, "bias_k"},
        {NAMING_MHA, "bias_v"},
        {NAMING_MHA_SEPARATE, "bias_k"},
        {NAMING_LLAMA, "self_attn.q_norm.weight"},
        {NAMING_BERT, "attention.self.distance_embedding.weight"},
        /* Swin, Swin 2, BEiT; Swin and BEiT of timm */
        {NAMING_BERT, "attention.self.relative_position_bias_table"},
        {NAMING_BERT, "attention.self.logit_scale"},
        {NAMING_VIT, "attention.attention.relative_position_bias.relative_position_bias_table"},
        {NAMING_TIMM, "attn.relative_position_bias_table"}};
    const float zeros[6] = {0};
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        char name[96], message[160];
        begin_case("%s with %s", namings[cases[i].naming].label, cases[i].more);
        add_layer(&tensors, &layer, &namings[cases[i].naming], "x.", true, NULL);
        snprintf(name, sizeof name, "x.%s", cases[i].more);
        add_tensor(&tensors, name, "F32", "[1,1,6]", zeros, 6);
        snprintf(message, sizeof message, "the layer has '%s', which is not supported", name);
        expect_failure(&tensors, 2, 0, message);
    }
    free_layer(&layer);
}
END_TEST

/* Biases under a name that the layer's family does not use, or under two names at once. */
START_TEST(unused_biases) {
    static const struct {
        size_t naming;
        bool biases; /* those of the family */
        const char *more;
    } cases[] = {
        {NAMING_PLAIN, true, "b_q"},
        {NAMING_PLAIN, true, "W_Q.bias"},
        {NAMING_PLAIN, true, "W_o_bias"},
        {NAMING_PLAIN, false, "in_proj_bias"},
        {NAMING_BARE, true, "w_v.bias"},
        {NAMING_OPT, true, "self_attn.in_proj_bias"},
        {NAMING_OPT, false, "self_attn.o_proj.bias"},
        {NAMING_LLAMA, false, "self_attn.in_proj_bias"},
        {NAMING_LLAMA, true, "self_attn.wo.bias"},
        {NAMING_MHA, true, "q_proj.bias"},
        {NAMING_MHA_SEPARATE, false, "k_proj.bias"},
        {NAMING_BERT, true, "attention.q_lin.bias"},
        {NAMING_GPT2, false, "attn.proj.bias"},
        {NAMING_TIMM, false, "attn.q_bias"}, /* BEiT */
        {NAMING_TIMM, false, "attn.v_bias"},
    };
    const float zeros[6] = {0};
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensors tensors = {0};
        char name[64], message[128];
        begin_case("%s with %s", namings[cases[i].naming].label, cases[i].more);
        add_layer(&tensors, &layer, &namings[cases[i].naming], "x.", cases[i].biases, NULL);
        snprintf(name, sizeof name, "x.%s", cases[i].more);
        add_tensor(&tensors, name, "F32", "[6]", zeros, 6);
        snprintf(message, sizeof message, "tensor '%s' is named like a bias of the layer", name);
        expect_failure(&tensors, 2, 0, message);
    }
    free_layer(&layer);
}
END_TEST

START_TEST(wrong_types) {
    struct layer layer = PLAIN_LAYER;
    fill_layer(&layer);
    static const char *const names[] = {"W_v.weight", "W_o.bias"};
    for (size_t i = 0; i < 2; i++) {
        struct tensors tensors = {0};
        begin_case("%s of integers", names[i]);
        add_layer(&tensors, &layer, &namings[NAMING_PLAIN], "", true, names[i]);
        size_t begin = tensors.data.size, size = i == 0 ? 144 : 24;
        for (size_t b = 0; b < size; b++) {
            put_number(&tensors.data, 0, 1, false);
        }
        put_text(&tensors.json,
                 ",\"%s\":{\"dtype\":\"I32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", names[i],
                 i == 0 ? "[6,6]" : "[6]", begin, begin + size);
        expect_failure(&tensors, 2, 0, "is of type I32; F32, F16, BF16 and F64 can be used");
    }
    free_layer(&layer);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-weights");
    TCase *tcase = tcase_create("weights");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, missing_weights);
    tcase_add_test(tcase, nothing_there);
    tcase_add_test(tcase, heads_that_do_not_divide);
    tcase_add_test(tcase, misshapen);
    tcase_add_test(tcase, shapes_without_bytes);
    tcase_add_test(tcase, conv1d_only);
    tcase_add_test(tcase, not_supported);
    tcase_add_test(tcase, unused_biases);
    tcase_add_test(tcase, wrong_types);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
