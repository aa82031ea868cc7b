/* SPDX-License-Identifier: MIT
 *
 * AVX2 GEMM kernel: a tile of C in registers, one fma chain per element in ascending order
 * of depth. It knows nothing of tiling; ../linear.c and ../attend.c cut the work into calls.
 */
#include "vec.h"

/* The largest tile: 6 x 16 is 12 chains, and fits 16 registers with two vectors of B and one
 * value of A. Two FMA units of latency 4 need 8 chains, but with no more than that each
 * delay is lost for good. Fewer rows take more vectors of B at once. */
enum { MAX_ROWS = 6, MAX_VECTORS = 8 };

/* Bytes from B to what is prefetched where the caller gives no better hint: enough for
 * memory's latency, and across pages, which the hardware's prefetching ends at. */
enum { PREFETCH = 8192 };

/* Keeps gcc from using x straight from memory, again at each use. */
static ALWAYS_INLINE __m256 in_register(__m256 x) {
    __asm__("" : "+x"(x));
    return x;
}

/* acc += a * b for one step over depth; a: element d of each row; b: of the first vector's
 * panel; half: 1 if the first vector is its right half. */
static ALWAYS_INLINE void step(const float *const *a, ptrdiff_t d, const float *b,
                               size_t panel_step, size_t half, size_t rows, size_t vectors,
                               __m256 acc[MAX_ROWS][MAX_VECTORS]) {
    __m256 value[MAX_ROWS], row[MAX_VECTORS];
    if (rows < vectors) { /* A's values stay in registers, B's pass by */
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            value[i] = _mm256_broadcast_ss(a[i] + d);
        }
        UNROLLED
        for (size_t j = half; j < half + vectors; j++) {
            __m256 x = _mm256_loadu_ps(b + j / 2 * panel_step + j % 2 * LANES);
            row[j - half] = rows > 1 ? in_register(x) : x;
            UNROLLED
            for (size_t i = 0; i < rows; i++) {
                acc[i][j - half] = _mm256_fmadd_ps(value[i], row[j - half], acc[i][j - half]);
            }
        }
    } else {
        UNROLLED
        for (size_t j = half; j < half + vectors; j++) {
            row[j - half] = _mm256_loadu_ps(b + j / 2 * panel_step + j % 2 * LANES);
        }
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            value[i] = _mm256_broadcast_ss(a[i] + d);
            UNROLLED
            for (size_t j = 0; j < vectors; j++) {
                acc[i][j] = _mm256_fmadd_ps(value[i], row[j], acc[i][j]);
            }
        }
    }
}

/* C[rows][8 * vectors] at column; where partial, C ends within the last two vectors. All but
 * g and column are constants where it is inlined. */
static ALWAYS_INLINE void tile(const struct mha_gemm *g, size_t column, size_t half, size_t rows,
                               size_t vectors, bool partial) {
    size_t whole = partial ? vectors - 2 : vectors, depth = g->depth;
    const __m256i mask[2] = {
        lane_mask(column + whole * LANES, 0, g->columns),
        lane_mask(column + whole * LANES + LANES, 0, g->columns),
    };
    const float *a[MAX_ROWS];
    __m256 acc[MAX_ROWS][MAX_VECTORS];
    UNROLLED
    for (size_t i = 0; i < rows; i++) {
        a[i] = g->a + i * g->a_stride + depth; /* its end */
        __asm__("" : "+r"(a[i]));              /* or it is computed again at each step */
        UNROLLED
        for (size_t j = 0; j < vectors; j++) {
            acc[i][j] = _mm256_setzero_ps();
        }
    }
    if (g->start) {
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            const float *start = g->start + i * g->start_stride + column;
            UNROLLED
            for (size_t j = 0; j < vectors; j++) {
                acc[i][j] = j < whole ? _mm256_loadu_ps(start + j * LANES)
                                      : _mm256_maskload_ps(start + j * LANES, mask[j - whole]);
            }
        }
    }
    float *c = g->c + column; /* here, for the compiler doesn't know that no store changes *g */
    size_t c_stride = g->c_stride;
    size_t first = column / MHA_PANEL * g->b.panel_step;
    const float *b = (const float *)g->b.data + first;
    size_t b_step = g->b.step, panel_step = g->b.panel_step;
    uintptr_t ahead = (uintptr_t)b + PREFETCH;
    size_t ahead_step = b_step * sizeof *b;
    if (g->prefetch) {
        ahead = g->prefetch + first * sizeof *b;
        ahead_step = g->prefetch_step;
    }
    /* From minus depth up to 0, which takes no comparison. */
    for (ptrdiff_t d = -(ptrdiff_t)depth; d != 0; d++) {
        __asm__("" : "+r"(d)); /* one index for all rows, not a pointer to move for each */
        step(a, d, b, panel_step, half, rows, vectors, acc);
        _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        ahead += ahead_step;
        b += b_step;
    }
    UNROLLED
    for (size_t i = 0; i < rows; i++) {
        UNROLLED
        for (size_t j = 0; j < whole; j++) {
            _mm256_storeu_ps(c + j * LANES, acc[i][j]);
        }
        UNROLLED
        for (size_t j = whole; j < vectors; j++) {
            _mm256_maskstore_ps(c + j * LANES, mask[j - whole], acc[i][j]);
        }
        c += c_stride;
    }
}

/* The columns of C from one on, so many panels at a time. */
static ALWAYS_INLINE void tiles(const struct mha_gemm *g, size_t column, size_t rows,
                                size_t panels) {
    for (; column + panels * MHA_PANEL <= g->columns; column += panels * MHA_PANEL) {
        tile(g, column, 0, rows, 2 * panels, false);
    }
    size_t left = (g->columns - column + MHA_PANEL - 1) / MHA_PANEL;
    if (left == 1) {
        tile(g, column, 0, rows, 2, true);
    } else if (left == 2 && panels > 1) {
        tile(g, column, 0, rows, 4, true);
    } else if (left == 3 && panels > 2) {
        tile(g, column, 0, rows, 6, true);
    } else if (left == 4 && panels > 3) {
        tile(g, column, 0, rows, 8, true);
    }
}

/* Four rows take one and a half panels at a time. */
static void four_rows(const struct mha_gemm *g) {
    size_t column = 0;
    for (; column + 3 * MHA_PANEL <= g->columns; column += 3 * MHA_PANEL) {
        tile(g, column, 0, 4, 3, false);
        tile(g, column + MHA_PANEL + LANES, 1, 4, 3, false);
    }
    tiles(g, column, 4, 1);
}

void mha_avx2_gemm(const struct mha_gemm *g) {
    switch (g->rows) {
    case 1:
        tiles(g, 0, 1, 4);
        break;
    case 2:
        tiles(g, 0, 2, 2);
        break;
    case 3:
        tiles(g, 0, 3, 2);
        break;
    case 4:
        four_rows(g);
        break;
    case 5:
        tiles(g, 0, 5, 1);
        break;
    default:
        tiles(g, 0, 6, 1);
        break;
    }
}
