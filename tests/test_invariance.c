/* SPDX-License-Identifier: MIT
 *
 * What must not change a bit of the result: the rest of the batch, how queries are cut into
 * calls, weights returned or not, where arrays lie, what the workspace held before, and
 * whether the heads come from a layer. test_spelling.c has how a mask is spelled.
 */
#include "cases.h"
#include "context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct place at_start = {AT_START, 0};
static const struct place at_end = {AT_END, 0};

static float *allocate(size_t count) {
    float *data = malloc((count + 1) * sizeof *data);
    ck_assert_ptr_nonnull(data);
    memset(data, 0xff, count * sizeof *data);
    return data;
}

static size_t kv_len_of(const struct shape_case *shape) {
    return shape->kv_len ? shape->kv_len : shape->q_len;
}

/* ---- A part of the batch, a part of the queries ---------------------------- */

/* A length of a part that begins at `first`. */
static size_t rest(size_t length, size_t first, size_t count) {
    size_t left = length > first ? length - first : 0;
    return left < count ? left : count;
}

/* The mask as sequence b and its queries from `first` on, `count` of q_len, see it. *q_length:
 * memory for the part's length. */
static mha_mask slice_mask(const mha_mask *mask, size_t b, size_t first, size_t count, size_t q_len,
                           size_t *q_length) {
    mha_mask slice = *mask;
    size_t length = mask->q_lengths ? mask->q_lengths[b] : q_len;
    *q_length = rest(length, first, count);
    if (mask->keep) {
        slice.keep += b * mask->keep_batch_stride + first * mask->keep_query_stride;
    }
    if (mask->key_keep) {
        slice.key_keep += b * mask->key_keep_batch_stride;
    }
    if (mask->bias) {
        slice.bias += b * mask->bias_batch_stride + first * mask->bias_query_stride;
    }
    if (mask->kv_lengths) {
        slice.kv_lengths += b;
    }
    if (mask->q_lengths) {
        slice.q_lengths = q_length;
    }
    if (mask->query_offsets) {
        slice.query_offsets += b;
    }
    slice.query_offset += (int64_t)first;
    if (mask->causal == MHA_CAUSAL_BOTTOM_RIGHT) {
        slice.query_offset += (int64_t)(mask->q_lengths ? *q_length : count) - (int64_t)length;
    }
    return slice;
}

static mha_row_strides complete(mha_row_strides strides, size_t rows, size_t dim) {
    return strides.batch || strides.row ? strides : (mha_row_strides){rows * dim, dim};
}

/* Computes these queries alone and compares them with their part of the whole result; output: the
 * whole's, dense. */
static void check_slice(mha_context *context, const mha_layer *layer,
                        const struct forward_problem *p, const float *whole, size_t b, size_t first,
                        size_t count) {
    const mha_forward_args *all = &p->args;
    const mha_config *c = mha_layer_config(layer);
    size_t kv_len = all->key ? all->kv_len : all->q_len, width = p->width, q_length;
    mha_mask mask = slice_mask(all->mask, b, first, count, all->q_len, &q_length);
    mha_row_strides q = complete(all->query_strides, all->q_len, c->d_model);
    mha_row_strides k = all->key ? complete(all->key_strides, kv_len, c->k_dim) : q;
    mha_row_strides v = all->value ? complete(all->value_strides, kv_len, c->v_dim) : k;
    const float *key = all->key ? all->key : all->query;
    size_t heads = all->result == MHA_RESULT_MEAN_WEIGHTS ? 1 : c->n_heads;
    float *output = allocate(count * width);
    float *attention = allocate(heads * count * kv_len);
    mha_forward_args args = {
        .batch = 1,
        .q_len = count,
        .kv_len = kv_len,
        .query = all->query + b * q.batch + first * q.row,
        .query_strides = q,
        .key = key + b * k.batch,
        .key_strides = k,
        .value = (all->value ? all->value : key) + b * v.batch,
        .value_strides = v,
        .mask = &mask,
        .output = output,
        .attention = attention,
        .result = all->result,
    };
    ck_assert_succeeds(mha_forward(context, layer, &args));
    ck_assert_same("output of a part", whole + (b * all->q_len + first) * width, width, output,
                   width, count, width);
    for (size_t h = 0; h < heads; h++) {
        const float *expected = all->attention + ((b * heads + h) * all->q_len + first) * kv_len;
        ck_assert_same("attention of a part", expected, kv_len, attention + h * count * kv_len,
                       kv_len, count, kv_len);
    }
    free(output);
    free(attention);
}

