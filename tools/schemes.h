/* SPDX-License-Identifier: MIT
 *
 * The families of checkpoints, as one table of names. Knows nothing of files.
 */
#ifndef MHA_TOOL_SCHEMES_H
#define MHA_TOOL_SCHEMES_H

#include "names.h"

#define MAX_REFUSED ((size_t)3)
#define N_SCHEMES ((size_t)16)

struct scheme {
    const char *name;
    const char *weight[ROLES];        /* k and v NULL: packed into q's */
    const char *bias[ROLES];          /* each may be missing in a file; k and v NULL: packed */
    const char *refused[MAX_REFUSED]; /* tensors of computations that are not supported */
    bool transposed;
};

extern const struct scheme schemes[N_SCHEMES];

#endif
