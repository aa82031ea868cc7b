/* SPDX-License-Identifier: MIT
 *
 * The oracle, and the bound on the library's rounding errors that travels with each number.
 *
 * u = 2^-24 is the largest relative error of one rounding, gamma(n) = n u / (1 - n u) that of
 * n of them (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1). A
 * bound is first-order in nothing: every step below holds with its products of errors.
 *
 * linear   K fma from the bias, inputs x off by ex; products that are exactly 0 round
 *          nothing and don't count:
 *          gamma(K) (|bias| + sum (|x| + ex) |w|) + sum ex |w|
 * score    s off by es: gamma(head_dim) sum (|q| + eq) (|k| + ek)
 *                       + sum (eq |k| + |q| ek + eq ek)
 * exponent t = s scale + b off by et: es |scale|, a rounding of the default scale, two of the
 *          ALiBi term and its sum with the bias, one of t itself
 * exp      of t - max, both as computed: off by et and by a rounding u (|t - max| + et). The
 *          maximum is a number of no meaning: it cancels in the weights, and so do the maxima
 *          of blocks, whose rounded differences add up to u (max - block max) at most, since
 *          they all have one sign. So key j's exponent is off by x_j = et + u (M - t + 2 E), E
 *          being the row's largest et, and its term of either sum by a factor of
 *          exp(x_j + n u), n counting roundings: 2 for the exp (1 ULP), for each merge of
 *          blocks 2 for its exp and 2 for its product and fma, 36 for the 16 lanes and their
 *          halving, 6 for the reciprocal and what comes after; and for values the chain over
 *          up to 512 keys.
 * weights  w (1 + r) / (1 + D), where r = expm1(x + n u) and |D| <= sum w r: off by
 *          w (r + D) / (1 - D)
 * output   off by (sum w (r (|v| + ev) + ev) + D |o|) / (1 - D); as a linear layer's input,
 *          once more as above.
 *
 * exp is 0 below 2^-125.5: TINY covers that and all other underflow, per term.
 */
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

#define UNIT 0x1p-24
#define TINY 0x1p-120

static double gamma_of(size_t n) {
    return (double)n * UNIT / (1.0 - (double)n * UNIT);
}

static struct oracle_number *numbers(size_t count) {
    struct oracle_number *made = calloc(count + 1, sizeof *made);
    ck_assert_ptr_nonnull(made);
    return made;
}

/* ---- Linear layers --------------------------------------------------------- */

/* y[rows][outputs] = bias + x[rows][inputs] w[outputs][inputs]^T */
static struct oracle_number *linear(size_t rows, size_t inputs, size_t outputs,
                                    const struct oracle_number *x, const float *w,
                                    const float *bias) {
    struct oracle_number *y = numbers(rows * outputs);
    for (size_t i = 0; i < rows; i++) {
        for (size_t n = 0; n < outputs; n++) {
            double value = bias ? (double)bias[n] : 0.0;
            double magnitude = fabs(value), carried = 0.0;
            size_t steps = 0;
            for (size_t k = 0; k < inputs; k++) {
                const struct oracle_number *a = &x[i * inputs + k];
                double b = (double)w[n * inputs + k];
                value += a->value * b;
                magnitude += (fabs(a->value) + a->bound) * fabs(b);
                steps += a->value != 0.0 || a->bound != 0.0;
                carried += a->bound * fabs(b);
            }
            y[i * outputs + n].value = value;
            y[i * outputs + n].bound = gamma_of(steps) * magnitude + carried + (double)steps * TINY;
        }
    }
    return y;
}

static struct oracle_number *exactly(const float *x, size_t count) {
    struct oracle_number *y = numbers(count);
    for (size_t i = 0; i < count; i++) {
        y[i].value = (double)x[i];
    }
    return y;
}

/* ---- Masks ----------------------------------------------------------------- */

/* One attention problem on numbers. Rows of [batch][len][heads][dim]. */
struct problem {
    size_t batch, n_heads, n_kv_heads, q_len, kv_len, head_dim, v_head_dim;
    double scale, scale_bound;
    bool uniform;
    const mha_mask *mask;
    const struct oracle_number *query, *key, *value;
};

static size_t length_of(const struct problem *p, size_t b) {
    return p->mask && p->mask->kv_lengths ? p->mask->kv_lengths[b] : p->kv_len;
}

/* A double holds all positions that a test uses. */
static double position(const struct problem *p, size_t b, size_t i) {
    double at = (double)i + (double)p->mask->query_offset;
    if (p->mask->causal == MHA_CAUSAL_BOTTOM_RIGHT) {
        at += (double)length_of(p, b) - (double)p->q_len;
    }
    return at;
}

static const float *bias_at(const mha_mask *m, size_t b, size_t h, size_t i, size_t j) {
    return m->bias + b * m->bias_batch_stride + h * m->bias_head_stride + i * m->bias_query_stride +
           j;
}

