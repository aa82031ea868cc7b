/* SPDX-License-Identifier: MIT
 *
 * Attention of the oracle, with these bounds; u and gamma(n) are those of oracle.c.
 *
 * score    s off by es: gamma(head_dim) sum (|q| + eq) (|k| + ek)
 *                       + sum (eq |k| + |q| ek + eq ek)
 * scaled   s scale: es |scale|, a rounding of the default scale, one of the product
 * softcap  cap (1 - E) / (1 + E), where E = exp(-2 |y|) and y = s scale / cap. y is off by ey:
 *          what the scaled score is off by, and two roundings. The exponent has two roundings of
 *          its own and exp an error of 1 ULP, so E is off by a factor of
 *          1 + e, e = expm1(2 (ey + gamma(2) (|y| + ey)) + 3 u). (1 - E) / (1 + E) has a slope
 *          of at most 2, so it is off by 2 E e; then come four roundings.
 * exponent t = s scale + b, or the softcap plus b, off by et: what these are off by, two roundings
 *          of the ALiBi term and one of its sum with the bias, one of t itself. A score that is
 *          returned has one more, of its product with the scale.
 * exp      of t - max. The maximum itself doesn't matter: it cancels in the weights, and so do the
 *          maxima of blocks. The difference, its product with log2 e and log2 e itself are
 *          rounded (or the scale times log2 e, twice, and one fma): 3 u (|t - max| + et). The
 *          same errors in merges of blocks add up to 3 u (max - block max) at most, since the
 *          differences all have one sign. So key j's exponent is off by
 *          x_j = et + 3 u (M - t + 2 E), E being the row's largest et, and its term of either sum
 *          by a factor of exp(x_j + n u). n counts roundings: 2 for the exp (1 ULP), for each
 *          merge 2 for its exp and 2 for its product and fma, 36 for the 16 lanes and their
 *          halving, 6 for the reciprocal and what comes after; and for values the chain over up
 *          to 512 keys. A sink is a term of the sum like any other.
 * weights  w (1 + r) / (1 + D), where r = expm1(x + n u) and |D| <= sum w r: off by
 *          w (r + D) / (1 - D). Their mean over heads: one rounding a head.
 * output   off by (sum w (r (|v| + ev) + ev) + D |o|) / (1 - D)
 *
 * exp is 0 below 2^-125.5: TINY covers that and all other underflow, per term.
 */
#include "oracle_attend.h"

#include <math.h>
#include <stdlib.h>

#define UNIT ORACLE_UNIT
#define TINY ORACLE_TINY

/* ---- Masks ----------------------------------------------------------------- */

size_t oracle_q_length(const struct oracle_problem *p, size_t b) {
    return p->mask && p->mask->q_lengths ? p->mask->q_lengths[b] : p->q_len;
}

size_t oracle_kv_length(const struct oracle_problem *p, size_t b) {
    return p->mask && p->mask->kv_lengths ? p->mask->kv_lengths[b] : p->kv_len;
}

/* Offsets may cancel out, so that they are added first, exactly. A double then holds all positions
 * that tests use. */
static double position(const struct oracle_problem *p, size_t b, size_t i) {
    const mha_mask *m = p->mask;
    int64_t offset = m->query_offset + (m->query_offsets ? m->query_offsets[b] : 0);
    double at = (double)i + (double)offset;
    if (m->causal == MHA_CAUSAL_BOTTOM_RIGHT) {
        at += (double)oracle_kv_length(p, b) - (double)oracle_q_length(p, b);
    }
    return at;
}

static const float *bias_at(const mha_mask *m, size_t b, size_t h, size_t i, size_t j) {
    return m->bias + b * m->bias_batch_stride + h * m->bias_head_stride + i * m->bias_query_stride +
           j;
}

static bool kept(const mha_mask *m, uint8_t byte) {
    return m->nonzero_masks ? byte == 0 : byte != 0;
}

static bool attends(const struct oracle_problem *p, size_t b, size_t h, size_t i, size_t j) {
    const mha_mask *m = p->mask;
    if (j >= oracle_kv_length(p, b)) {
        return false;
    }
    if (!m) {
        return true;
    }
    double at = position(p, b, i), key = (double)j;
    return !(m->keep && !kept(m, m->keep[b * m->keep_batch_stride + h * m->keep_head_stride +
                                         i * m->keep_query_stride + j])) &&
           !(m->key_keep && !kept(m, m->key_keep[b * m->key_keep_batch_stride + j])) &&
           !(m->bias && *bias_at(m, b, h, i, j) == -INFINITY) &&
           !(m->causal != MHA_CAUSAL_NONE && key > at) &&
           !(m->window_left > 0 && at - key >= (double)m->window_left) &&
           !(m->window_right > 0 && key - at >= (double)m->window_right);
}

