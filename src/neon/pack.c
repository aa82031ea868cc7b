/* SPDX-License-Identifier: MIT
 *
 * NEON packing of rows into panels of 16 columns, four by four in registers.
 */
#include "vec.h"

/* source[4][4] to four columns of panel[4][16]. inputs: subnormals become zeros. */
static ALWAYS_INLINE void four_columns(const float *source, size_t stride, bool inputs,
                                       float *panel) {
    float32x4_t r0 = vld1q_f32(source);
    float32x4_t r1 = vld1q_f32(source + stride);
    float32x4_t r2 = vld1q_f32(source + 2 * stride);
    float32x4_t r3 = vld1q_f32(source + 3 * stride);
    float32x4_t low02 = vzip1q_f32(r0, r2), high02 = vzip2q_f32(r0, r2);
    float32x4_t low13 = vzip1q_f32(r1, r3), high13 = vzip2q_f32(r1, r3);
    const vec column[4] = {
        vzip1q_f32(low02, low13),
        vzip2q_f32(low02, low13),
        vzip1q_f32(high02, high13),
        vzip2q_f32(high02, high13),
    };
    UNROLLED
    for (size_t c = 0; c < 4; c++) {
        vec_store(panel + c * MHA_PANEL, inputs ? vec_flush(column[c]) : column[c]);
    }
}

static float flushed(float x, bool inputs) {
    return inputs && (x < FLT_MIN && x > -FLT_MIN) ? 0.0f : x;
}

/* Up to 16 rows to one panel. */
static ALWAYS_INLINE void pack_panel(size_t rows, size_t columns, const float *source,
                                     size_t stride, float *panel, bool inputs) {
    size_t c = 0;
    if (rows == MHA_PANEL) {
        for (; c + 4 <= columns; c += 4) {
            for (size_t r = 0; r < MHA_PANEL; r += 4) {
                four_columns(source + r * stride + c, stride, inputs, panel + c * MHA_PANEL + r);
            }
        }
    }
    for (; c < columns; c++) {
        for (size_t r = 0; r < MHA_PANEL; r++) {
            panel[c * MHA_PANEL + r] = r < rows ? flushed(source[r * stride + c], inputs) : 0.0f;
        }
    }
}

void mha_neon_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                   bool inputs) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        const float *from = source + first * stride;
        if (inputs) {
            pack_panel(filled, columns, from, stride, panels + first * columns, true);
        } else {
            pack_panel(filled, columns, from, stride, panels + first * columns, false);
        }
    }
}