static bool attends(const struct problem *p, size_t b, size_t h, size_t i, size_t j) {
    const mha_mask *m = p->mask;
    if (j >= length_of(p, b)) {
        return false;
    }
    if (!m) {
        return true;
    }
    double at = position(p, b, i);
    return !(m->keep && m->keep[b * m->keep_batch_stride + h * m->keep_head_stride +
                                i * m->keep_query_stride + j] == 0) &&
           !(m->bias && *bias_at(m, b, h, i, j) == -INFINITY) &&
           !(m->causal != MHA_CAUSAL_NONE && (double)j > at) &&
           !(m->window > 0 && fabs(at - (double)j) >= (double)m->window);
}

/* ---- Attention ------------------------------------------------------------- */

/* t and its bound for an attended key. */
static struct oracle_number exponent(const struct problem *p, size_t b, size_t h, size_t i,
                                     size_t j) {
    size_t kv_head = h / (p->n_heads / p->n_kv_heads);
    const struct oracle_number *q = p->query + ((b * p->q_len + i) * p->n_heads + h) * p->head_dim;
    const struct oracle_number *k =
        p->key + ((b * p->kv_len + j) * p->n_kv_heads + kv_head) * p->head_dim;
    double s = 0.0, magnitude = 0.0, es = 0.0;
    for (size_t d = 0; d < p->head_dim; d++) {
        s += q[d].value * k[d].value;
        magnitude += (fabs(q[d].value) + q[d].bound) * (fabs(k[d].value) + k[d].bound);
        es +=
            q[d].bound * fabs(k[d].value) + fabs(q[d].value) * k[d].bound + q[d].bound * k[d].bound;
    }
    es += gamma_of(p->head_dim) * magnitude + (double)p->head_dim * TINY;

    const mha_mask *m = p->mask;
    double term = 0.0, term_bound = 0.0;
    if (m && m->bias) {
        term = (double)*bias_at(m, b, h, i, j);
    }
    if (m && m->alibi_slopes) {
        double alibi = -((double)m->alibi_slopes[h] * fabs(position(p, b, i) - (double)j));
        term += alibi;
        term_bound = 2.0 * UNIT * fabs(alibi) + UNIT * fabs(term);
    }
    struct oracle_number t = {.value = s * p->scale + term};
    double carried = es * fabs(p->scale) + (fabs(s) + es) * p->scale_bound + term_bound;
    t.bound = carried + UNIT * (fabs(t.value) + carried);
    return t;
}

/* One row: t[kv_len] is scratch. */
static void attend_row(const struct problem *p, size_t b, size_t h, size_t i,
                       struct oracle_number *t, struct oracle_number *output,
                       struct oracle_number *weights) {
    size_t length = length_of(p, b), n = 0;
    double max = -INFINITY, widest = 0.0, sum = 0.0;
    bool any = false;
    for (size_t j = 0; j < length; j++) {
        any = any || attends(p, b, h, i, j);
    }
    bool uniform = !any && p->uniform;
    for (size_t j = 0; j < length; j++) {
        if (uniform) {
            t[j] = (struct oracle_number){0};
        } else if (attends(p, b, h, i, j)) {
            t[j] = exponent(p, b, h, i, j);
        } else {
            continue;
        }
        n++;
        max = t[j].value > max ? t[j].value : max;
        widest = t[j].bound > widest ? t[j].bound : widest;
    }
    if (n == 0) {
        return; /* zeros, exactly */
    }
    size_t roundings = 44 + 4 * (p->kv_len / 512 + 1);
    double weight_error = (double)roundings * UNIT;
    double value_error = weight_error + (double)(p->kv_len < 512 ? p->kv_len : 512) * UNIT;
    size_t kv_head = h / (p->n_heads / p->n_kv_heads);
    double off = 0.0; /* D, times the sum */
    for (size_t j = 0; j < length; j++) {
        if (uniform || attends(p, b, h, i, j)) {
            double x = t[j].bound + UNIT * (max - t[j].value + 2.0 * widest);
            weights[j].value = exp(t[j].value - max);
            weights[j].bound = x;
            sum += weights[j].value;
            off += weights[j].value * expm1(x + weight_error);
        }
    }
    double d = off / sum;
    double left = d < 1.0 ? 1.0 - d : 0.0; /* 0: no bound at all */
    for (size_t j = 0; j < length; j++) {
        if (!uniform && !attends(p, b, h, i, j)) {
            continue;
        }
        double w = weights[j].value / sum, x = weights[j].bound;
        const struct oracle_number *v =
            p->value + ((b * p->kv_len + j) * p->n_kv_heads + kv_head) * p->v_head_dim;
        for (size_t c = 0; c < p->v_head_dim; c++) {
            double magnitude = fabs(v[c].value) + v[c].bound;
            output[c].value += w * v[c].value;
            output[c].bound +=
                w * (expm1(x + value_error) * magnitude + v[c].bound) + TINY * (1.0 + magnitude);
        }
        weights[j].value = w;
        weights[j].bound = (w * (expm1(x + weight_error) + d) + TINY) / left;
    }
    for (size_t c = 0; c < p->v_head_dim; c++) {
        output[c].bound = (output[c].bound + d * fabs(output[c].value)) / left;
    }
}

