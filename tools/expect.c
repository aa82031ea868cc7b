/* SPDX-License-Identifier: MIT
 *
 * The largest difference between an output and an expected array, in double.
 */
#include "expect.h"

#include <math.h>

struct difference expect_compare(const struct npy *expected, const float *output) {
    struct difference found = {0};
    for (size_t i = 0; i < expected->count; i++) {
        double want = element_float(&expected->element, npy_element(expected, i));
        double have = (double)output[i];
        double difference = fabs(have - want);
        if (have == want || (isnan(have) && isnan(want))) {
            difference = 0; /* equal infinities, too */
        } else if (isnan(difference)) {
            difference = INFINITY;
        }
        if (difference > found.largest) {
            found.largest = difference;
            found.index = i;
        }
        if (isfinite(want) && fabs(want) > found.scale) {
            found.scale = fabs(want);
        }
    }
    found.relative = found.largest == 0 ? 0 : found.largest / found.scale;
    return found;
}
