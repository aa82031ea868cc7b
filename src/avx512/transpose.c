/* SPDX-License-Identifier: MIT
 *
 * AVX-512 transpose of rows into panels of 16 columns.
 */
#include "avx512.h"

/* Up to 4 columns of 16 rows become 4 panel rows. The four registers have source rows
 * k, k + 4, k + 8, k + 12 in their quarters, so that a 4x4 transpose in each quarter is all. */
static ALWAYS_INLINE void store_columns(__m512 row0, __m512 row1, __m512 row2, __m512 row3,
                                        size_t columns, float *panel) {
    __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(row0, row1));
    __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(row2, row3));
    __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(row0, row1));
    __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(row2, row3));
    __m512d column[4] = {
        _mm512_unpacklo_pd(low01, low23),
        _mm512_unpackhi_pd(low01, low23),
        _mm512_unpacklo_pd(high01, high23),
        _mm512_unpackhi_pd(high01, high23),
    };
    UNROLLED
    for (size_t c = 0; c < 4; c++) {
        if (c < columns) {
            _mm512_storeu_ps(panel + c * MHA_PANEL, _mm512_castpd_ps(column[c]));
        }
    }
}

/* rows <= 16 rows of columns <= 16 columns; both are 16 where it has to be fast. */
static ALWAYS_INLINE void transpose_block(size_t rows, size_t columns, const float *source,
                                          size_t stride, float *panel) {
    /* [columns / 4][rows % 4] */
    __m512 part[4][4];
    UNROLLED
    for (size_t r = 0; r < MHA_PANEL; r++) {
        UNROLLED
        for (size_t c = 0; c < MHA_PANEL; c += 4) {
            __mmask8 lanes = 0;
            if (r < rows && c < columns) {
                lanes = (__mmask8)(first_lanes(columns - c) & 0xf);
            }
            __m128 four = _mm_maskz_loadu_ps(lanes, source + (r < rows ? r * stride : 0) + c);
            __m512 *to = &part[c / 4][r % 4];
            switch (r / 4) {
            case 0:
                *to = _mm512_castps128_ps512(four);
                break;
            case 1:
                *to = _mm512_insertf32x4(*to, four, 1);
                break;
            case 2:
                *to = _mm512_insertf32x4(*to, four, 2);
                break;
            default:
                *to = _mm512_insertf32x4(*to, four, 3);
                break;
            }
        }
    }
    UNROLLED
    for (size_t c = 0; c < MHA_PANEL; c += 4) {
        if (c < columns) {
            const __m512 *p = part[c / 4];
            store_columns(p[0], p[1], p[2], p[3], columns - c, panel + c * MHA_PANEL);
        }
    }
}

void mha_avx512_transpose(size_t rows, size_t columns, const float *source, size_t stride,
                          float *panels) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        const float *from = source + first * stride;
        size_t c = 0;
        for (; filled == MHA_PANEL && c + MHA_PANEL <= columns; c += MHA_PANEL) {
            transpose_block(MHA_PANEL, MHA_PANEL, from + c, stride, panels + c * MHA_PANEL);
        }
        for (; c < columns; c += MHA_PANEL) {
            size_t left = columns - c < MHA_PANEL ? columns - c : MHA_PANEL;
            transpose_block(filled, left, from + c, stride, panels + c * MHA_PANEL);
        }
        panels += columns * MHA_PANEL;
    }
}