/* ---- Scores ---------------------------------------------------------------- */

/* What one query and key give on the way to softmax. */
struct score {
    bool attended;
    struct oracle_number scaled, capped, masked; /* as they are returned */
    struct oracle_number t;                      /* what softmax takes the exp of */
};

static struct oracle_number dot(const struct oracle_problem *p, const struct oracle_number *q,
                                const struct oracle_number *k) {
    double s = 0.0, magnitude = 0.0, es = 0.0;
    for (size_t d = 0; d < p->head_dim; d++) {
        s += q[d].value * k[d].value;
        magnitude += (fabs(q[d].value) + q[d].bound) * (fabs(k[d].value) + k[d].bound);
        es +=
            q[d].bound * fabs(k[d].value) + fabs(q[d].value) * k[d].bound + q[d].bound * k[d].bound;
    }
    es += oracle_gamma(p->head_dim) * magnitude + (double)p->head_dim * TINY;
    return (struct oracle_number){s, es};
}

/* t is s * scale, off by t.bound; not rounded yet. */
static struct oracle_number softcap(const struct oracle_problem *p, struct oracle_number t) {
    double y = fabs(t.value) / p->softcap, ey = t.bound / p->softcap;
    ey += oracle_gamma(2) * (y + ey);
    double e = expm1(2.0 * (ey + oracle_gamma(2) * (y + ey)) + 3.0 * UNIT);
    /* At most 2; an infinite score has no ey. */
    double off = fmin(2.0 * exp(-2.0 * y) * e, 2.0);
    double value = tanh(t.value / p->softcap);
    return (struct oracle_number){
        p->softcap * value, p->softcap * (off + oracle_gamma(4) * (fabs(value) + off) + TINY)};
}

/* Adds the mask's terms to t, which is rounded after that. */
static struct oracle_number add_terms(const struct oracle_problem *p, size_t b, size_t h, size_t i,
                                      size_t j, struct oracle_number t) {
    const mha_mask *m = p->mask;
    double term = 0.0, off = 0.0;
    if (m && m->bias) {
        term = (double)*bias_at(m, b, h, i, j);
    }
    if (m && m->alibi_slopes) {
        double alibi = -((double)m->alibi_slopes[h] * fabs(position(p, b, i) - (double)j));
        term += alibi;
        off = 2.0 * UNIT * fabs(alibi) + UNIT * fabs(term);
    }
    double value = t.value + term, carried = t.bound + off;
    return (struct oracle_number){value, carried + UNIT * (fabs(value) + carried)};
}

static struct score score_of(const struct oracle_problem *p, size_t b, size_t h, size_t i,
                             size_t j) {
    size_t kv_head = h / (p->n_heads / p->n_kv_heads);
    const struct oracle_number *q = p->query + ((b * p->q_len + i) * p->n_heads + h) * p->head_dim;
    const struct oracle_number *k =
        p->key + ((b * p->kv_len + j) * p->n_kv_heads + kv_head) * p->head_dim;
    struct score score = {.attended = attends(p, b, h, i, j)};
    struct oracle_number s = dot(p, q, k), t = {.value = s.value * p->scale};
    t.bound = s.bound * fabs(p->scale) + (fabs(s.value) + s.bound) * p->scale_bound;
    score.scaled = t;
    score.scaled.bound += UNIT * (fabs(t.value) + t.bound);
    score.capped = score.scaled;
    if (p->softcap > 0.0) {
        t = score.capped = softcap(p, t);
    }
    score.masked = (struct oracle_number){.value = -INFINITY};
    if (score.attended) {
        score.masked = add_terms(p, b, h, i, j, score.capped);
        score.t = add_terms(p, b, h, i, j, t);
    }
    return score;
}

/* ---- Rows ------------------------------------------------------------------ */

struct row {
    size_t b, h, i, length;
    struct score *scores;          /* [kv_len] */
    struct oracle_number *weights; /* [kv_len], all zero before */
};

/* The scores of a row, and the keys that its softmax is over; false if there are none. */
static bool find_keys(const struct oracle_problem *p, const struct row *row) {
    bool any = false;
    for (size_t j = 0; j < row->length; j++) {
        row->scores[j] = score_of(p, row->b, row->h, row->i, j);
        any = any || row->scores[j].attended;
    }
    bool sink = p->sinks && p->sinks[row->h] > -INFINITY;
    if (!any && p->uniform && !sink) {
        for (size_t j = 0; j < row->length; j++) {
            row->scores[j].attended = any = true;
            row->scores[j].t = (struct oracle_number){0};
        }
    }
    return any;
}

