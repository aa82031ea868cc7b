/* SPDX-License-Identifier: MIT
 *
 * Rows of a group against heads one by one: grouped heads give the bits of keys and values that are
 * repeated for each head, and of each head in a call of its own.
 */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static const struct place at_end = {AT_END, 0};

static mha_strides complete(mha_strides s, size_t heads, size_t rows, size_t dim) {
    return s.batch || s.head || s.row ? s : (mha_strides){heads * rows * dim, rows * dim, dim};
}

/* The mask as one head sees it. */
static mha_mask of_head(const mha_mask *mask, size_t head) {
    mha_mask m = *mask;
    m.keep = m.keep ? m.keep + head * m.keep_head_stride : NULL;
    m.bias = m.bias ? m.bias + head * m.bias_head_stride : NULL;
    m.alibi_slopes = m.alibi_slopes ? m.alibi_slopes + head : NULL;
    return m;
}

static void check_head(mha_context *context, const struct attention_problem *p, const float *whole,
                       size_t head) {
    const mha_attention_args *a = &p->args;
    size_t group = a->n_heads / (a->n_kv_heads ? a->n_kv_heads : a->n_heads);
    size_t kv_heads = a->n_heads / group, dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    mha_attention_args one = *a;
    mha_mask mask = of_head(a->mask, head);
    float *output = malloc(a->batch * a->q_len * dim * sizeof *output);
    float *attention = malloc(a->batch * a->q_len * a->kv_len * sizeof *attention);
    ck_assert(output && attention);
    one.n_heads = one.n_kv_heads = 1;
    one.query_strides = complete(a->query_strides, a->n_heads, a->q_len, a->head_dim);
    one.key_strides = complete(a->key_strides, kv_heads, a->kv_len, a->head_dim);
    one.value_strides = complete(a->value_strides, kv_heads, a->kv_len, dim);
    one.output_strides = (mha_strides){0};
    one.query += head * one.query_strides.head;
    one.key += head / group * one.key_strides.head;
    one.value += head / group * one.value_strides.head;
    one.sinks = a->sinks ? a->sinks + head : NULL;
    one.mask = &mask;
    one.output = output;
    one.attention = attention;
    ck_assert_succeeds(mha_attention(context, &one));
    for (size_t b = 0; b < a->batch; b++) {
        size_t from = (b * a->n_heads + head) * a->q_len;
        ck_assert_same("output of a head", whole + from * dim, dim, output + b * a->q_len * dim,
                       dim, a->q_len, dim);
        ck_assert_same("attention of a head", a->attention + from * a->kv_len, a->kv_len,
                       attention + b * a->q_len * a->kv_len, a->kv_len, a->q_len, a->kv_len);
    }
    free(output);
    free(attention);
}

START_TEST(heads_alone) {
    const struct shape_case *shape = &view_cases[_i];
    if (shape->result == MHA_RESULT_MEAN_WEIGHTS) {
        return; /* of all heads */
    }
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        const struct mask_case *mask = &mask_cases[m];
        struct generator g = begin_case("view \"%s\", mask \"%s\"", shape->name, mask->name);
        struct attention_problem p;
        make_attention(&g, shape, mask, at_end, &p);
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *whole = gather_output(&p);
        for (size_t h = 0; h < shape->n_heads; h++) {
            check_head(context, &p, whole, h);
        }
        free(whole);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* A layer of grouped heads against one whose key and value heads are repeated. */
static float *repeat(const float *from, size_t kv_heads, size_t group, size_t size) {
    float *to = malloc(kv_heads * group * size * sizeof *to);
    ck_assert_ptr_nonnull(to);
    for (size_t h = 0; h < kv_heads * group; h++) {
        memcpy(to + h * size, from + h / group * size, size * sizeof *to);
    }
    return to;
}

START_TEST(layers_of_repeated_heads) {
    const struct shape_case shape = {"", 3, 21, 530, 24, 6, 2, 5, 3, .softcap = 4.0f};
    const struct mask_case *mask = &mask_cases[_i];
    struct generator g = begin_case("repeated heads, mask \"%s\"", mask->name);
    mha_context *context = new_context();
    struct forward_problem p;
    make_forward(&g, &shape, mask, at_end, &p);
    mha_layer *layer = new_layer(&p);
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    float *output = copy_floats(p.args.output, p.outputs);
    float *attention = copy_floats(p.args.attention, p.attentions);
    mha_layer_destroy(&layer);
    float *k = repeat(p.weights.k, 2, 3, 5 * 24), *v = repeat(p.weights.v, 2, 3, 3 * 24);
    p.weights.k = k;
    p.weights.v = v;
    p.config.n_kv_heads = 6;
    layer = new_layer(&p);
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    ck_assert_same("output", output, 1, p.args.output, 1, p.outputs, 1);
    ck_assert_same("attention", attention, 1, p.args.attention, 1, p.attentions, 1);
    free(output);
    free(attention);
    free(k);
    free(v);
    mha_layer_destroy(&layer);
    mha_context_destroy(&context);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("groups");
    TCase *tests = tcase_create("groups");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, heads_alone, 0, (int)n_view_cases);
    tcase_add_loop_test(tests, layers_of_repeated_heads, 0, (int)n_mask_cases);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
