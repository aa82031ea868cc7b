/* SPDX-License-Identifier: MIT
 *
 * The oracle, and the bound on the library's rounding errors that each number carries. Linear
 * layers and comparison are here, oracle_attend.c has attention and its bounds.
 *
 * u = 2^-24 is the largest relative error of one rounding, gamma(n) = n u / (1 - n u) that of
 * n of them (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). The
 * bounds are no first-order estimates: they include the products of errors.
 *
 * linear   K fma from the bias, inputs x off by ex: gamma(K) (|bias| + sum (|x| + ex) |w|)
 *          + sum ex |w|. Products that are exactly 0 aren't rounded and don't count.
 *
 * Subnormal weights, biases and inputs count as zero.
 */
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle_attend.h"
#include "support.h"

struct oracle_number *oracle_numbers(size_t count) {
    struct oracle_number *made = calloc(count + 1, sizeof *made);
    ck_assert_ptr_nonnull(made);
    return made;
}

/* An input as the library takes it. */
static double input(float x) {
    return fpclassify(x) == FP_SUBNORMAL ? 0.0 : (double)x;
}

/* ---- Linear layers --------------------------------------------------------- */

/* y[rows][outputs] = bias + x[rows][inputs] w[outputs][inputs]^T */
static struct oracle_number *linear(size_t rows, size_t inputs, size_t outputs,
                                    const struct oracle_number *x, const float *w,
                                    const float *bias) {
    struct oracle_number *y = oracle_numbers(rows * outputs);
    for (size_t i = 0; i < rows; i++) {
        for (size_t n = 0; n < outputs; n++) {
            double value = bias ? input(bias[n]) : 0.0;
            double magnitude = fabs(value), carried = 0.0;
            size_t steps = 0;
            for (size_t k = 0; k < inputs; k++) {
                const struct oracle_number *a = &x[i * inputs + k];
                double b = input(w[n * inputs + k]);
                value += a->value * b;
                magnitude += (fabs(a->value) + a->bound) * fabs(b);
                steps += a->value != 0.0 || a->bound != 0.0;
                carried += a->bound * fabs(b);
            }
            y[i * outputs + n].value = value;
            y[i * outputs + n].bound =
                oracle_gamma(steps) * magnitude + carried + (double)steps * ORACLE_TINY;
        }
    }
    return y;
}

/* ---- Arrays of the caller's ------------------------------------------------ */

/* A view [batch][heads][rows][dim] to [batch][rows][heads][dim], which is dense. Rows beyond a
 * length aren't read; they become zeros. */
static struct oracle_number *gather(const float *from, mha_strides s, size_t batch, size_t heads,
                                    size_t rows, size_t dim, const size_t *lengths) {
    struct oracle_number *to = oracle_numbers(batch * heads * rows * dim);
    if (s.batch == 0 && s.head == 0 && s.row == 0) {
        s = (mha_strides){heads * rows * dim, rows * dim, dim};
    }
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < (lengths ? lengths[b] : rows); i++) {
                for (size_t d = 0; d < dim; d++) {
                    to[((b * rows + i) * heads + h) * dim + d].value =
                        input(from[b * s.batch + h * s.head + i * s.row + d]);
                }
            }
        }
    }
    return to;
}

static struct oracle_number *gather_rows(const float *from, mha_row_strides s, size_t batch,
                                         size_t rows, size_t dim, const size_t *lengths) {
    return gather(from, (mha_strides){s.batch, 0, s.row}, batch, 1, rows, dim, lengths);
}

static void set_scale(struct oracle_problem *p, float scale) {
    p->scale = (double)scale;
    if (scale == 0.0f) {
        p->scale = 1.0 / sqrt((double)p->head_dim);
        p->scale_bound = ORACLE_UNIT * p->scale;
    }
}

/* ---- The two calls --------------------------------------------------------- */

/* The output projection; rows of queries that don't count stay zeros. */
static struct oracle_number *project_out(const struct oracle_problem *p, const mha_config *c,
                                         const mha_weights *w, const struct oracle_number *heads) {
    struct oracle_number *y =
        linear(p->batch * p->q_len, p->n_heads * p->v_head_dim, c->d_model, heads, w->o, w->o_bias);
    for (size_t b = 0; b < p->batch; b++) {
        size_t first = oracle_q_length(p, b);
        memset(y + (b * p->q_len + first) * c->d_model, 0,
               (p->q_len - first) * c->d_model * sizeof *y);
    }
    return y;
}

