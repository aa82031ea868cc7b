/* SPDX-License-Identifier: MIT
 *
 * AVX2 transpose of rows into panels of 16 columns.
 */
#include "avx2.h"

/* Rows x[0 .. 7] of an 8 x 8 matrix become its columns. */
static ALWAYS_INLINE void transpose_8x8(__m256 x[8]) {
    __m256 pair[8], quad[8];
    UNROLLED
    for (size_t i = 0; i < 8; i += 2) { /* elements of two rows, alternating */
        pair[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    UNROLLED
    for (size_t i = 0; i < 8; i += 4) { /* of four rows */
        quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
        quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
    UNROLLED
    for (size_t i = 0; i < 4; i++) { /* halves */
        x[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

/* 8 source rows, of which the first `rows` exist, from column to 8 columns on, of which
 * `columns` exist; panel: of that column, at the half the rows belong to. */
static ALWAYS_INLINE void block(const float *source, size_t stride, size_t rows, size_t columns,
                                bool whole, float *panel) {
    __m256 x[LANES];
    const __m256i mask = lane_mask(0, 0, columns);
    UNROLLED
    for (size_t r = 0; r < LANES; r++) {
        x[r] = whole      ? _mm256_loadu_ps(source + r * stride)
               : r < rows ? _mm256_maskload_ps(source + r * stride, mask)
                          : _mm256_setzero_ps();
    }
    transpose_8x8(x);
    UNROLLED
    for (size_t c = 0; c < LANES; c++) {
        if (whole || c < columns) {
            _mm256_storeu_ps(panel + c * MHA_PANEL, x[c]);
        }
    }
}

void mha_avx2_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                        float *panels) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        size_t upper = filled < LANES ? filled : LANES; /* rows of the halves */
        size_t lower = filled - upper;
        const float *from = source + first * stride;
        size_t c = 0;
        /* 16 columns at a time: a cache line of a row is read once. */
        for (; filled == MHA_PANEL && c + MHA_PANEL <= columns; c += MHA_PANEL) {
            float *to = panels + c * MHA_PANEL;
            block(from + c, stride, LANES, LANES, true, to);
            block(from + c + LANES, stride, LANES, LANES, true, to + LANES * MHA_PANEL);
            const float *second = from + c + LANES * stride;
            block(second, stride, LANES, LANES, true, to + LANES);
            block(second + LANES, stride, LANES, LANES, true, to + LANES * MHA_PANEL + LANES);
        }
        for (; c < columns; c += LANES) {
            size_t left = columns - c < LANES ? columns - c : LANES;
            float *to = panels + c * MHA_PANEL;
            block(from + c, stride, upper, left, false, to);
            block(from + c + (lower > 0 ? LANES * stride : 0), stride, lower, left, false,
                  to + LANES);
        }
        panels += columns * MHA_PANEL;
    }
}
