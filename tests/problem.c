/* SPDX-License-Identifier: MIT
 *
 * Building the problems of the tables.
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

/* ---- Masks ----------------------------------------------------------------- */

size_t length_of_letter(char letter, size_t kv_len) {
    switch (letter) {
    case 'f':
        return kv_len;
    case 'h':
        return kv_len / 2;
    case 'm':
        return kv_len > 0 ? kv_len - 1 : 0;
    case '1':
        return kv_len > 0 ? 1 : 0;
    default:
        ck_assert_int_eq(letter, '0');
        return 0;
    }
}

/* Strides for the letters of a mask part, with a gap of 3 behind each row; returns the
 * elements of the whole. */
static size_t mask_strides(const char *letters, const mha_attention_args *a, size_t *batch,
                           size_t *head, size_t *query) {
    size_t extent = a->kv_len + 3, last = 0;
    *batch = *head = *query = 0;
    for (size_t i = strlen(letters); i > 0; i--) {
        char letter = letters[i - 1];
        size_t count = letter == 'b' ? a->batch : letter == 'h' ? a->n_heads : a->q_len;
        *(letter == 'b' ? batch : letter == 'h' ? head : query) = extent;
        last += count > 0 ? (count - 1) * extent : 0;
        extent *= count;
    }
    return last + a->kv_len;
}

/* Calls fill for the rows of a mask part that are not the same as another. */
static void each_mask_row(struct generator *g, const struct mask_case *c, const char *letters,
                          const mha_attention_args *a, const size_t strides[3],
                          void (*fill)(struct generator *, size_t at, size_t kv_len,
                                       unsigned masked, void *data),
                          void *data) {
    size_t batch = strchr(letters, 'b') ? a->batch : 1;
    size_t heads = strchr(letters, 'h') ? a->n_heads : 1;
    size_t rows = strchr(letters, 'q') ? a->q_len : 1;
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < rows; i++) {
                unsigned masked = next_below(g, 16) < c->dead ? 16 : c->masked;
                fill(g, b * strides[0] + h * strides[1] + i * strides[2], a->kv_len, masked, data);
            }
        }
    }
}

static void fill_keep(struct generator *g, size_t at, size_t kv_len, unsigned masked, void *data) {
    uint8_t *row = (uint8_t *)data + at;
    for (size_t j = 0; j < kv_len; j++) {
        row[j] = next_below(g, 16) < masked ? 0 : (uint8_t)(1 + next_below(g, 255));
    }
}

static void fill_bias(struct generator *g, size_t at, size_t kv_len, unsigned masked, void *data) {
    float *row = (float *)data + at;
    for (size_t j = 0; j < kv_len; j++) {
        row[j] = next_below(g, 16) < masked ? -INFINITY : 3.0f * next_float(g);
    }
}

