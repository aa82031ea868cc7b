/* SPDX-License-Identifier: MIT
 *
 * Scalar packing of rows into panels of 16 columns.
 */
#include "vec.h"

void mha_scalar_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                     bool inputs) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        for (size_t c = 0; c < columns; c++) {
            for (size_t r = 0; r < MHA_PANEL; r++) {
                float x = r < filled ? source[(first + r) * stride + c] : 0.0f;
                *panels++ = inputs ? vec_flush(x) : x;
            }
        }
    }
}
