/* SPDX-License-Identifier: MIT
 *
 * Every row of golden/cases.txt through libmha, against PyTorch in float64. Walks the
 * table; adding a case needs no change here.
 * Runs in the folder tests/.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_case.h"
#include "golden_support.h"
#include "mha.h"
#include "support.h"

static struct golden_case *cases;
static size_t case_count;

static mha_context *context;

static void setup(void) {
    ck_assert_msg(mha_context_create(NULL, &context) == MHA_OK, "%s", mha_error_message());
}

static void teardown(void) {
    mha_context_destroy(&context);
    golden_free();
}

static size_t or_else(size_t size, size_t other) {
    return size != 0 ? size : other;
}

/* ---- Masks ---------------------------------------------------------------- */

/* Which dimensions of a mask are there, and its strides. */
struct mask_layout {
    size_t rows;
    size_t batch_stride, head_stride, query_stride;
};

static struct mask_layout mask_layout(const struct golden_case *c, const char *dims) {
    bool has_batch = strchr(dims, 'b') != NULL;
    bool has_head = strchr(dims, 'h') != NULL;
    bool has_query = strchr(dims, 'q') != NULL;
    size_t queries = has_query ? c->q_len : 1;
    size_t heads = has_head ? c->n_heads : 1;
    return (struct mask_layout){
        .rows = (has_batch ? c->batch : 1) * heads * queries,
        .batch_stride = has_batch ? heads * queries * c->kv_len : 0,
        .head_stride = has_head ? queries * c->kv_len : 0,
        .query_stride = has_query ? c->kv_len : 0,
    };
}

static bool hidden(const struct golden_case *c, size_t row, size_t key) {
    return key < c->skip || (c->dead != 0 && row % c->dead == c->dead - 1);
}

static void add_keep(const struct golden_case *c, mha_mask *mask) {
    struct mask_layout layout = mask_layout(c, c->keep);
    uint8_t *keep = golden_keep(malloc(layout.rows * c->kv_len + 1));
    for (size_t i = 0; i < layout.rows * c->kv_len; i++) {
        uint64_t z = golden_integer(c->name, "keep", i);
        bool kept = z >> 62 != 0 && !hidden(c, i / c->kv_len, i % c->kv_len);
        keep[i] = kept ? (uint8_t)(z >> 56) : 0; /* any nonzero byte keeps */
    }
    mask->keep = keep;
    mask->keep_batch_stride = layout.batch_stride;
    mask->keep_head_stride = layout.head_stride;
    mask->keep_query_stride = layout.query_stride;
}

static void add_bias(const struct golden_case *c, mha_mask *mask) {
    struct mask_layout layout = mask_layout(c, c->bias);
    float *bias = golden_keep(malloc((layout.rows * c->kv_len + 1) * sizeof *bias));
    for (size_t i = 0; i < layout.rows * c->kv_len; i++) {
        bool hit =
            golden_integer(c->name, "bias", i) % 8 == 0 || hidden(c, i / c->kv_len, i % c->kv_len);
        if (c->fill) {
            bias[i] = hit ? -1e30f : 0.0f;
        } else {
            bias[i] = hit ? -INFINITY : golden_float(c->name, "bias", i, 1, 16);
        }
    }
    mask->bias = bias;
    mask->bias_batch_stride = layout.batch_stride;
    mask->bias_head_stride = layout.head_stride;
    mask->bias_query_stride = layout.query_stride;
}

static mha_mask make_mask(const struct golden_case *c) {
    mha_mask mask = {
        .window_left = c->window, .window_right = c->window, .query_offset = c->query_offset};
    if (c->keep[0] != '\0') {
        add_keep(c, &mask);
    }
    if (c->bias[0] != '\0') {
        add_bias(c, &mask);
    }
    if (c->kv_lengths[0] != '\0') {
        size_t *lengths = golden_keep(malloc(GOLDEN_MAX_BATCH * sizeof *lengths));
        ck_assert_uint_eq(golden_kv_lengths(c, lengths), c->batch);
        mask.kv_lengths = lengths;
    }
    if (c->alibi) {
        float *slopes = golden_keep(malloc(c->n_heads * sizeof *slopes));
        for (size_t h = 0; h < c->n_heads; h++) {
            slopes[h] = ldexpf(1.0f, -(int)h - 1);
        }
        mask.alibi_slopes = slopes;
    }
    if (c->causal[0] != '\0') {
        bool top_left = strcmp(c->causal, "top-left") == 0;
        ck_assert(top_left || strcmp(c->causal, "bottom-right") == 0);
        mask.causal = top_left ? MHA_CAUSAL_TOP_LEFT : MHA_CAUSAL_BOTTOM_RIGHT;
    }
    return mask;
}

