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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mha.h"
#include "strict.h"

/* Columns of a panel: one cache line, one zmm, two ymm, four q registers. */
#define MHA_PANEL ((size_t)16)

/* Keys of a softmax block. A constant of the numeric contract, not a tuning value. */
#define MHA_KEY_BLOCK ((size_t)512)

/* Types of an operand's elements. */
enum mha_type { MHA_TYPE_F32 = 0 };

/* The right operand of a product, in panels of 16 columns: column n is element n % 16 of
 * panel n / 16. Row d of panel p starts at data + p * panel_step + d * step and has 16
 * readable elements, in the last panel too. [n / 16][k][16] panels have step 16 and
 * panel_step 16 * k; row-major matrices padded to 16 columns have panel_step 16. */
struct mha_operand {
    const void *data;
    enum mha_type type;
    size_t step, panel_step; /* in elements */
};

/* C[rows][columns] = start + A[rows][depth] * B[depth][columns], one chain over depth
 * per element. */
struct mha_gemm {
    size_t rows;    /* 1 .. gemm_rows of the table */
    size_t columns; /* >= 1 */
    size_t depth;   /* 0 gives C = start */
    const float *a; /* [rows][depth], a_stride between rows */
    size_t a_stride;
    struct mha_operand b;
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

/* What one row of scores attends to, and what is added to them. Pointers are to key 0 of the
 * row; only elements begin .. end-1 are read. */
struct mha_softmax_row {
    size_t begin, end;   /* attended range, begin <= end <= keys; may be empty */
    const uint8_t *keep; /* 0 masks; or NULL */
    /* Where terms are added: */
    const float *bias; /* -inf masks; or NULL */
    float slope;       /* ALiBi's; 0: none */
    float position;    /* of the query, key 0 of the row being at 0: an integer, at most 2^24 away
                        * from every key of the range */
};

/* One block of keys: scores[rows][keys] become weights in place.
 *   b[j] = -(slope * |position - j|), plus bias[j] where there is a bias
 *   t[j] = masked ? -inf : added ? fma(s[j], scale, b[j]) : s[j]
 *   max  = the largest t that is not NaN, +0 for -0.
 *          If that is -inf: -FLT_MAX if any key is attended to, else -inf
 *   p[j] = mha_exp2((t[j] - max) * factor); +0 where masked
 *   sum  = of p in 16 lanes, lane r taking j % 16 == r in order from +0, then
 *          lane r + lane r + 8, r + 4, r + 2, r + 1
 * masked: j outside begin .. end-1, keep[j] == 0, or added and b[j] == -inf. A masked score
 * may be anything, NaN too, and may not even be read. */
struct mha_softmax {
    size_t rows;
    size_t keys; /* <= MHA_KEY_BLOCK */
    float *scores;
    size_t stride;                     /* between rows of scores */
    const struct mha_softmax_row *row; /* [rows] */
    bool added;                        /* terms are added to the scores */
    float scale;                       /* where added */
    float factor;                      /* log2(e), times the scale unless added; > 0 */
    float *max, *sum;                  /* [rows] */
};

/* The state of rows of streaming attention: exp-sums and weighted values relative to a
 * maximum per row. max == -inf marks a row that has attended to nothing yet; its sum and out
 * are not used. */
struct mha_partial {
    float *max;    /* [rows] */
    float *sum;    /* [rows] */
    float *out;    /* [rows][width] */
    size_t stride; /* between rows of out */
};

/* Upper limits of the tuning values below. */
#define MHA_MAX_GEMM_ROWS ((size_t)16)
#define MHA_MAX_TILE_ROWS ((size_t)256)

struct mha_kernels {
    mha_isa isa;

    /* Tuning, free of meaning for the values. */
    size_t gemm_rows;    /* most rows of a gemm call */
    size_t gemm_columns; /* columns at which a gemm call reaches its full speed */
    size_t tile_rows;    /* rows of A to keep in L2 while panels stream; multiple of 16 */
    size_t tile_depth;   /* depth at which rows of A and a panel fit L1 */

    void (*gemm)(const struct mha_gemm *gemm);

    void (*softmax)(const struct mha_softmax *softmax);

    /* Row-major source[rows][columns] to panels [ceil(rows / 16)][columns][16]:
     * source row r becomes column r % 16 of panel r / 16; missing rows become +0.
     * inputs: a subnormal or zero becomes +0. */
    void (*pack)(size_t rows, size_t columns, const float *source, size_t stride, float *panels,
                 bool inputs);

    /* Row work: the same source, src/rows.h, in every ISA. */

    /* Whether from[rows][columns] holds a subnormal. */
    bool (*has_subnormal)(size_t rows, size_t columns, const float *from, size_t stride);

    /* to[rows][columns] = from, +0 for a subnormal or zero. */
    void (*copy_inputs)(size_t rows, size_t columns, const float *from, size_t from_stride,
                        float *to, size_t to_stride);

    /* s[count] in place: y = s * factor, u = mha_exp2(|y| * (-2 * log2(e))),
     * s = cap * copysign((1 - u) / (1 + u), y). */
    void (*softcap)(size_t count, float *s, float factor, float cap);

    /* Merges a block's rows, at most MHA_MAX_GEMM_ROWS, into the running rows:
     *   block max == -inf: nothing changes; running max == -inf: the block's row is taken;
     *   else m = larger max,
     *     a = mha_exp2((max - m) * factor), b = mha_exp2((block max - m) * factor),
     *     sum = fma(block sum, b, sum * a), out = fma(block out, b, out * a), max = m.
     * The larger of two maxima: block > running ? block : running. */
    void (*merge)(size_t rows, size_t width, const struct mha_partial *running,
                  const struct mha_partial *block, float factor);

    /* out[width] = fma(in, 1 / sum, +0). */
    void (*normalize)(size_t width, float sum, const float *in, float *out);

    /* p[keys] of one row and block to softmax weights, in place; below:
     * (block's maximum - row's) * factor, <= 0:
     *   p[j] = p[j] == 0 ? +0 : p[j] * (mha_exp2(below) * (1 / sum)). */
    void (*weights)(size_t keys, float *p, float below, float sum);
};

#endif
