/* SPDX-License-Identifier: MIT
 *
 * Building the problems of the tables, but for their masks, which problem_mask.c builds.
 */
#include "problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(size_t count, struct place place) {
    return guarded_floats(count, place.shift, place.side);
}

static float *random_floats(struct generator *g, size_t count, float range, struct place place) {
    float *data = floats(count, place);
    fill_floats(g, data, count);
    for (size_t i = 0; i < count; i++) {
        data[i] *= range;
    }
    return data;
}

float sink_of_letter(struct generator *g, char letter) {
    switch (letter) {
    case 'r':
        return 2.0f * next_float(g);
    case 'l':
        return 6.0f + next_float(g);
    default:
        ck_assert_int_eq(letter, '-');
        return -INFINITY;
    }
}

static const float *make_sinks(struct generator *g, const struct shape_case *s,
                               struct place place) {
    if (!s->sinks) {
        return NULL;
    }
    float *sinks = floats(s->n_heads, place);
    for (size_t h = 0; h < s->n_heads; h++) {
        sinks[h] = sink_of_letter(g, s->sinks[h % strlen(s->sinks)]);
    }
    return sinks;
}

/* ---- Views ----------------------------------------------------------------- */

mha_strides strides_of_layout(char layout, size_t batch, size_t heads, size_t rows, size_t dim) {
    enum { GAP = 3 };
    switch (layout) {
    case 'i':
        return (mha_strides){rows * heads * dim, dim, heads * dim};
    case 's':
        return (mha_strides){heads * dim, dim, batch * heads * dim};
    case 'g': {
        size_t row = dim + GAP, head = rows * row + GAP;
        return (mha_strides){heads * head + GAP, head, row};
    }
    case 'r':
        return (mha_strides){dim + GAP, rows * batch * (dim + GAP), batch * (dim + GAP)};
    case 'b':
        return (mha_strides){0, rows * dim, dim};
    case 'h':
        return (mha_strides){rows * dim, 0, dim};
    case 'k':
        return (mha_strides){heads * dim, dim, 0};
    case 'o':
        return (mha_strides){heads * (rows + dim), rows + dim, 1};
    default:
        ck_assert_int_eq(layout, '.');
        return (mha_strides){heads * rows * dim, rows * dim, dim};
    }
}

/* Floats from the first to the last of a view. */
static size_t view_size(const mha_strides *s, size_t batch, size_t heads, size_t rows, size_t dim) {
    if (batch == 0 || heads == 0 || rows == 0) {
        return 0;
    }
    return (batch - 1) * s->batch + (heads - 1) * s->head + (rows - 1) * s->row + dim;
}

/* A view, its elements random but for rows beyond a length, its gaps NaN. */
static const float *make_view(struct generator *g, const mha_strides *s, size_t batch, size_t heads,
                              size_t rows, size_t dim, const size_t *lengths, struct place place) {
    float *data = floats(view_size(s, batch, heads, rows, dim), place);
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < (lengths ? lengths[b] : rows); i++) {
                fill_floats(g, data + b * s->batch + h * s->head + i * s->row, dim);
            }
        }
    }
    return data;
}

/* What the caller passes: nothing for the dense layout. */
static mha_strides given_strides(char layout, mha_strides strides) {
    return layout == '.' ? (mha_strides){0} : strides;
}

static const char *layouts_of(const struct shape_case *s) {
    return s->layouts ? s->layouts : "....";
}

/* ---- Layers ---------------------------------------------------------------- */

static bool has(const char *letters, char letter) {
    return letters && strchr(letters, letter);
}

/* spread: of the outputs, for inputs in -1 .. 1. */
static void make_linear(struct generator *g, size_t outputs, size_t inputs, float spread,
                        bool biased, struct place place, const float **w, const float **bias) {
    *w = random_floats(g, outputs * inputs, spread * sqrtf(3.0f / (float)inputs), place);
    if (biased) {
        *bias = random_floats(g, outputs, 0.5f, place);
    }
}

/* Input rows [batch][rows][width]; those beyond a length stay NaN. */
static const float *make_input(struct generator *g, char layout, const mha_forward_args *a,
                               size_t rows, size_t width, const size_t *lengths, struct place place,
                               mha_row_strides *given) {
    mha_strides s = strides_of_layout(layout, a->batch, 1, rows, width);
    mha_strides strides = given_strides(layout, s);
    *given = (mha_row_strides){strides.batch, strides.row};
    return make_view(g, &s, a->batch, 1, rows, width, lengths, place);
}

