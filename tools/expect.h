/* SPDX-License-Identifier: MIT
 *
 * Holding an output against the array that was expected.
 */
#ifndef MHA_TOOL_EXPECT_H
#define MHA_TOOL_EXPECT_H

#include "npy.h"

struct difference {
    double largest;  /* |output - expected|; infinite where only one of them is NaN */
    double scale;    /* largest finite |expected| */
    double relative; /* largest / scale; 0 for 0 / 0 */
    size_t index;    /* of the largest, in C order */
};

/* output has the expected array's shape. NaN equals NaN. */
struct difference expect_compare(const struct npy *expected, const float *output);

#endif
