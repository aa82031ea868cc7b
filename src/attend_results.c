/* SPDX-License-Identifier: MIT
 *
 * Weights and scores of the engine. They cost memory and time of their own, so that nothing here
 * is tuned.
 */
#include "attend_results.h"

#include <math.h>
#include <string.h>

#include "softmax_row.h"

static float *attention_row(const struct mha_attend *a, size_t row) {
    size_t head = a->first_head + row % a->group;
    return a->attention + (head * a->q_len + row / a->group) * a->kv_len;
}

/* Where a row's weights are formed. */
static float *weights_row(const struct mha_attend *a, size_t row, size_t tile_row) {
    return a->result == MHA_RESULT_MEAN_WEIGHTS ? a->scratch->mean + tile_row * a->kv_len
                                                : attention_row(a, row);
}

static float *history_of(const struct mha_attend *a, size_t key) {
    return a->scratch->max_history + key / MHA_KEY_BLOCK * a->kernels->tile_rows;
}

void mha_clear_weights(const struct mha_attend *a, size_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        memset(weights_row(a, first + i, i), 0, a->kv_len * sizeof(float));
        for (size_t key = 0; key < a->mask.kv_length; key += MHA_KEY_BLOCK) {
            history_of(a, key)[i] = -INFINITY;
        }
    }
}

void mha_keep_weights(const struct mha_attend *a, size_t first, size_t count, size_t tile_row,
                      size_t first_key, size_t keys, const float *max) {
    for (size_t i = 0; i < count; i++) {
        float *to = weights_row(a, first + i, tile_row + i) + first_key;
        memcpy(to, a->scratch->scores + i * MHA_KEY_BLOCK, keys * sizeof *to);
        history_of(a, first_key)[tile_row + i] = max[i];
    }
}

/* Adds a head's weights to those of the heads before it; the last head makes the mean. */
static void add_to_mean(const struct mha_attend *a, size_t row, const float *weights) {
    size_t head = a->first_head + row % a->group;
    float *to = a->attention + row / a->group * a->kv_len;
    for (size_t j = 0; j < a->kv_len; j++) {
        float sum = head == 0 ? weights[j] : to[j] + weights[j];
        to[j] = head + 1 == a->n_heads ? sum / (float)a->n_heads : sum;
    }
}

void mha_finish_weights(const struct mha_attend *a, size_t row, size_t tile_row) {
    float *weights = weights_row(a, row, tile_row);
    float max = a->scratch->max[tile_row], sum = a->scratch->sum[tile_row];
    size_t length = a->mask.kv_length;
    if (max > -INFINITY && sum == 0.0f) { /* all scores are -inf: softmax of them is NaN */
        size_t head = a->first_head + row % a->group, query = row / a->group;
        size_t key = mha_mask_find(&a->mask, head, query, 0, length, true);
        while (key < length) {
            weights[key] = NAN;
            key = mha_mask_find(&a->mask, head, query, key + 1, length, true);
        }
    } else if (max > -INFINITY) {
        for (size_t key = 0; key < length; key += MHA_KEY_BLOCK) {
            float below = (history_of(a, key)[tile_row] - max) * a->factor;
            a->kernels->weights(mha_min(MHA_KEY_BLOCK, length - key), weights + key, below, sum);
        }
    }
    if (a->result == MHA_RESULT_MEAN_WEIGHTS) {
        add_to_mean(a, row, weights);
    }
}

void mha_give_scores(const struct mha_attend *a, size_t row, size_t first_key, size_t keys,
                     const float *scores, float scale, const struct mha_softmax_row *mask) {
    float *to = attention_row(a, row) + first_key;
    const struct mha_softmax kind = {.added = mask && (mask->bias || a->mask.slopes)};
    for (size_t j = 0; j < keys; j++) {
        to[j] = scores[j] * scale;
        if (mask && (j < mask->begin || j >= mask->end || mha_softmax_masked(&kind, mask, j))) {
            to[j] = -INFINITY;
        } else if (kind.added) {
            to[j] += mha_softmax_term(mask, j);
        }
    }
}

void mha_clear_results(const struct mha_attend *a) {
    bool mean = a->result == MHA_RESULT_MEAN_WEIGHTS;
    size_t heads = !mean ? a->group : a->first_head == 0 ? 1 : 0;
    for (size_t h = 0; h < heads; h++) {
        float *rows = mean ? a->attention : attention_row(a, h);
        for (size_t i = 0; i < a->q_len; i++) {
            size_t from = i >= a->mask.q_length            ? 0
                          : a->result >= MHA_RESULT_SCORES ? a->mask.kv_length
                                                           : a->kv_len;
            memset(rows + i * a->kv_len + from, 0, (a->kv_len - from) * sizeof *rows);
        }
    }
}
