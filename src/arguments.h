/* SPDX-License-Identifier: MIT
 *
 * Checking the arguments of the computing calls: everything that can be wrong is found
 * before anything is written.
 */
#ifndef MHA_ARGUMENTS_H
#define MHA_ARGUMENTS_H

#include "mha.h"

/* Both fill in defaults in place: pass a copy of the caller's struct. */
mha_status mha_check_forward(const mha_config *config, mha_forward_args *args);
mha_status mha_check_attention(mha_attention_args *args);

/* 1 / sqrt(head_dim), rounded from binary64. */
float mha_default_scale(size_t head_dim);

#endif