START_TEST(sequences_and_queries_alone) {
    const struct shape_case *shape = &layer_cases[_i];
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        struct generator g =
            begin_case("layer \"%s\", mask \"%s\"", shape->name, mask_cases[m].name);
        struct forward_problem p;
        make_forward(&g, shape, &mask_cases[m], at_end, &p);
        mha_layer *layer = new_layer(&p);
        ck_assert_succeeds(mha_forward(context, layer, &p.args));
        float *whole = gather_forward(&p);
        for (size_t b = 0; b < shape->batch; b += 1 + b / 2) {
            check_slice(context, layer, &p, whole, b, 0, shape->q_len);
            for (size_t i = 0; i < shape->q_len; i += 1 + i / 3) {
                check_slice(context, layer, &p, whole, b, i, 1);
                size_t left = shape->q_len - i;
                check_slice(context, layer, &p, whole, b, i, left < 7 ? left : 7);
            }
        }
        free(whole);
        mha_layer_destroy(&layer);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* ---- Places, workspaces, weights ------------------------------------------- */

/* The same problem again: from other addresses, by a context with any past, without weights. */
static void check_again(const struct shape_case *shape, const struct mask_case *mask,
                        const float *output, const float *attention, struct place place,
                        mha_context *context, bool with_weights) {
    struct generator g = begin_case("layer \"%s\", mask \"%s\"", shape->name, mask->name);
    struct forward_problem p;
    make_forward(&g, shape, mask, place, &p);
    size_t kv_len = kv_len_of(shape);
    mha_layer *layer = new_layer(&p);
    float *unused = p.args.attention;
    p.args.attention = with_weights ? unused : NULL;
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    ck_assert_same("output", output, 1, p.args.output, 1, p.outputs, 1);
    if (with_weights) {
        ck_assert_same("attention", attention, kv_len, p.args.attention, kv_len,
                       p.attentions / kv_len, kv_len);
    } else {
        ck_assert(untouched(unused, p.attentions * sizeof *unused));
    }
    mha_layer_destroy(&layer);
    guarded_free_all();
}

static void soil(mha_context *context, int byte) {
    if (context->size > 0) {
        memset(context->memory, byte, context->size);
    }
}

START_TEST(places_and_workspaces) {
    const struct shape_case *shape = &layer_cases[_i];
    mha_context *worn = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        const struct mask_case *mask = &mask_cases[m];
        struct generator g = begin_case("layer \"%s\", mask \"%s\"", shape->name, mask->name);
        struct forward_problem p;
        make_forward(&g, shape, mask, at_start, &p);
        mha_layer *layer = new_layer(&p);
        mha_context *fresh = new_context();
        ck_assert_succeeds(mha_forward(fresh, layer, &p.args));
        float *output = copy_floats(p.args.output, p.outputs);
        float *attention = copy_floats(p.args.attention, p.attentions);
        mha_layer_destroy(&layer);
        guarded_free_all();

        check_again(shape, mask, output, attention, at_start, fresh, false);
        soil(worn, 0xff); /* NaN */
        check_again(shape, mask, output, attention, at_end, worn, true);
        soil(worn, 0x7e); /* 8.5e37 */
        check_again(shape, mask, output, attention, (struct place){AT_START, 4 + m % 15 * 4}, worn,
                    m % 2);
        mha_context_destroy(&fresh);
        free(output);
        free(attention);
    }
    mha_context_destroy(&worn);
}
END_TEST

