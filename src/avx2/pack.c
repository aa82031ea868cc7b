/* SPDX-License-Identifier: MIT
 *
 * AVX2 packing of rows into panels of 16 columns.
 */
#include "vec.h"

/* Panels of so many floats and more don't stay in a cache: writing them past it saves
 * reading them first. */
#define LARGE ((size_t)1 << 20)

/* Four columns of eight source rows to eight columns of a panel. Unless whole, only the first
 * `rows` and `columns` of them exist; missing rows become zeros. inputs: so do subnormals. */
static ALWAYS_INLINE void four_columns(const float *source, size_t stride, size_t rows,
                                       size_t columns, bool whole, bool inputs, float *panel) {
    const __m128i mask = _mm_cmpgt_epi32(_mm_set1_epi32((int)columns), _mm_setr_epi32(0, 1, 2, 3));
    __asm__("" : "+r"(source)); /* or gcc keeps the rows' addresses of many blocks */
    __m256 x[4];
    UNROLLED
    for (size_t r = 0; r < 4; r++) {
        if (whole) {
            x[r] = _mm256_set_m128(_mm_loadu_ps(source + (r + 4) * stride),
                                   _mm_loadu_ps(source + r * stride));
        } else {
            __m128 low = _mm_setzero_ps(), high = low;
            if (r < rows) {
                low = _mm_maskload_ps(source + r * stride, mask);
            }
            if (r + 4 < rows) {
                high = _mm_maskload_ps(source + (r + 4) * stride, mask);
            }
            x[r] = _mm256_set_m128(high, low);
        }
    }
    __m256 low01 = _mm256_unpacklo_ps(x[0], x[1]), high01 = _mm256_unpackhi_ps(x[0], x[1]);
    __m256 low23 = _mm256_unpacklo_ps(x[2], x[3]), high23 = _mm256_unpackhi_ps(x[2], x[3]);
    __m256 column[4] = {
        _mm256_shuffle_ps(low01, low23, 0x44),
        _mm256_shuffle_ps(low01, low23, 0xee),
        _mm256_shuffle_ps(high01, high23, 0x44),
        _mm256_shuffle_ps(high01, high23, 0xee),
    };
    UNROLLED
    for (size_t c = 0; c < 4; c++) {
        if (whole || c < columns) {
            column[c] = inputs ? vec_flush(column[c]) : column[c];
            vec_store(panel + c * MHA_PANEL, column[c]);
        }
    }
}

/* 16 columns of 16 source rows, so that a cache line of the source is read once. */
static ALWAYS_INLINE void square(const float *source, size_t stride, bool inputs, float *panel) {
    UNROLLED
    for (size_t c = 0; c < MHA_PANEL; c += 4) {
        four_columns(source + c, stride, LANES, 4, true, inputs, panel + c * MHA_PANEL);
    }
    source += LANES * stride;
    UNROLLED
    for (size_t c = 0; c < MHA_PANEL; c += 4) {
        four_columns(source + c, stride, LANES, 4, true, inputs, panel + c * MHA_PANEL + LANES);
    }
}

/* The same for an aligned panel that won't be read soon. */
static ALWAYS_INLINE void square_past_cache(const float *source, size_t stride, bool inputs,
                                            float *panel) {
    _Alignas(64) float square_panel[MHA_PANEL * MHA_PANEL];
    square(source, stride, inputs, square_panel);
    UNROLLED
    for (size_t i = 0; i < MHA_PANEL * MHA_PANEL; i += LANES) {
        _mm256_stream_ps(panel + i, _mm256_load_ps(square_panel + i));
    }
}

/* Fetches the 16 lines that the same columns will read a panel later: rows far apart are no
 * stream that the hardware follows. */
static ALWAYS_INLINE void fetch(const float *next, size_t stride) {
    UNROLLED
    for (size_t r = 0; r < MHA_PANEL; r++) {
        _mm_prefetch((const char *)(next + r * stride), _MM_HINT_T0);
    }
}

static ALWAYS_INLINE void pack(size_t rows, size_t columns, const float *source, size_t stride,
                               float *panels, bool past_cache, bool inputs) {
    for (size_t first = 0; first < rows; first += MHA_PANEL) {
        size_t filled = rows - first < MHA_PANEL ? rows - first : MHA_PANEL;
        size_t upper = filled < LANES ? filled : LANES; /* rows of the halves */
        size_t lower = filled - upper;
        const float *from = source + first * stride;
        size_t c = 0;
        for (; filled == MHA_PANEL && c + MHA_PANEL <= columns; c += MHA_PANEL) {
            fetch(from + MHA_PANEL * stride + c, stride);
            if (past_cache) {
                square_past_cache(from + c, stride, inputs, panels + c * MHA_PANEL);
            } else {
                square(from + c, stride, inputs, panels + c * MHA_PANEL);
            }
        }
        for (; c < columns; c += 4) {
            size_t left = columns - c < 4 ? columns - c : 4;
            float *to = panels + c * MHA_PANEL;
            four_columns(from + c, stride, upper, left, false, inputs, to);
            four_columns(from + c + (lower > 0 ? LANES * stride : 0), stride, lower, left, false,
                         inputs, to + LANES);
        }
        panels += columns * MHA_PANEL;
    }
}

void mha_avx2_pack(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                   bool inputs) {
    bool past_cache = rows > 0 && columns >= LARGE / rows && (uintptr_t)panels % 32 == 0;
    if (past_cache && inputs) {
        pack(rows, columns, source, stride, panels, true, true);
        _mm_sfence();
    } else if (inputs) {
        pack(rows, columns, source, stride, panels, false, true);
    } else {
        pack(rows, columns, source, stride, panels, false, false);
    }
}
