/* SPDX-License-Identifier: MIT
 *
 * Checking the arguments of the computing calls: everything that can be wrong is found
 * before anything is written.
 */
#ifndef MHA_CHECKS_H
#define MHA_CHECKS_H

#include <stdbool.h>

#include "mha.h"

/* Both fill in defaults in place: pass a copy of the caller's struct. projects: the layer has an
 * output projection. */
mha_status mha_check_forward(const mha_config *config, bool projects, mha_forward_args *args);
mha_status mha_check_attention(mha_attention_args *args);

/* The part of it that is about sizes and numbers; strides and pointers are left alone. */
mha_status mha_complete_attention(mha_attention_args *args);

mha_status mha_check_softmax(float scale, float softcap, mha_masked_rows masked_rows);
mha_status mha_check_sinks(const char *name, const float *sinks, size_t n_heads);

/* 1 / sqrt(head_dim), rounded from binary64. */
float mha_default_scale(size_t head_dim);

#endif