void oracle_forward(const mha_config *c, const mha_weights *w, const mha_forward_args *args,
                    struct oracle *oracle) {
    size_t k_dim = c->k_dim ? c->k_dim : c->d_model, v_dim = c->v_dim ? c->v_dim : c->d_model;
    struct oracle_problem p = {.batch = args->batch, .n_heads = c->n_heads, .q_len = args->q_len};
    p.n_kv_heads = c->n_kv_heads ? c->n_kv_heads : c->n_heads;
    p.kv_len = args->key ? args->kv_len : args->q_len;
    p.head_dim = c->head_dim ? c->head_dim : c->d_model / c->n_heads;
    p.v_head_dim = c->v_head_dim ? c->v_head_dim : p.head_dim;
    p.softcap = (double)c->softcap;
    p.uniform = c->masked_rows == MHA_MASKED_ROWS_UNIFORM;
    p.sinks = w->sinks;
    p.mask = args->mask;
    p.result = args->result;
    set_scale(&p, c->scale);

    const size_t *q_lengths = p.mask ? p.mask->q_lengths : NULL;
    const size_t *kv_lengths = p.mask ? p.mask->kv_lengths : NULL;
    const float *key = args->key ? args->key : args->query;
    const float *value = args->value ? args->value : key;
    mha_row_strides key_strides = args->key ? args->key_strides : args->query_strides;
    mha_row_strides value_strides = args->value ? args->value_strides : key_strides;
    struct oracle_number *query_in =
        gather_rows(args->query, args->query_strides, p.batch, p.q_len, c->d_model, q_lengths);
    struct oracle_number *key_in =
        gather_rows(key, key_strides, p.batch, p.kv_len, k_dim, kv_lengths);
    struct oracle_number *value_in =
        gather_rows(value, value_strides, p.batch, p.kv_len, v_dim, kv_lengths);
    size_t queries = p.batch * p.q_len, keys = p.batch * p.kv_len;
    struct oracle_number *q =
        linear(queries, c->d_model, p.n_heads * p.head_dim, query_in, w->q, w->q_bias);
    struct oracle_number *k =
        linear(keys, k_dim, p.n_kv_heads * p.head_dim, key_in, w->k, w->k_bias);
    struct oracle_number *v =
        linear(keys, v_dim, p.n_kv_heads * p.v_head_dim, value_in, w->v, w->v_bias);
    p.query = q;
    p.key = k;
    p.value = v;

    size_t width = p.n_heads * p.v_head_dim;
    struct oracle_number *heads = oracle_numbers(queries * width);
    oracle->attention = oracle_numbers(p.batch * p.n_heads * p.q_len * p.kv_len);
    oracle_attend(&p, heads, (mha_strides){p.q_len * width, p.v_head_dim, width},
                  oracle->attention);
    oracle->output = w->o ? project_out(&p, c, w, heads) : heads;
    struct oracle_number *all[] = {query_in, key_in, value_in, q, k, v, w->o ? heads : NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

void oracle_attention(const mha_attention_args *a, struct oracle *oracle) {
    struct oracle_problem p = {
        .batch = a->batch,
        .n_heads = a->n_heads,
        .n_kv_heads = a->n_kv_heads ? a->n_kv_heads : a->n_heads,
        .q_len = a->q_len,
        .kv_len = a->kv_len,
        .head_dim = a->head_dim,
        .v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim,
        .softcap = (double)a->softcap,
        .uniform = a->masked_rows == MHA_MASKED_ROWS_UNIFORM,
        .sinks = a->sinks,
        .mask = a->mask,
        .result = a->result,
    };
    set_scale(&p, a->scale);
    const size_t *q_lengths = p.mask ? p.mask->q_lengths : NULL;
    const size_t *kv_lengths = p.mask ? p.mask->kv_lengths : NULL;
    struct oracle_number *q =
        gather(a->query, a->query_strides, p.batch, p.n_heads, p.q_len, p.head_dim, q_lengths);
    struct oracle_number *k =
        gather(a->key, a->key_strides, p.batch, p.n_kv_heads, p.kv_len, p.head_dim, kv_lengths);
    struct oracle_number *v = gather(a->value, a->value_strides, p.batch, p.n_kv_heads, p.kv_len,
                                     p.v_head_dim, kv_lengths);
    p.query = q;
    p.key = k;
    p.value = v;
    size_t rows = p.batch * p.n_heads * p.q_len, head = p.q_len * p.v_head_dim;
    oracle->output = oracle_numbers(rows * p.v_head_dim);
    oracle->attention = oracle_numbers(rows * p.kv_len);
    oracle_attend(&p, oracle->output, (mha_strides){p.n_heads * head, head, p.v_head_dim},
                  oracle->attention);
    free(q);
    free(k);
    free(v);
}

void oracle_free(struct oracle *oracle) {
    free(oracle->output);
    free(oracle->attention);
    *oracle = (struct oracle){0};
}

/* ---- Comparison ------------------------------------------------------------ */

/* The error as a share of what is allowed: above 1, or NaN, is too much. */
static double share(const struct oracle_number *expected, float actual) {
    if (isnan(expected->value)) {
        return isnan(actual) ? 0.0 : INFINITY;
    }
    if ((double)actual == expected->value) { /* infinities too */
        return 0.0;
    }
    /* 1e-6: for the roundings of the oracle itself, in binary64. */
    return fabs((double)actual - expected->value) / (expected->bound * (1.0 + 1e-6));
}

bool oracle_agrees(const char *what, const struct oracle_number *expected, const float *actual,
                   size_t rows, size_t columns) {
    enum { SHOWN = 6 };
    size_t wrong = 0;
    for (size_t i = 0; i < rows * columns; i++) {
        if (share(&expected[i], actual[i]) <= 1.0) {
            continue;
        }
        if (wrong == 0) {
            fprintf(stderr, "%s: %s, against binary64\n", case_name(), what);
        }
        if (wrong++ < SHOWN) {
            fprintf(stderr, "  [%zu][%zu] expected %.9g +- %.2g, is %.9g\n", i / columns,
                    i % columns, expected[i].value, expected[i].bound, (double)actual[i]);
        }
    }
    if (wrong > 0) {
        fprintf(stderr, "  %zu of %zu are off\n", wrong, rows * columns);
    }
    return wrong == 0;
}

double oracle_blindness(const struct oracle_number *expected, size_t count) {
    double bound = 0.0, value = 0.0;
    for (size_t i = 0; i < count; i++) {
        if (!isnan(expected[i].value)) {
            bound = expected[i].bound > bound ? expected[i].bound : bound;
            value = fabs(expected[i].value) > value ? fabs(expected[i].value) : value;
        }
    }
    return bound > 0.0 ? bound / value : 0.0;
}