/* Self-attention reads a query that counts, or that is a key that counts. */
static void make_inputs(struct generator *g, const struct shape_case *s, const mha_config *c,
                        const mha_mask *mask, struct place place, mha_forward_args *a) {
    const char *layouts = layouts_of(s);
    const size_t *q_lengths = mask->q_lengths, *kv_lengths = mask->kv_lengths;
    size_t *longer = NULL;
    if (!s->kv_len && q_lengths) {
        longer = calloc(s->batch + 1, sizeof *longer);
        ck_assert_ptr_nonnull(longer);
        for (size_t b = 0; b < s->batch; b++) {
            size_t keys = kv_lengths ? kv_lengths[b] : s->q_len;
            longer[b] = keys > q_lengths[b] ? keys : q_lengths[b];
        }
        q_lengths = longer;
    }
    a->query =
        make_input(g, layouts[0], a, s->q_len, c->d_model, q_lengths, place, &a->query_strides);
    if (s->kv_len) {
        size_t k_dim = c->k_dim ? c->k_dim : c->d_model, v_dim = c->v_dim ? c->v_dim : c->d_model;
        a->key = make_input(g, layouts[1], a, s->kv_len, k_dim, kv_lengths, place, &a->key_strides);
        a->value =
            make_input(g, layouts[2], a, s->kv_len, v_dim, kv_lengths, place, &a->value_strides);
    }
    free(longer);
}

static void make_layer(struct generator *g, const struct shape_case *s, struct place place,
                       struct forward_problem *p) {
    p->config = (mha_config){
        .d_model = s->d_model,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .v_head_dim = s->v_head_dim,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .scale = s->scale,
        .softcap = s->softcap,
        .masked_rows = s->masked_rows,
    };
    size_t kv_heads = s->n_kv_heads ? s->n_kv_heads : s->n_heads;
    size_t head_dim = s->head_dim ? s->head_dim : s->d_model / s->n_heads;
    size_t v_head_dim = s->v_head_dim ? s->v_head_dim : head_dim;
    size_t k_dim = s->k_dim ? s->k_dim : s->d_model, v_dim = s->v_dim ? s->v_dim : s->d_model;
    mha_weights *w = &p->weights;
    make_linear(g, s->n_heads * head_dim, s->d_model, 4.0f, has(s->biases, 'q'), place, &w->q,
                &w->q_bias);
    make_linear(g, kv_heads * head_dim, k_dim, 1.0f, has(s->biases, 'k'), place, &w->k, &w->k_bias);
    make_linear(g, kv_heads * v_head_dim, v_dim, 1.0f, has(s->biases, 'v'), place, &w->v,
                &w->v_bias);
    p->width = s->n_heads * v_head_dim;
    if (!s->no_projection) {
        make_linear(g, s->d_model, p->width, 1.0f, has(s->biases, 'o'), place, &w->o, &w->o_bias);
        p->width = s->d_model;
    }
    w->sinks = make_sinks(g, s, place);
}

void make_forward(struct generator *g, const struct shape_case *s, const struct mask_case *m,
                  struct place place, struct forward_problem *p) {
    memset(p, 0, sizeof *p);
    make_layer(g, s, place, p);
    mha_forward_args *a = &p->args;
    a->batch = s->batch;
    a->q_len = s->q_len;
    a->kv_len = s->kv_len;
    mha_attention_args sizes = {.batch = s->batch,
                                .n_heads = s->n_heads,
                                .q_len = s->q_len,
                                .kv_len = s->kv_len ? s->kv_len : s->q_len};
    make_mask(g, m, &sizes, place, &p->mask);
    a->mask = &p->mask;
    make_inputs(g, s, &p->config, &p->mask, place, a);

    char layout = layouts_of(s)[3];
    mha_strides o = strides_of_layout(layout, s->batch, 1, s->q_len, p->width);
    mha_strides given = given_strides(layout, o);
    a->output_strides = (mha_row_strides){given.batch, given.row};
    p->output_strides = (mha_row_strides){o.batch, o.row};
    p->rows = s->batch * s->q_len;
    p->outputs = view_size(&o, s->batch, 1, s->q_len, p->width);
    size_t heads = s->result == MHA_RESULT_MEAN_WEIGHTS ? 1 : s->n_heads;
    p->attentions = s->batch * heads * s->q_len * sizes.kv_len;
    a->output = floats(p->outputs, place);
    a->attention = floats(p->attentions, place);
    a->result = s->result;
}

/* ---- Bare attention -------------------------------------------------------- */