static void make_mask(struct generator *g, const struct mask_case *c, const mha_attention_args *a,
                      struct place place, mha_mask *mask) {
    *mask = (mha_mask){.causal = c->causal, .window = c->window, .query_offset = c->offset};
    size_t s[3];
    if (c->keep) {
        uint8_t *keep =
            guarded_alloc(mask_strides(c->keep, a, &s[0], &s[1], &s[2]), place.shift, place.side);
        mask->keep = keep;
        mask->keep_batch_stride = s[0];
        mask->keep_head_stride = s[1];
        mask->keep_query_stride = s[2];
        each_mask_row(g, c, c->keep, a, s, fill_keep, keep);
    }
    if (c->bias) {
        float *bias = floats(mask_strides(c->bias, a, &s[0], &s[1], &s[2]), place);
        mask->bias = bias;
        mask->bias_batch_stride = s[0];
        mask->bias_head_stride = s[1];
        mask->bias_query_stride = s[2];
        each_mask_row(g, c, c->bias, a, s, fill_bias, bias);
    }
    if (c->lengths) {
        /* size_t needs its own alignment, whatever the shift. */
        size_t *lengths = guarded_alloc(a->batch * sizeof *lengths, 0, place.side);
        for (size_t b = 0; b < a->batch; b++) {
            lengths[b] = length_of_letter(c->lengths[b % strlen(c->lengths)], a->kv_len);
        }
        mask->kv_lengths = lengths;
    }
    if (c->slope != 0.0f) {
        float *slopes = floats(a->n_heads, place);
        for (size_t h = 0; h < a->n_heads; h++) {
            slopes[h] = ldexpf(c->slope, -(int)h);
        }
        mask->alibi_slopes = slopes;
    }
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
static const float *make_input(struct generator *g, size_t batch, size_t rows, size_t width,
                               const size_t *lengths, struct place place) {
    float *data = floats(batch * rows * width, place);
    for (size_t b = 0; b < batch; b++) {
        fill_floats(g, data + b * rows * width, (lengths ? lengths[b] : rows) * width);
    }
    return data;
}

void make_forward(struct generator *g, const struct shape_case *s, const struct mask_case *m,
                  struct place place, struct forward_problem *p) {
    memset(p, 0, sizeof *p);
    p->config = (mha_config){
        .d_model = s->d_model,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .v_head_dim = s->v_head_dim,
        .k_dim = s->k_dim,
        .v_dim = s->v_dim,
        .scale = s->scale,
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
    make_linear(g, s->d_model, s->n_heads * v_head_dim, 1.0f, has(s->biases, 'o'), place, &w->o,
                &w->o_bias);

    size_t kv_len = s->kv_len ? s->kv_len : s->q_len;
    mha_attention_args sizes = {
        .batch = s->batch, .n_heads = s->n_heads, .q_len = s->q_len, .kv_len = kv_len};
    make_mask(g, m, &sizes, place, &p->mask);
    p->outputs = s->batch * s->q_len * s->d_model;
    p->attentions = s->batch * s->n_heads * s->q_len * kv_len;
    mha_forward_args *a = &p->args;
    a->batch = s->batch;
    a->q_len = s->q_len;
    a->kv_len = s->kv_len;
    a->query = make_input(g, s->batch, s->q_len, s->d_model, NULL, place);
    if (s->kv_len) {
        a->key = make_input(g, s->batch, kv_len, k_dim, p->mask.kv_lengths, place);
        a->value = make_input(g, s->batch, kv_len, v_dim, p->mask.kv_lengths, place);
    }
    a->mask = &p->mask;
    a->output = floats(p->outputs, place);
    a->attention = floats(p->attentions, place);
}

/* ---- Bare attention -------------------------------------------------------- */

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

void make_attention(struct generator *g, const struct shape_case *s, const struct mask_case *m,
                    struct place place, struct attention_problem *p) {
    const char *layouts = s->layouts ? s->layouts : "....";
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
        .masked_rows = s->masked_rows,
    };
    make_mask(g, m, a, place, &p->mask);
    a->mask = &p->mask;
    const size_t *lengths = p->mask.kv_lengths;
    a->query = make_view(g, &q, s->batch, s->n_heads, s->q_len, s->head_dim, NULL, place);
    a->key = make_view(g, &k, s->batch, kv_heads, s->kv_len, s->head_dim, lengths, place);
    a->value = make_view(g, &v, s->batch, kv_heads, s->kv_len, v_head_dim, lengths, place);
    p->outputs = view_size(&o, s->batch, s->n_heads, s->q_len, v_head_dim);
    p->attentions = s->batch * s->n_heads * s->q_len * s->kv_len;
    a->output = floats(p->outputs, place);
    a->attention = floats(p->attentions, place);
    const mha_strides fill_in = {0};
    a->query_strides = layouts[0] == '.' ? fill_in : q;
    a->key_strides = layouts[1] == '.' ? fill_in : k;
    a->value_strides = layouts[2] == '.' ? fill_in : v;
    a->output_strides = layouts[3] == '.' ? fill_in : o;
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

float *gather_output(const struct attention_problem *p) {
    const mha_attention_args *a = &p->args;
    size_t dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    size_t count = a->batch * a->n_heads * a->q_len * dim, at = 0;
    float *dense = malloc((count + 1) * sizeof *dense);
    float *gaps = malloc((p->outputs + 1) * sizeof *gaps);
    ck_assert(dense && gaps);
    memcpy(gaps, a->output, p->outputs * sizeof *gaps);
    for (size_t b = 0; b < a->batch; b++) {
        for (size_t h = 0; h < a->n_heads; h++) {
            for (size_t i = 0; i < a->q_len; i++) {
                size_t from = b * p->output_strides.batch + h * p->output_strides.head +
                              i * p->output_strides.row;
                memcpy(dense + at, a->output + from, dim * sizeof *dense);
                memset(gaps + from, 0xff, dim * sizeof *gaps);
                at += dim;
            }
        }
    }
    ck_assert_msg(untouched(gaps, p->outputs * sizeof *gaps), "%s: a gap was written", case_name());
    free(gaps);
    return dense;
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
