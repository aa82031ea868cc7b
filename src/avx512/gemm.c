/* SPDX-License-Identifier: MIT
 *
 * AVX-512 GEMM kernel: one fma chain per element of C, in ascending order of depth.
 * It knows nothing of tiling; ../linear.c and ../attend.c cut the work into calls.
 */
#include "vec.h"

/* The largest tiles in rows and in panels; not both at once. */
enum { TILE_ROWS = 12, TILE_PANELS = 4 };

/* Rows of A that share a pointer, for x86 addresses reach p, p + stride, p + 2 * stride. */
enum { POINTER_ROWS = 3 };

/* Steps over depth from B to what is prefetched where the caller gives no better hint: enough
 * for memory's latency, and across pages, which the hardware's prefetching ends at. Fewer rows
 * than 4 take B as fast as it comes without. */
enum { PREFETCH = 64 };

/* Keeps gcc from using x straight from memory, again at each use. */
static ALWAYS_INLINE __m512 in_register(__m512 x) {
    __asm__("" : "+v"(x));
    return x;
}

/* C[rows][16 * panels] at column of C, the last panel in the lanes of last only; rows and
 * panels are constants where it is inlined. */
static ALWAYS_INLINE void tile(const struct mha_gemm *g, size_t column, size_t rows, size_t panels,
                               __mmask16 last) {
    const float *a[TILE_ROWS / POINTER_ROWS];
    UNROLLED
    for (size_t i = 0; i < rows; i += POINTER_ROWS) {
        a[i / POINTER_ROWS] = g->a + i * g->a_stride;
    }
    const float *b = (const float *)g->b.data + column / MHA_PANEL * g->b.panel_step;
    float *c = g->c + column; /* here, for the compiler doesn't know that no store changes *g */
    size_t c_stride = g->c_stride;
    size_t a_stride = g->a_stride;
    size_t b_step = g->b.step;
    size_t b_panel_bytes = g->b.panel_step * sizeof *b; /* as all addresses below */
    __m512 acc[TILE_PANELS][TILE_ROWS];
    if (g->start) {
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            const float *start = g->start + i * g->start_stride + column;
            UNROLLED
            for (size_t j = 0; j < panels; j++) {
                __mmask16 lanes = j + 1 < panels ? ALL_LANES : last;
                acc[j][i] = _mm512_maskz_loadu_ps(lanes, start + j * MHA_PANEL);
            }
        }
    } else {
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            UNROLLED
            for (size_t j = 0; j < panels; j++) {
                acc[j][i] = _mm512_setzero_ps();
            }
        }
    }
    uintptr_t ahead = (uintptr_t)b + PREFETCH * b_step * sizeof *b;
    size_t ahead_step = b_step * sizeof *b;
    if (g->prefetch) {
        ahead = g->prefetch + column / MHA_PANEL * b_panel_bytes;
        ahead_step = g->prefetch_step;
    }
    for (size_t d = g->depth; d > 0; d--) {
        /* Two pointers and a stride make up all addresses of B. Left to themselves, compilers
         * make a pointer of each, run out of registers and move the sums about. */
        __asm__("" : "+r"(b), "+r"(ahead));
        __m512 row[TILE_PANELS];
        UNROLLED
        for (size_t j = 0; j < panels; j++) {
            __m512 x = _mm512_loadu_ps((const char *)b + j * b_panel_bytes);
            row[j] = rows < 4 ? in_register(x) : x;
        }
        UNROLLED
        for (size_t i = 0; i < rows; i++) {
            __m512 value = _mm512_set1_ps(a[i / POINTER_ROWS][i % POINTER_ROWS * a_stride]);
            UNROLLED
            for (size_t j = 0; j < panels; j++) {
                acc[j][i] = _mm512_fmadd_ps(value, row[j], acc[j][i]);
            }
        }
        UNROLLED
        for (size_t i = 0; i < rows; i += POINTER_ROWS) {
            a[i / POINTER_ROWS]++;
        }
        b += b_step;
        UNROLLED
        for (size_t j = 0; j < panels; j++) {
            if (rows > 3) {
                _mm_prefetch((const char *)(ahead + j * b_panel_bytes), _MM_HINT_T0);
            }
        }
        ahead += ahead_step;
    }
    UNROLLED
    for (size_t i = 0; i < rows; i++) {
        UNROLLED
        for (size_t j = 0; j < panels; j++) {
            __mmask16 lanes = j + 1 < panels ? ALL_LANES : last;
            _mm512_mask_storeu_ps(c + j * MHA_PANEL, lanes, acc[j][i]);
        }
        c += c_stride;
    }
}

/* All columns: as many panels at a time as are given, then fewer. Four that are left make two
 * and two rather than three and one: a lone panel has too few chains. */
static ALWAYS_INLINE void all_columns(const struct mha_gemm *g, size_t rows, size_t panels) {
    size_t column = 0;
    size_t left = g->columns / MHA_PANEL;
    for (; left >= panels && !(panels == 3 && left == 4); left -= panels) {
        tile(g, column, rows, panels, ALL_LANES);
        column += panels * MHA_PANEL;
    }
    for (; panels > 2 && left >= 2; left -= 2) {
        tile(g, column, rows, 2, ALL_LANES);
        column += 2 * MHA_PANEL;
    }
    for (; column < g->columns; column += MHA_PANEL) {
        tile(g, column, rows, 1, first_lanes(g->columns - column));
    }
}

void mha_avx512_gemm(const struct mha_gemm *g) {
    switch (g->rows) {
    case 1:
        all_columns(g, 1, 4);
        break;
    case 2:
        all_columns(g, 2, 4);
        break;
    case 3:
        all_columns(g, 3, 4);
        break;
    case 4:
        all_columns(g, 4, 4);
        break;
    case 5:
        all_columns(g, 5, 4);
        break;
    case 6:
        all_columns(g, 6, 4);
        break;
    case 7:
        all_columns(g, 7, 3);
        break;
    case 8:
        all_columns(g, 8, 3);
        break;
    case 9:
        all_columns(g, 9, 2);
        break;
    case 10:
        all_columns(g, 10, 2);
        break;
    case 11:
        all_columns(g, 11, 2);
        break;
    default:
        all_columns(g, 12, 2);
        break;
    }
}
