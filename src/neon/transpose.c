/* SPDX-License-Identifier: MIT
 *
 * NEON transpose of rows into panels of 16 columns, four by four in registers.
 */
#include "neon.h"

/* source[4][4] to four columns of panel[4][16]. */
static inline void transpose_4x4(const float *source, size_t stride, float *panel) {
    float32x4_t r0 = vld1q_f32(source);
    float32x4_t r1 = vld1q_f32(source + stride);
    float32x4_t r2 = vld1q_f32(source + 2 * stride);
    float32x4_t r3 = vld1q_f32(source + 3 * stride);
    float32x4_t low02 = vzip1q_f32(r0, r2), high02 = vzip2q_f32(r0, r2);
    float32x4_t low13 = vzip1q_f32(r1, r3), high13 = vzip2q_f32(r1, r3);
    vst1q_f32(panel, vzip1q_f32(low02, low13));
    vst1q_f32(panel + MHA_PANEL, vzip2q_f32(low02, low13));
    vst1q_f32(panel + 2 * MHA_PANEL, vzip1q_f32(high02, high13));
    vst1q_f32(panel + 3 * MHA_PANEL, vzip2q_f32(high02, high13));
}

/* Up to 16 rows to one panel. */
static void transpose_panel(size_t rows, size_t columns, const float *source, size_t stride,
                            float *panel) {
    size_t c = 0;
    if (rows == MHA_PANEL) {
        for (; c + 4 <= columns; c += 4) {
            for (size_t r = 0; r < MHA_PANEL; r += 4) {
                transpose_4x4(source + r * stride + c, stride, panel + c * MHA_PANEL + r);
            }
        }
    }
    for (; c < columns; c++) {
        for (size_t r = 0; r < MHA_PANEL; r++) {
            panel[c * MHA_PANEL + r] = r < rows ? source[r * stride + c] : 0.0f;
        }
    }
}

void mha_neon_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                        float *panels) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        transpose_panel(filled, columns, source + first * stride, stride, panels + first * columns);
    }
}