/* Weights and output of a row that has keys. */
static void attend_keys(const struct oracle_problem *p, const struct row *row,
                        struct oracle_number *output) {
    double max = p->sinks ? (double)p->sinks[row->h] : -INFINITY, sink = max, widest = 0.0;
    for (size_t j = 0; j < row->length; j++) {
        struct oracle_number t = row->scores[j].t;
        if (row->scores[j].attended && t.value != -INFINITY) {
            max = t.value > max ? t.value : max;
            widest = t.bound > widest ? t.bound : widest;
        }
    }
    size_t merges = p->kv_len / 512 + 1; /* at most; with a sink one for each block */
    double weight_error = (double)(44 + 4 * merges) * UNIT;
    double value_error = weight_error + (double)(p->kv_len < 512 ? p->kv_len : 512) * UNIT;
    double sum = 0.0, off = 0.0; /* off: D, times the sum */
    if (sink > -INFINITY) {
        sum = exp(sink - max);
        off = sum * expm1(3.0 * UNIT * (max - sink + 2.0 * widest) + weight_error);
    }
    for (size_t j = 0; j < row->length; j++) {
        struct oracle_number t = row->scores[j].t, *w = &row->weights[j];
        if (row->scores[j].attended) {
            w->value = exp(t.value - max);
            /* The weight of a score of -infinity is 0, exactly. */
            w->bound =
                t.value == -INFINITY ? 0.0 : t.bound + 3.0 * UNIT * (max - t.value + 2.0 * widest);
            sum += w->value;
            off += w->value * expm1(w->bound + weight_error);
        }
    }
    double d = off / sum;
    double left = d < 1.0 ? 1.0 - d : 0.0; /* 0: no bound at all */
    size_t kv_head = row->h / (p->n_heads / p->n_kv_heads);
    for (size_t j = 0; j < row->length; j++) {
        if (!row->scores[j].attended) {
            continue;
        }
        double w = row->weights[j].value / sum, x = row->weights[j].bound;
        const struct oracle_number *v =
            p->value + ((row->b * p->kv_len + j) * p->n_kv_heads + kv_head) * p->v_head_dim;
        for (size_t c = 0; c < p->v_head_dim; c++) {
            double magnitude = fabs(v[c].value) + v[c].bound;
            output[c].value += w * v[c].value;
            output[c].bound +=
                w * (expm1(x + value_error) * magnitude + v[c].bound) + TINY * (1.0 + magnitude);
        }
        row->weights[j].value = w;
        row->weights[j].bound = (w * (expm1(x + weight_error) + d) + TINY) / left;
    }
    for (size_t c = 0; c < p->v_head_dim; c++) {
        output[c].bound = (output[c].bound + d * fabs(output[c].value)) / left;
    }
}

/* The row's part of the result: scores, weights, or one head's part of their mean. */
static void give_result(const struct oracle_problem *p, const struct row *row,
                        struct oracle_number *attention) {
    bool mean = p->result == MHA_RESULT_MEAN_WEIGHTS, last = row->h + 1 == p->n_heads;
    size_t heads = mean ? 1 : p->n_heads, head = mean ? 0 : row->h;
    struct oracle_number *to =
        attention + ((row->b * heads + head) * p->q_len + row->i) * p->kv_len;
    for (size_t j = 0; j < row->length; j++) {
        const struct score *score = &row->scores[j];
        switch (p->result) {
        case MHA_RESULT_SCORES:
            to[j] = score->scaled;
            break;
        case MHA_RESULT_CAPPED_SCORES:
            to[j] = score->capped;
            break;
        case MHA_RESULT_MASKED_SCORES:
            to[j] = score->masked;
            break;
        case MHA_RESULT_MEAN_WEIGHTS:
            to[j].value += row->weights[j].value / (double)p->n_heads;
            to[j].bound += row->weights[j].bound / (double)p->n_heads;
            to[j].bound += last ? oracle_gamma(p->n_heads) * (to[j].value + to[j].bound) : 0.0;
            break;
        default:
            to[j] = row->weights[j];
        }
    }
}

void oracle_attend(const struct oracle_problem *p, struct oracle_number *output,
                   mha_strides strides, struct oracle_number *attention) {
    struct row row = {.scores = calloc(p->kv_len + 1, sizeof *row.scores)};
    for (row.b = 0; row.b < p->batch && row.scores; row.b++) {
        row.length = oracle_kv_length(p, row.b);
        for (row.h = 0; row.h < p->n_heads; row.h++) {
            for (row.i = 0; row.i < oracle_q_length(p, row.b); row.i++) {
                row.weights = oracle_numbers(p->kv_len);
                if (find_keys(p, &row)) {
                    attend_keys(p, &row,
                                output + row.b * strides.batch + row.h * strides.head +
                                    row.i * strides.row);
                }
                give_result(p, &row, attention);
                free(row.weights);
            }
        }
    }
    free(row.scores);
}
