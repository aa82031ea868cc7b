/* SPDX-License-Identifier: MIT
 *
 * The families of checkpoints, as one table of names. Knows no file.
 */
#ifndef MHA_TOOL_SCHEMES_H
#define MHA_TOOL_SCHEMES_H

#include "names.h"

#define MAX_SPELLINGS ((size_t)4)
#define MAX_REFUSED ((size_t)3)
#define N_SCHEMES ((size_t)12)

struct scheme {
    const char *name;
    const char *weight[ROLES]; /* k and v NULL: packed into q's */
    /* Biases are spelled in one of these ways, however the weights are. Each bias may be
     * missing in a file; k and v NULL: packed. */
    const char *bias[MAX_SPELLINGS][ROLES];
    const char *refused[MAX_REFUSED]; /* part of the computation that we don't do */
    bool transposed;
    bool any_case; /* of the letters at 0 and 2, as in W_q, w_q, W_Q */
};

extern const struct scheme schemes[N_SCHEMES];

#endif