static mha_masked_rows masked_rows(const struct golden_case *c) {
    bool uniform = strcmp(c->masked_rows, "uniform") == 0;
    ck_assert(uniform || c->masked_rows[0] == '\0' || strcmp(c->masked_rows, "zero") == 0);
    return uniform ? MHA_MASKED_ROWS_UNIFORM : MHA_MASKED_ROWS_ZERO;
}

static void compare(const struct golden_case *c, const char *suffix, const float *actual,
                    size_t groups, size_t width) {
    char file[sizeof c->name + 16];
    snprintf(file, sizeof file, "%s%s", c->name, suffix);
    golden_compare(file, actual, groups, c->q_len, width, c->rows, c->tolerance);
}

/* ---- mha_forward ---------------------------------------------------------- */

static float *inputs(const struct golden_case *c, const char *tensor, size_t count) {
    return golden_floats(c->name, tensor, count, c->input_exp, 16);
}

static float *weights(const struct golden_case *c, const char *tensor, size_t count) {
    return golden_floats(c->name, tensor, count, c->weight_exp, 16);
}

static mha_layer *make_layer(const struct golden_case *c) {
    mha_config config = {
        .d_model = c->d_model,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .v_head_dim = c->v_head_dim,
        .k_dim = c->k_dim,
        .v_dim = c->v_dim,
        .scale = (float)c->scale,
        .masked_rows = masked_rows(c),
    };
    size_t kv_heads = or_else(c->n_kv_heads, c->n_heads);
    size_t head_dim = or_else(c->head_dim, c->d_model / c->n_heads);
    size_t v_head_dim = or_else(c->v_head_dim, head_dim);
    size_t q_width = c->n_heads * head_dim;
    size_t k_width = kv_heads * head_dim;
    size_t v_width = kv_heads * v_head_dim;
    mha_weights w = {
        .q = weights(c, "q", q_width * c->d_model),
        .k = weights(c, "k", k_width * or_else(c->k_dim, c->d_model)),
        .v = weights(c, "v", v_width * or_else(c->v_dim, c->d_model)),
        .o = weights(c, "o", c->d_model * c->n_heads * v_head_dim),
        .q_bias = strchr(c->biases, 'q') ? inputs(c, "q_bias", q_width) : NULL,
        .k_bias = strchr(c->biases, 'k') ? inputs(c, "k_bias", k_width) : NULL,
        .v_bias = strchr(c->biases, 'v') ? inputs(c, "v_bias", v_width) : NULL,
        .o_bias = strchr(c->biases, 'o') ? inputs(c, "o_bias", c->d_model) : NULL,
    };
    mha_layer *layer = NULL;
    ck_assert_msg(mha_layer_create(&config, &w, &layer) == MHA_OK, "%s: %s", c->name,
                  mha_error_message());
    return layer;
}

static void run_forward(const struct golden_case *c) {
    mha_layer *layer = make_layer(c);
    mha_mask mask = make_mask(c);
    bool has_key = strchr(c->inputs, 'k') != NULL;
    bool has_value = strchr(c->inputs, 'v') != NULL;
    size_t k_dim = or_else(c->k_dim, c->d_model), v_dim = or_else(c->v_dim, c->d_model);
    mha_forward_args args = {
        .batch = c->batch,
        .q_len = c->q_len,
        .kv_len = c->kv_len,
        .query = inputs(c, "query", c->batch * c->q_len * c->d_model),
        .key = has_key ? inputs(c, "key", c->batch * c->kv_len * k_dim) : NULL,
        .value = has_value ? inputs(c, "value", c->batch * c->kv_len * v_dim) : NULL,
        .mask = &mask,
        .output = golden_output(c->batch * c->q_len * c->d_model),
        .attention =
            c->weights ? golden_output(c->batch * c->n_heads * c->q_len * c->kv_len) : NULL,
    };
    ck_assert_msg(mha_forward(context, layer, &args) == MHA_OK, "%s: %s", c->name,
                  mha_error_message());
    compare(c, ".npy", args.output, c->batch, c->d_model);
    if (c->weights) {
        compare(c, ".weights.npy", args.attention, c->batch * c->n_heads, c->kv_len);
    }
    mha_layer_destroy(&layer);
}

