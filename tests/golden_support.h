/* SPDX-License-Identifier: MIT
 *
 * What the tests against PyTorch share: inputs from the integer generator (the twin of
 * golden/values.py), outputs that show where they weren't written, and the comparison with
 * an expected .npy file. Knows nothing of layers, masks or cases.
 */
#ifndef MHA_GOLDEN_SUPPORT_H
#define MHA_GOLDEN_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

/* The folder of the expected files; a string that lives as long as the tests. */
void golden_set_folder(const char *folder);

/* "<folder>/<file>", to free by golden_free(). */
const char *golden_path(const char *file);

/* Hands over allocated memory, so that golden_free() frees it. Fails the test on NULL. */
void *golden_keep(void *memory);

/* Frees everything that functions of this file returned or were handed: for a teardown. */
void golden_free(void);

/* Element `index` of tensor "query", "key", "value", "q", "k", "v", "o", "q_bias", "k_bias",
 * "v_bias", "o_bias", "keep" or "bias" of a name: 64 uniform bits. */
uint64_t golden_integer(const char *name, const char *tensor, size_t index);

/* The first elements of such a tensor as exact floats: the topmost `bits` bits of each
 * integer, scaled to [-2^exponent, 2^exponent). */
float *golden_floats(const char *name, const char *tensor, size_t count, int exponent, int bits);
float golden_float(const char *name, const char *tensor, size_t index, int exponent, int bits);

/* Room for `count` floats, prefilled with NaN, and a canary behind them. */
float *golden_output(size_t count);

/* Fails the test if any of a golden_output() is NaN, or if the canary changed. `name` is for
 * the message. */
void golden_check_output(const char *name, const float *output, size_t count);

/* Compares actual[groups][q_len][width], from golden_output(), with the float64 array in
 * "<folder>/<file>", of which each step-th of the q_len rows is there. Fails the test if an
 * element differs by more than `tolerance` times the largest expected magnitude, or if
 * golden_check_output() does. Prints the largest error. */
void golden_compare(const char *file, const float *actual, size_t groups, size_t q_len,
                    size_t width, size_t step, double tolerance);

#endif