/* As the previous test, but the NaN are left by a larger problem of the same context. */
START_TEST(after_a_larger_problem_of_nan) {
    const struct shape_case large = {"large", 4, 100, 1100, 16, 4, .biases = "qkvo"};
    mha_context *context = new_context();
    for (size_t s = 0; s < n_layer_cases; s += 3) {
        struct generator g = begin_case("a large problem of NaN");
        struct forward_problem p, nan;
        make_forward(&g, &large, &mask_cases[0], at_end, &nan);
        mha_layer *layer = new_layer(&nan);
        memset((float *)nan.args.query, 0xff, 4 * 100 * 16 * sizeof(float));
        memset((float *)nan.args.key, 0xff, 4 * 1100 * 16 * sizeof(float));
        memset((float *)nan.args.value, 0xff, 4 * 1100 * 16 * sizeof(float));
        ck_assert_succeeds(mha_forward(context, layer, &nan.args));
        mha_layer_destroy(&layer);
        guarded_free_all();

        const struct shape_case *shape = &layer_cases[s];
        g = begin_case("layer \"%s\" after NaN", shape->name);
        make_forward(&g, shape, MASK_OF_ALL_PARTS, at_end, &p);
        layer = new_layer(&p);
        ck_assert_succeeds(mha_forward(context, layer, &p.args));
        float *output = copy_floats(p.args.output, p.outputs);
        mha_context *fresh = new_context();
        ck_assert_succeeds(mha_forward(fresh, layer, &p.args));
        ck_assert_same("output", p.args.output, 1, output, 1, p.outputs, 1);
        mha_context_destroy(&fresh);
        mha_layer_destroy(&layer);
        free(output);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* ---- Layers taken apart ---------------------------------------------------- */

/* y[rows][outputs], each output one chain from its bias, by the C library's fma. */
static float *project(const float *x, const float *w, const float *bias, size_t rows, size_t inputs,
                      size_t outputs) {
    float *y = allocate(rows * outputs);
    for (size_t i = 0; i < rows; i++) {
        for (size_t n = 0; n < outputs; n++) {
            float sum = bias ? bias[n] : 0.0f;
            for (size_t k = 0; k < inputs; k++) {
                sum = fmaf(x[i * inputs + k], w[n * inputs + k], sum);
            }
            y[i * outputs + n] = sum;
        }
    }
    return y;
}

START_TEST(layers_by_hand) {
    const struct shape_case *shape = &layer_cases[_i];
    if (shape->layouts) {
        return; /* project() takes dense rows */
    }
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        struct generator g =
            begin_case("layer \"%s\", mask \"%s\"", shape->name, mask_cases[m].name);
        struct forward_problem p;
        make_forward(&g, shape, &mask_cases[m], at_end, &p);
        mha_layer *layer = new_layer(&p);
        ck_assert_succeeds(mha_forward(context, layer, &p.args));

        const mha_config *c = mha_layer_config(layer);
        const mha_weights *w = &p.weights;
        size_t kv_len = kv_len_of(shape), q_rows = shape->batch * shape->q_len;
        size_t q_width = c->n_heads * c->head_dim, k_width = c->n_kv_heads * c->head_dim;
        size_t v_width = c->n_kv_heads * c->v_head_dim, o_width = c->n_heads * c->v_head_dim;
        const float *key_in = shape->kv_len ? p.args.key : p.args.query;
        const float *value_in = shape->kv_len ? p.args.value : p.args.query;
        float *q = project(p.args.query, w->q, w->q_bias, q_rows, c->d_model, q_width);
        float *k = project(key_in, w->k, w->k_bias, shape->batch * kv_len, c->k_dim, k_width);
        float *v = project(value_in, w->v, w->v_bias, shape->batch * kv_len, c->v_dim, v_width);
        float *concat = allocate(q_rows * o_width), *attention = allocate(p.attentions);
        mha_attention_args args = {
            .batch = shape->batch,
            .n_heads = c->n_heads,
            .n_kv_heads = c->n_kv_heads,
            .q_len = shape->q_len,
            .kv_len = kv_len,
            .head_dim = c->head_dim,
            .v_head_dim = c->v_head_dim,
            .scale = c->scale,
            .softcap = c->softcap,
            .sinks = w->sinks,
            .masked_rows = c->masked_rows,
            .query = q,
            .query_strides = {shape->q_len * q_width, c->head_dim, q_width},
            .key = k,
            .key_strides = {kv_len * k_width, c->head_dim, k_width},
            .value = v,
            .value_strides = {kv_len * v_width, c->v_head_dim, v_width},
            .mask = p.args.mask,
            .output = concat,
            .output_strides = {shape->q_len * o_width, c->v_head_dim, o_width},
            .attention = attention,
            .result = shape->result,
        };
        ck_assert_succeeds(mha_attention(context, &args));
        float *output = w->o ? project(concat, w->o, w->o_bias, q_rows, o_width, p.width)
                             : copy_floats(concat, q_rows * o_width);
        for (size_t i = 0; i < q_rows; i++) {
            const size_t *lengths = p.mask.q_lengths;
            if (lengths && i % shape->q_len >= lengths[i / shape->q_len]) {
                memset(output + i * p.width, 0, p.width * sizeof *output);
            }
        }
        ck_assert_same("output", output, p.width, p.args.output, p.width, q_rows, p.width);
        ck_assert_same("attention", attention, kv_len, p.args.attention, kv_len,
                       p.attentions / kv_len, kv_len);
        float *all[] = {q, k, v, concat, attention, output};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            free(all[i]);
        }
        mha_layer_destroy(&layer);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("invariance");
    TCase *tests = tcase_create("invariance");
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, sequences_and_queries_alone, 0, (int)n_layer_cases);
    tcase_add_loop_test(tests, places_and_workspaces, 0, (int)n_layer_cases);
    tcase_add_test(tests, after_a_larger_problem_of_nan);
    tcase_add_loop_test(tests, layers_by_hand, 0, (int)n_layer_cases);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