/* ---- mha_attention -------------------------------------------------------- */

static bool by_rows(const struct golden_case *c) {
    ck_assert(c->layout[0] == '\0' || strcmp(c->layout, "dense") == 0 ||
              strcmp(c->layout, "rows") == 0);
    return strcmp(c->layout, "rows") == 0;
}

/* Strides of [batch][row][head][dim]: the heads are side by side, as a projection writes them. */
static mha_strides strides(const struct golden_case *c, size_t heads, size_t rows, size_t dim) {
    return by_rows(c) ? (mha_strides){rows * heads * dim, dim, heads * dim} : (mha_strides){0};
}

static float *heads_input(const struct golden_case *c, const char *tensor, size_t count,
                          int common) {
    float *values = golden_floats(c->name, tensor, count, c->input_exp, c->bits);
    for (size_t i = 0; i < count; i++) {
        values[i] += (float)common;
    }
    return values;
}

/* The output as [batch][head][row][dim], from any layout. */
static const float *dense_output(const struct golden_case *c, const float *output, size_t dim) {
    if (!by_rows(c)) {
        return output;
    }
    float *dense = golden_output(c->batch * c->n_heads * c->q_len * dim);
    for (size_t i = 0; i < c->batch * c->n_heads * c->q_len; i++) {
        size_t b = i / c->q_len / c->n_heads, h = i / c->q_len % c->n_heads, row = i % c->q_len;
        memcpy(dense + i * dim, output + ((b * c->q_len + row) * c->n_heads + h) * dim,
               dim * sizeof *dense);
    }
    return dense;
}

static void run_attention(const struct golden_case *c) {
    size_t kv_heads = or_else(c->n_kv_heads, c->n_heads);
    size_t v_head_dim = or_else(c->v_head_dim, c->head_dim);
    size_t kv_rows = c->batch * kv_heads * c->kv_len;
    mha_mask mask = make_mask(c);
    mha_attention_args args = {
        .batch = c->batch,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .q_len = c->q_len,
        .kv_len = c->kv_len,
        .head_dim = c->head_dim,
        .v_head_dim = c->v_head_dim,
        .scale = (float)c->scale,
        .masked_rows = masked_rows(c),
        .query = heads_input(c, "query", c->batch * c->n_heads * c->q_len * c->head_dim, c->common),
        .query_strides = strides(c, c->n_heads, c->q_len, c->head_dim),
        .key = heads_input(c, "key", kv_rows * c->head_dim, c->common),
        .key_strides = strides(c, kv_heads, c->kv_len, c->head_dim),
        .value = heads_input(c, "value", kv_rows * v_head_dim, 0),
        .value_strides = strides(c, kv_heads, c->kv_len, v_head_dim),
        .mask = &mask,
        .output = golden_output(c->batch * c->n_heads * c->q_len * v_head_dim),
        .output_strides = strides(c, c->n_heads, c->q_len, v_head_dim),
        .attention =
            c->weights ? golden_output(c->batch * c->n_heads * c->q_len * c->kv_len) : NULL,
    };
    ck_assert_msg(mha_attention(context, &args) == MHA_OK, "%s: %s", c->name, mha_error_message());
    golden_check_output(c->name, args.output, c->batch * c->n_heads * c->q_len * v_head_dim);
    compare(c, ".npy", dense_output(c, args.output, v_head_dim), c->batch * c->n_heads, v_head_dim);
    if (c->weights) {
        compare(c, ".weights.npy", args.attention, c->batch * c->n_heads, c->kv_len);
    }
}

/* ---- The walk ------------------------------------------------------------- */

START_TEST(golden) {
    const struct golden_case *c = &cases[_i];
    begin_case("%s", c->name);
    if (strcmp(c->op, "forward") == 0) {
        run_forward(c);
    } else {
        ck_assert_str_eq(c->op, "attention");
        run_attention(c);
    }
}
END_TEST

int main(void) {
    golden_set_folder("golden");
    cases = golden_read_cases("golden/cases.txt", &case_count);
    if (cases == NULL) {
        return 1;
    }
    TCase *tcase = tcase_create("cases");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 0); /* emulators and valgrind are slow */
    tcase_add_loop_test(tcase, golden, 0, (int)case_count);
    Suite *suite = suite_create("golden");
    suite_add_tcase(suite, tcase);
    int status = run_suite(suite);
    free(cases);
    return status;
}
