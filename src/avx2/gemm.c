/* SPDX-License-Identifier: MIT
 *
 * AVX2 GEMM kernel: a tile of C in registers, one fma chain per element in ascending order
 * of depth. It knows nothing of blocking; gemm.c one folder up cuts the work into calls.
 */
#include "avx2.h"

/* Two FMA units of latency 4 need 8 chains. 6 x 16 has 12, and fits 16 registers with two
 * vectors of B and one value of A. Fewer rows take more panels at once. */
enum { MAX_ROWS = 6, MAX_PANELS = 4 };

/* acc += a * b for one step over depth, a being rows[i][d]. */
static ALWAYS_INLINE void step(const float *const *a, size_t d, const float *b,
                               size_t b_panel_stride, size_t rows, size_t panels,
                               __m256 acc[MAX_ROWS][2 * MAX_PANELS]) {
    if (rows < 2 * panels) { /* what is fewer stays in registers */
        __m256 value[MAX_ROWS];
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            value[i] = _mm256_broadcast_ss(a[i] + d);
        }
        UNROLLED
        for (size_t j = 0; j < 2 * panels; j++) {
            __m256 row = _mm256_loadu_ps(b + j / 2 * b_panel_stride + j % 2 * LANES);
            UNROLLED
            for (size_t i = 0; i < rows; i++) {
                acc[i][j] = _mm256_fmadd_ps(value[i], row, acc[i][j]);
            }
        }
    } else {
        __m256 left = _mm256_loadu_ps(b);
        __m256 right = _mm256_loadu_ps(b + LANES);
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            __m256 value = _mm256_broadcast_ss(a[i] + d);
            acc[i][0] = _mm256_fmadd_ps(value, left, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(value, right, acc[i][1]);
        }
    }
}

/* C[rows][16 * panels] at column; where partial, the last panel has less than 16 columns of
 * C. All but g and column are constants where it is inlined. */
static ALWAYS_INLINE void tile(const struct mha_gemm *g, size_t column, size_t rows,
                               size_t panels, bool partial) {
    size_t vectors = 2 * panels, whole = partial ? vectors - 2 : vectors;
    const __m256i mask[2] = {
        lane_mask(column + whole * LANES, 0, g->columns),
        lane_mask(column + whole * LANES + LANES, 0, g->columns),
    };
    __m256 acc[MAX_ROWS][2 * MAX_PANELS];
    UNROLLED
    for (size_t i = 0; i < rows; i++) {
        const float *start = g->start ? g->start + i * g->start_stride + column : NULL;
        UNROLLED
        for (size_t j = 0; j < vectors; j++) {
            acc[i][j] = !start      ? _mm256_setzero_ps()
                        : j < whole ? _mm256_loadu_ps(start + j * LANES)
                                    : _mm256_maskload_ps(start + j * LANES, mask[j % 2]);
        }
    }
    const float *a[MAX_ROWS];
    UNROLLED
    for (size_t i = 0; i < rows; i++) {
        a[i] = g->a + i * g->a_stride;
    }
    const float *b = g->b + column / MHA_PANEL * g->b_panel_stride;
    size_t b_stride = g->b_stride, b_panel_stride = g->b_panel_stride, depth = g->depth;
    for (size_t d = 0; d < depth; d++) {
        step(a, d, b, b_panel_stride, rows, panels, acc);
        b += b_stride;
    }
    UNROLLED
    for (size_t i = 0; i < rows; i++) {
        float *c = g->c + i * g->c_stride + column;
        UNROLLED
        for (size_t j = 0; j < whole; j++) {
            _mm256_storeu_ps(c + j * LANES, acc[i][j]);
        }
        UNROLLED
        for (size_t j = whole; j < vectors; j++) {
            _mm256_maskstore_ps(c + j * LANES, mask[j % 2], acc[i][j]);
        }
    }
}

/* All columns of C, in tiles of so many panels. */
static ALWAYS_INLINE void tiles(const struct mha_gemm *g, size_t rows, size_t panels) {
    size_t column = 0;
    for (; column + panels * MHA_PANEL <= g->columns; column += panels * MHA_PANEL) {
        tile(g, column, rows, panels, false);
    }
    size_t left = (g->columns - column + MHA_PANEL - 1) / MHA_PANEL;
    if (left == 1) {
        tile(g, column, rows, 1, true);
    } else if (left == 2 && panels >= 2) {
        tile(g, column, rows, 2, true);
    } else if (left == 3 && panels >= 3) {
        tile(g, column, rows, 3, true);
    } else if (left == 4 && panels >= 4) {
        tile(g, column, rows, 4, true);
    }
}

void mha_avx2_gemm(const struct mha_gemm *g) {
    switch (g->rows) {
    case 1:
        tiles(g, 1, 4);
        break;
    case 2:
        tiles(g, 2, 2);
        break;
    case 3:
        tiles(g, 3, 2);
        break;
    case 4:
        tiles(g, 4, 1);
        break;
    case 5:
        tiles(g, 5, 1);
        break;
    default:
        tiles(g, 6, 1);
        break;
    }
}
