/* SPDX-License-Identifier: MIT
 *
 * Scalar GEMM kernel: one fma chain per element of C, in ascending order of depth.
 * It knows nothing of tiling; ../linear.c and ../attend.c cut the work into calls.
 */
#include "vec.h"

/* Register tiles are 2x4 and, for a single row, 1x8: 8 chains keep two FMA units of latency 4
 * busy, and with the values of A and B they fit 16 registers. */
enum { MOST_ROWS = 2, MOST_COLUMNS = 8 };

/* C[rows][columns] at column of C; rows and columns are constants where it is inlined. */
static inline void tile(const struct mha_gemm *g, size_t row, size_t column, size_t rows,
                        size_t columns) {
    const float *a = g->a + row * g->a_stride;
    const float *b = g->b.data;
    b += column / MHA_PANEL * g->b.panel_step + column % MHA_PANEL;
    size_t a_stride = g->a_stride;
    size_t b_step = g->b.step;
    float acc[MOST_ROWS][MOST_COLUMNS];
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            acc[i][j] = g->start ? g->start[(row + i) * g->start_stride + column + j] : 0.0f;
        }
    }
    for (size_t d = g->depth; d > 0; d--) {
        for (size_t i = 0; i < rows; i++) {
            for (size_t j = 0; j < columns; j++) {
                acc[i][j] = mha_fma(a[i * a_stride], b[j], acc[i][j]);
            }
        }
        a++;
        b += b_step;
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            g->c[(row + i) * g->c_stride + column + j] = acc[i][j];
        }
    }
}

void mha_scalar_gemm(const struct mha_gemm *g) {
    size_t pairs = g->rows / 2 * 2;
    size_t column = 0;
    for (; column + 8 <= g->columns; column += 8) {
        for (size_t row = 0; row < pairs; row += 2) {
            tile(g, row, column, 2, 4);
            tile(g, row, column + 4, 2, 4);
        }
        if (pairs < g->rows) {
            tile(g, pairs, column, 1, 8);
        }
    }
    for (; column < g->columns; column++) {
        for (size_t row = 0; row < g->rows; row++) {
            tile(g, row, column, 1, 1);
        }
    }
}