/* output: row i of head h of batch element b is at [b * batch + h * head + i * row]. */
static void attend(const struct problem *p, struct oracle_number *output, mha_strides strides,
                   struct oracle_number *weights) {
    struct oracle_number *t = numbers(p->kv_len);
    for (size_t b = 0; b < p->batch; b++) {
        for (size_t h = 0; h < p->n_heads; h++) {
            for (size_t i = 0; i < p->q_len; i++) {
                attend_row(p, b, h, i, t,
                           output + b * strides.batch + h * strides.head + i * strides.row,
                           weights + ((b * p->n_heads + h) * p->q_len + i) * p->kv_len);
            }
        }
    }
    free(t);
}

static void set_scale(struct problem *p, float scale) {
    p->scale = (double)scale;
    if (scale == 0.0f) {
        p->scale = 1.0 / sqrt((double)p->head_dim);
        p->scale_bound = UNIT * p->scale;
    }
}

void oracle_forward(const mha_config *c, const mha_weights *w, const mha_forward_args *args,
                    struct oracle *oracle) {
    size_t k_dim = c->k_dim ? c->k_dim : c->d_model, v_dim = c->v_dim ? c->v_dim : c->d_model;
    struct problem p = {.batch = args->batch, .n_heads = c->n_heads, .q_len = args->q_len};
    p.n_kv_heads = c->n_kv_heads ? c->n_kv_heads : c->n_heads;
    p.kv_len = args->key ? args->kv_len : args->q_len;
    p.head_dim = c->head_dim ? c->head_dim : c->d_model / c->n_heads;
    p.v_head_dim = c->v_head_dim ? c->v_head_dim : p.head_dim;
    p.uniform = c->masked_rows == MHA_MASKED_ROWS_UNIFORM;
    p.mask = args->mask;
    set_scale(&p, c->scale);

    size_t queries = p.batch * p.q_len, keys = p.batch * p.kv_len;
    const float *key = args->key ? args->key : args->query;
    const float *value = args->value ? args->value : key;
    struct oracle_number *query_in = exactly(args->query, queries * c->d_model);
    struct oracle_number *key_in = exactly(key, keys * k_dim);
    struct oracle_number *value_in = exactly(value, keys * v_dim);
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
    struct oracle_number *concat = numbers(queries * width);
    oracle->attention = numbers(p.batch * p.n_heads * p.q_len * p.kv_len);
    attend(&p, concat, (mha_strides){p.q_len * width, p.v_head_dim, width}, oracle->attention);
    oracle->output = linear(queries, width, c->d_model, concat, w->o, w->o_bias);
    struct oracle_number *all[] = {query_in, key_in, value_in, q, k, v, concat};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

/* A view [batch][heads][rows][dim] to [batch][rows][heads][dim], which is dense. */
static struct oracle_number *gather(const float *from, mha_strides s, size_t batch, size_t heads,
                                    size_t rows, size_t dim) {
    struct oracle_number *to = numbers(batch * heads * rows * dim);
    size_t row = s.row ? s.row : dim;
    size_t head = s.head ? s.head : rows * row;
    size_t sequence = s.batch ? s.batch : heads * head;
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < rows; i++) {
                for (size_t d = 0; d < dim; d++) {
                    to[((b * rows + i) * heads + h) * dim + d].value =
                        (double)from[b * sequence + h * head + i * row + d];
                }
            }
        }
    }
    return to;
}

void oracle_attention(const mha_attention_args *a, struct oracle *oracle) {
    struct problem p = {
        .batch = a->batch,
        .n_heads = a->n_heads,
        .n_kv_heads = a->n_kv_heads ? a->n_kv_heads : a->n_heads,
        .q_len = a->q_len,
        .kv_len = a->kv_len,
        .head_dim = a->head_dim,
        .v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim,
        .uniform = a->masked_rows == MHA_MASKED_ROWS_UNIFORM,
        .mask = a->mask,
    };
    set_scale(&p, a->scale);
    struct oracle_number *q =
        gather(a->query, a->query_strides, p.batch, p.n_heads, p.q_len, p.head_dim);
    struct oracle_number *k =
        gather(a->key, a->key_strides, p.batch, p.n_kv_heads, p.kv_len, p.head_dim);
    struct oracle_number *v =
        gather(a->value, a->value_strides, p.batch, p.n_kv_heads, p.kv_len, p.v_head_dim);
    p.query = q;
    p.key = k;
    p.value = v;
    size_t rows = p.batch * p.n_heads * p.q_len, head = p.q_len * p.v_head_dim;
    oracle->output = numbers(rows * p.v_head_dim);
    oracle->attention = numbers(rows * p.kv_len);
    attend(&p, oracle->output, (mha_strides){p.n_heads * head, head, p.v_head_dim},
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
