/* SPDX-License-Identifier: MIT
 *
 * What the engine gives beside its output: weights, their mean over heads, scores.
 */
#ifndef MHA_ATTEND_RESULTS_H
#define MHA_ATTEND_RESULTS_H

#include "attend.h"

/* Weights: zeros for rows first .. first + count - 1, a whole tile, before their first block. */
void mha_clear_weights(const struct mha_attend *attend, size_t first, size_t count);

/* Weights: what a block gives for rows first .. first + count - 1, relative to its maxima; row
 * `first` is row tile_row of the tile. */
void mha_keep_weights(const struct mha_attend *attend, size_t first, size_t count, size_t tile_row,
                      size_t first_key, size_t keys, const float *max);

/* Weights: a row, after its last block. */
void mha_finish_weights(const struct mha_attend *attend, size_t row, size_t tile_row);

/* Scores of a row, times scale; with the terms and masks of mask unless it is NULL. */
void mha_give_scores(const struct mha_attend *attend, size_t row, size_t first_key, size_t keys,
                     const float *scores, float scale, const struct mha_softmax_row *mask);

/* Zeros for queries from the sequence's length on and, in scores, for keys from its length on. */
void mha_clear_results(const struct mha_attend *attend);

#endif