void make_attention(struct generator *g, const struct shape_case *s, const struct mask_case *m,
                    struct place place, struct attention_problem *p) {
    const char *layouts = layouts_of(s);
    size_t kv_heads = s->n_kv_heads ? s->n_kv_heads : s->n_heads;
    size_t v_head_dim = s->v_head_dim ? s->v_head_dim : s->head_dim;
    mha_strides q = strides_of_layout(layouts[0], s->batch, s->n_heads, s->q_len, s->head_dim);
    mha_strides k = strides_of_layout(layouts[1], s->batch, kv_heads, s->kv_len, s->head_dim);
    mha_strides v = strides_of_layout(layouts[2], s->batch, kv_heads, s->kv_len, v_head_dim);
    mha_strides o = strides_of_layout(layouts[3], s->batch, s->n_heads, s->q_len, v_head_dim);
    *p = (struct attention_problem){.output_strides = o};
    mha_attention_args *a = &p->args;
    *a = (mha_attention_args){
        .batch = s->batch,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .head_dim = s->head_dim,
        .v_head_dim = s->v_head_dim,
        .scale = s->scale,
        .softcap = s->softcap,
        .masked_rows = s->masked_rows,
    };
    make_mask(g, m, a, place, &p->mask);
    a->mask = &p->mask;
    a->sinks = make_sinks(g, s, place);
    const size_t *q_lengths = p->mask.q_lengths, *lengths = p->mask.kv_lengths;
    a->query = make_view(g, &q, s->batch, s->n_heads, s->q_len, s->head_dim, q_lengths, place);
    a->key = make_view(g, &k, s->batch, kv_heads, s->kv_len, s->head_dim, lengths, place);
    a->value = make_view(g, &v, s->batch, kv_heads, s->kv_len, v_head_dim, lengths, place);
    p->outputs = view_size(&o, s->batch, s->n_heads, s->q_len, v_head_dim);
    size_t heads = s->result == MHA_RESULT_MEAN_WEIGHTS ? 1 : s->n_heads;
    p->attentions = s->batch * heads * s->q_len * s->kv_len;
    a->output = floats(p->outputs, place);
    a->attention = floats(p->attentions, place);
    a->result = s->result;
    a->query_strides = given_strides(layouts[0], q);
    a->key_strides = given_strides(layouts[1], k);
    a->value_strides = given_strides(layouts[2], v);
    a->output_strides = given_strides(layouts[3], o);
}

mha_attention_args one_head(size_t q_len, size_t kv_len, size_t head_dim, const float *query,
                            const float *key, const float *value, float *output) {
    return (mha_attention_args){
        .batch = 1,
        .n_heads = 1,
        .q_len = q_len,
        .kv_len = kv_len,
        .head_dim = head_dim,
        .query = query,
        .key = key,
        .value = value,
        .output = output,
    };
}

/* ---- Outputs --------------------------------------------------------------- */

static float *gather(const float *output, size_t outputs, mha_strides s, size_t batch, size_t heads,
                     size_t rows, size_t dim) {
    size_t at = 0;
    float *dense = malloc((batch * heads * rows * dim + 1) * sizeof *dense);
    float *gaps = copy_floats(output, outputs);
    ck_assert_ptr_nonnull(dense);
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < rows; i++) {
                size_t from = b * s.batch + h * s.head + i * s.row;
                memcpy(dense + at, output + from, dim * sizeof *dense);
                memset(gaps + from, 0xff, dim * sizeof *gaps);
                at += dim;
            }
        }
    }
    ck_assert_msg(untouched(gaps, outputs * sizeof *gaps), "%s: a gap was written", case_name());
    free(gaps);
    return dense;
}

float *gather_output(const struct attention_problem *p) {
    const mha_attention_args *a = &p->args;
    return gather(a->output, p->outputs, p->output_strides, a->batch, a->n_heads, a->q_len,
                  a->v_head_dim ? a->v_head_dim : a->head_dim);
}

float *gather_forward(const struct forward_problem *p) {
    mha_strides strides = {.batch = p->output_strides.batch, .row = p->output_strides.row};
    return gather(p->args.output, p->outputs, strides, p->args.batch, 1, p->args.q_len, p->width);
}

float *copy_floats(const float *data, size_t count) {
    float *copy = malloc((count + 1) * sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data, count * sizeof *copy);
    return copy;
}

/* ---- Calls ----------------------------------------------------------------- */

bool untouched(const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != 0xff) {
            return false;
        }
    }
    return true;
}

mha_context *new_context(void) {
    mha_context *context = NULL;
    ck_assert_succeeds(mha_context_create(NULL, &context));
    return context;
}

mha_layer *new_layer(const struct forward_problem *problem) {
    mha_layer *layer = NULL;
    ck_assert_succeeds(mha_layer_create(&problem->config, &problem->weights, &layer));
    return layer;
}
