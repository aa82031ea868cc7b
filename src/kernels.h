/* SPDX-License-Identifier: MIT
 *
 * The table of kernels that an ISA provides, and the contract of each one.
 * The scalar kernels (src/scalar/) define the values; every other ISA equals them bit
 * for bit. Nothing here knows of layers, masks' shapes or threads.
 *
 * Rules for all kernels (docs/numerics.md has the reasons):
 * - Reads and writes exactly what the contract names: no over-read, no gap touched.
 * - Pointers need a float's alignment only; panels are 64-byte aligned where the
 *   library owns them, but a kernel may not rely on it.
 * - Outputs are write-only unless said otherwise, and don't overlap inputs.
 * - "chain": acc = fma(a, b, acc) in ascending order, one accumulator per output.
 */
#ifndef MHA_KERNELS_H
#define MHA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "mha.h"

/* Columns of a panel: one cache line, one zmm, two ymm, four q registers. */
#define MHA_PANEL ((size_t)16)

/* Keys of a softmax block. A constant of the numeric contract, not a tuning value. */
#define MHA_KEY_BLOCK ((size_t)512)

/* C[rows][columns] = start + A[rows][depth] * B[depth][columns], one chain over depth
 * per element. Column n of B is element n % 16 of panel n / 16; row d of panel p starts
 * at b + p * b_panel_stride + d * b_stride and has 16 readable floats, in the last panel
 * too: [n / 16][k][16] panels have b_stride 16 and b_panel_stride 16 * k, row-major
 * matrices padded to 16 columns have b_panel_stride 16. */
struct mha_gemm {
    size_t rows;    /* 1 .. gemm_rows of the table */
    size_t columns; /* >= 1 */
    size_t depth;   /* 0 gives C = start */
    const float *a; /* [rows][depth], a_stride between rows */
    size_t a_stride;
    const float *b;
    size_t b_stride;
    size_t b_panel_stride;
    /* First value of each chain: NULL for +0, else [rows][columns] with start_stride
     * between rows (0: one row for all, a bias). May be c itself: the chain goes on. */
    const float *start;
    size_t start_stride;
    float *c; /* [rows][columns], c_stride between rows */
    size_t c_stride;
    /* A hint that changes no value: what calls to come will read, worth fetching meanwhile.
     * The address for the first step over depth in the first panel; it moves by
     * prefetch_step bytes with each step, and from panel to panel as b does. 0: none. */
    uintptr_t prefetch;
    size_t prefetch_step;
};

/* What one row of scores attends to. Pointers are to key 0 of the row; only elements
 * begin .. end-1 are read. */
struct mha_softmax_row {
    size_t begin, end;   /* attended range, begin <= end <= keys; may be empty */
    const float *bias;   /* added to the scaled score; -inf masks; or NULL */
    const uint8_t *keep; /* 0 masks; or NULL */
};

/* The state of rows of streaming attention: exp-sums and weighted values relative to a
 * maximum per row. sum == 0 marks a row that has attended to nothing yet; its max is
 * -inf and its out is not used: it may be anything, as it may where sum is NaN. */
struct mha_partial {
    float *max;    /* [rows] */
    float *sum;    /* [rows] */
    float *out;    /* [rows][width] */
    size_t stride; /* between rows of out */
};

/* Upper limits of the tuning values below. */
#define MHA_MAX_GEMM_ROWS ((size_t)16)
#define MHA_MAX_BLOCK_ROWS ((size_t)256)

struct mha_kernels {
    mha_isa isa;

    /* Tuning, free of meaning for the values. */
    size_t gemm_rows;    /* most rows of a gemm call */
    size_t gemm_columns; /* columns at which a gemm call reaches its full speed */
    size_t block_rows;   /* rows of A to keep in L2 while panels stream; multiple of 16 */
    size_t block_depth;  /* depth at which rows of A and a panel fit L1 */

    void (*gemm)(const struct mha_gemm *gemm);

    /* One block of keys: scores[rows][keys] become weights in place.
     *   t[j] = masked ? -inf : bias ? fma(s[j], scale, bias[j]) : s[j] * scale
     *   max  = the largest t that is not NaN, +0 for -0; -inf if there is none
     *   p[j] = mha_exp(t[j] - (max == -inf ? 0 : max)); +0 where masked
     *   sum  = of p in 16 lanes, lane r taking j % 16 == r in order from +0, then
     *          lane r + lane r + 8, r + 4, r + 2, r + 1
     * masked: j outside begin .. end-1, keep[j] == 0, or bias[j] == -inf. A masked score
     * may be anything, NaN too, and may not even be read. keys <= MHA_KEY_BLOCK; the
     * first key's absolute position is a multiple of 16.
     * sum == 0 says that the whole row was masked, or that every score is -inf. */
    void (*softmax)(size_t rows, size_t keys, float *scores, size_t stride, float scale,
                    const struct mha_softmax_row *mask, float *max, float *sum);

    /* Merges a block's rows into the running rows:
     *   block sum == 0: nothing changes; running sum == 0: the block's row is taken;
     *   else m = larger max, a = mha_exp(max - m), b = mha_exp(block max - m),
     *     sum = fma(block sum, b, sum * a), out = fma(block out, b, out * a), max = m.
     * The larger of two maxima: block > running ? block : running. */
    void (*merge)(size_t rows, size_t width, const struct mha_partial *running,
                  const struct mha_partial *block);

    /* out[rows][width] = fma(in, 1 / sum, +0); zeros where sum == 0. */
    void (*normalize)(size_t rows, size_t width, const float *sum, const float *in,
                      size_t in_stride, float *out, size_t out_stride);

    /* p[keys] of one row and block to softmax weights, in place:
     *   p[j] = p[j] == 0 ? +0 : p[j] * (mha_exp(block_max - max) * (1 / sum)).
     * Not called for rows whose sum is 0. */
    void (*weights)(size_t keys, float *p, float block_max, float max, float sum);

    /* Row-major source[rows][columns] to panels [ceil(rows / 16)][columns][16]:
     * source row r becomes column r % 16 of panel r / 16; missing rows become +0. */
    void (*transpose)(size_t rows, size_t columns, const float *source, size_t stride,
                      float *panels);
};

#endif
