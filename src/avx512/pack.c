/* SPDX-License-Identifier: MIT
 *
 * AVX-512 packing of rows into panels of 16 columns.
 */
#include "vec.h"

/* Panels of so many floats and more don't stay in a cache: writing them past it saves
 * reading them first. */
#define LARGE ((size_t)1 << 20)

/* Four columns of a source row; unless whole, zeros for those that don't exist. */
static ALWAYS_INLINE __m128 load(const float *source, size_t stride, size_t row, size_t rows,
                                 size_t columns, bool whole) {
    if (whole) {
        return _mm_loadu_ps(source + row * stride);
    }
    if (row < rows) {
        return _mm_maskz_loadu_ps((__mmask8)(first_lanes(columns) & 0xf), source + row * stride);
    }
    return _mm_setzero_ps();
}

/* Four columns of 16 source rows to four columns of a panel. Unless whole, only the first
 * `rows` and `columns` of them exist; missing rows become zeros. inputs: so do subnormals. */
static ALWAYS_INLINE void four_columns(const float *source, size_t stride, size_t rows,
                                       size_t columns, bool whole, bool past_cache, bool inputs,
                                       float *panel) {
    __asm__("" : "+r"(source)); /* or gcc keeps the rows' addresses of many blocks */
    /* Rows r, r + 4, r + 8, r + 12 side by side: a 4x4 transpose in each quarter is all. */
    __m512 x[4];
    UNROLLED
    for (size_t r = 0; r < 4; r++) {
        x[r] = _mm512_castps128_ps512(load(source, stride, r, rows, columns, whole));
        x[r] = _mm512_insertf32x4(x[r], load(source, stride, r + 4, rows, columns, whole), 1);
        x[r] = _mm512_insertf32x4(x[r], load(source, stride, r + 8, rows, columns, whole), 2);
        x[r] = _mm512_insertf32x4(x[r], load(source, stride, r + 12, rows, columns, whole), 3);
    }
    __m512 low01 = _mm512_unpacklo_ps(x[0], x[1]), high01 = _mm512_unpackhi_ps(x[0], x[1]);
    __m512 low23 = _mm512_unpacklo_ps(x[2], x[3]), high23 = _mm512_unpackhi_ps(x[2], x[3]);
    __m512 column[4] = {
        _mm512_shuffle_ps(low01, low23, 0x44),
        _mm512_shuffle_ps(low01, low23, 0xee),
        _mm512_shuffle_ps(high01, high23, 0x44),
        _mm512_shuffle_ps(high01, high23, 0xee),
    };
    UNROLLED
    for (size_t c = 0; c < 4; c++) {
        column[c] = inputs ? vec_flush(column[c]) : column[c];
        if (past_cache) {
            _mm512_stream_ps(panel + c * MHA_PANEL, column[c]);
        } else if (whole || c < columns) {
            _mm512_storeu_ps(panel + c * MHA_PANEL, column[c]);
        }
    }
}

/* Fetches a quarter of the 16 lines that four turns over c will read a panel later: rows far apart
 * are no stream that the hardware follows. */
static ALWAYS_INLINE void fetch(const float *next, size_t stride, size_t c) {
    const char *line = (const char *)(next + c % MHA_PANEL * stride + c / MHA_PANEL * MHA_PANEL);
    UNROLLED
    for (size_t r = 0; r < 4; r++) {
        _mm_prefetch(line + r * stride * sizeof *next, _MM_HINT_T0);
    }
}

static ALWAYS_INLINE void pack(size_t rows, size_t columns, const float *source, size_t stride,
                               float *panels, bool past_cache, bool inputs) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        const float *from = source + first * stride;
        size_t c = 0;
        for (; filled == MHA_PANEL && c + 4 <= columns; c += 4) {
            fetch(from + MHA_PANEL * stride, stride, c);
            four_columns(from + c, stride, MHA_PANEL, 4, true, past_cache, inputs,
                         panels + c * MHA_PANEL);
        }
        for (; c < columns; c += 4) {
            size_t left = columns - c < 4 ? columns - c : 4;
            four_columns(from + c, stride, filled, left, false, false, inputs,
                         panels + c * MHA_PANEL);
        }
        panels += columns * MHA_PANEL;
    }
}

void mha_avx512_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                     bool inputs) {
    bool past_cache = rows > 0 && columns >= LARGE / rows && (uintptr_t)panels % 64 == 0;
    if (past_cache && inputs) {
        pack(rows, columns, source, stride, panels, true, true);
        _mm_sfence();
    } else if (inputs) {
        pack(rows, columns, source, stride, panels, false, true);
    } else {
        pack(rows, columns, source, stride, panels, false, false);
    }
}
