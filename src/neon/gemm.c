/* SPDX-License-Identifier: MIT
 *
 * NEON GEMM kernel: a tile of C stays in registers while lane-indexed FMAs walk the depth.
 * It knows nothing of tiling; ../linear.c and ../attend.c cut the work into calls.
 *
 * The tile is 4x16: 16 accumulators, 4 registers of A with four steps of depth each and 8 of
 * B, two rows of a panel. One row and two take several panels at once, for up to 16 chains:
 * four FMA units of latency 4 need as many. So that every field below is a register in any
 * compiler, all is inlined with constant rows and panels, and there are no arrays and no loops
 * but those over the depth. scripts/mca shows what became of it.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns") /* it would gather loads, and then spill */
#endif

#include <string.h>

#include "vec.h"

enum { MAX_ROWS = 8, TILE_ROWS = 4 };

/* Four columns of C, or four steps of A's depth, in up to 4 rows. */
struct quad {
    float32x4_t row0, row1, row2, row3;
};

/* 16 columns of C. */
struct panel {
    struct quad columns0, columns4, columns8, columns12;
};

/* One, two or four panels of C side by side. */
struct panels {
    struct panel panel0, panel1, panel2, panel3;
};

/* ---- Loads and stores ---------------------------------------------------- */

static ALWAYS_INLINE struct quad load_quad(const float *from, size_t stride, size_t rows) {
    struct quad x;
    float32x4_t none = vdupq_n_f32(0.0f);
    x.row0 = vld1q_f32(from);
    x.row1 = rows > 1 ? vld1q_f32(from + stride) : none;
    x.row2 = rows > 2 ? vld1q_f32(from + 2 * stride) : none;
    x.row3 = rows > 3 ? vld1q_f32(from + 3 * stride) : none;
    return x;
}

/* A single step of A's depth, in lane 0. */
static ALWAYS_INLINE struct quad load_step(const float *from, size_t stride, size_t rows) {
    struct quad x;
    float32x4_t none = vdupq_n_f32(0.0f);
    x.row0 = vld1q_dup_f32(from);
    x.row1 = rows > 1 ? vld1q_dup_f32(from + stride) : none;
    x.row2 = rows > 2 ? vld1q_dup_f32(from + 2 * stride) : none;
    x.row3 = rows > 3 ? vld1q_dup_f32(from + 3 * stride) : none;
    return x;
}

static ALWAYS_INLINE void store_quad(float *to, size_t stride, size_t rows, struct quad x) {
    vst1q_f32(to, x.row0);
    if (rows > 1) {
        vst1q_f32(to + stride, x.row1);
    }
    if (rows > 2) {
        vst1q_f32(to + 2 * stride, x.row2);
    }
    if (rows > 3) {
        vst1q_f32(to + 3 * stride, x.row3);
    }
}

static ALWAYS_INLINE struct panel load_panel(const float *from, size_t stride, size_t rows) {
    return (struct panel){load_quad(from, stride, rows), load_quad(from + 4, stride, rows),
                          load_quad(from + 8, stride, rows), load_quad(from + 12, stride, rows)};
}

static ALWAYS_INLINE void store_panel(float *to, size_t stride, size_t rows, struct panel x) {
    store_quad(to, stride, rows, x.columns0);
    store_quad(to + 4, stride, rows, x.columns4);
    store_quad(to + 8, stride, rows, x.columns8);
    store_quad(to + 12, stride, rows, x.columns12);
}

/* ---- FMAs ---------------------------------------------------------------- */

/* c + b * a[lane]; the instruction wants a constant, which lane is after inlining. */
static ALWAYS_INLINE float32x4_t fma_lane(float32x4_t c, float32x4_t b, float32x4_t a, int lane) {
    switch (lane) {
    case 0:
        return vfmaq_laneq_f32(c, b, a, 0);
    case 1:
        return vfmaq_laneq_f32(c, b, a, 1);
    case 2:
        return vfmaq_laneq_f32(c, b, a, 2);
    default:
        return vfmaq_laneq_f32(c, b, a, 3);
    }
}

static ALWAYS_INLINE void fma_quad(struct quad *c, struct quad a, float32x4_t b, size_t rows,
                                   int lane) {
    c->row0 = fma_lane(c->row0, b, a.row0, lane);
    c->row1 = rows > 1 ? fma_lane(c->row1, b, a.row1, lane) : c->row1;
    c->row2 = rows > 2 ? fma_lane(c->row2, b, a.row2, lane) : c->row2;
    c->row3 = rows > 3 ? fma_lane(c->row3, b, a.row3, lane) : c->row3;
}

/* Two quads of B on their way: each is loaded a group of FMAs ahead of its use, for cores
 * that execute in order. */
struct ahead {
    float32x4_t even, odd;
};

/* A load that stays behind the computation of c, where it is written. Either compiler spills
 * or copies accumulators with the other's form. */
static ALWAYS_INLINE float32x4_t load_after(float32x4_t *c, const float *from) {
#if defined(__clang__)
    (void)c;
    __asm__ volatile("" ::: "memory");
#else
    __asm__("" : "+w"(*c) : : "memory");
#endif
    return vld1q_f32(from);
}

/* One step of depth: a row of B's panel, of which x has the first two quads, times a column
 * of A. Then x has the first two of the row next, if there is more. */
static ALWAYS_INLINE void fma_panel(struct panel *c, struct quad a, struct ahead *x, const float *b,
                                    const float *next, bool more, size_t rows, int lane) {
    fma_quad(&c->columns0, a, x->even, rows, lane);
    x->even = load_after(&c->columns0.row0, b + 8);
    fma_quad(&c->columns4, a, x->odd, rows, lane);
    x->odd = load_after(&c->columns4.row0, b + 12);
    fma_quad(&c->columns8, a, x->even, rows, lane);
    x->even = more ? load_after(&c->columns8.row0, next) : x->even;
    fma_quad(&c->columns12, a, x->odd, rows, lane);
    x->odd = more ? load_after(&c->columns12.row0, next + 4) : x->odd;
}

/* The same for panels p_step apart. */
static ALWAYS_INLINE void fma_panels(struct panels *c, struct quad a, struct ahead *x,
                                     const float *b, size_t p_step, const float *next, bool more,
                                     size_t rows, size_t panels, int lane) {
    const float *b1 = b + p_step, *b2 = b + 2 * p_step, *b3 = b + 3 * p_step;
    if (panels == 1) {
        fma_panel(&c->panel0, a, x, b, next, more, rows, lane);
    } else if (panels == 2) {
        fma_panel(&c->panel0, a, x, b, b1, true, rows, lane);
        fma_panel(&c->panel1, a, x, b1, next, more, rows, lane);
    } else {
        fma_panel(&c->panel0, a, x, b, b1, true, rows, lane);
        fma_panel(&c->panel1, a, x, b1, b2, true, rows, lane);
        fma_panel(&c->panel2, a, x, b2, b3, true, rows, lane);
        fma_panel(&c->panel3, a, x, b3, next, more, rows, lane);
    }
}

/* 4 * count steps of depth of panels p_step apart. */
static ALWAYS_INLINE void steps_wide(struct panels *c, const float *a, size_t a_stride,
                                     const float *b, size_t b_step, size_t p_step, size_t count,
                                     size_t rows, size_t panels) {
    for (; count > 0; count--) {
        struct quad a4 = load_quad(a, a_stride, rows);
        struct ahead x = {vld1q_f32(b), vld1q_f32(b + 4)};
        const float *b1 = b + b_step, *b2 = b + 2 * b_step, *b3 = b + 3 * b_step;
        fma_panels(c, a4, &x, b, p_step, b1, true, rows, panels, 0);
        fma_panels(c, a4, &x, b1, p_step, b2, true, rows, panels, 1);
        fma_panels(c, a4, &x, b2, p_step, b3, true, rows, panels, 2);
        fma_panels(c, a4, &x, b3, p_step, NULL, false, rows, panels, 3);
        a += 4;
        b += 4 * b_step;
    }
}

/* ---- One panel, three rows or four --------------------------------------- */

/* For cores that execute in order the order of this loop is that of its source: by llvm-mca
 * whatever isn't an FMA may wait for the FMAs ahead of it, a load of four registers least of
 * all. So all else is together at the top, where a load covers the additions, none of which
 * depends on another. Nothing is loaded for the turn that is next: either compiler then copies
 * registers, in groups of four. */

/* Loads stay on their side of this, and so does what computes or uses the operands. */
#define HERE(...) __asm__ volatile("" : __VA_ARGS__ : : "memory")

static ALWAYS_INLINE const float *at(const float *from, size_t bytes) {
    return (const float *)(const void *)((const char *)from + bytes);
}

/* A row of B's panel times a column of A. */
static ALWAYS_INLINE void fma_row(struct panel *c, struct quad a, float32x4x4_t b, size_t rows,
                                  int lane) {
    fma_quad(&c->columns0, a, b.val[0], rows, lane);
    fma_quad(&c->columns4, a, b.val[1], rows, lane);
    fma_quad(&c->columns8, a, b.val[2], rows, lane);
    fma_quad(&c->columns12, a, b.val[3], rows, lane);
}

/* 4 * count steps of depth. */
static ALWAYS_INLINE void steps_tall(struct panel *c, const float *a, size_t a_stride,
                                     const float *b, size_t b_step, size_t count, size_t rows) {
    size_t a1 = a_stride * sizeof *a, a2 = 2 * a1, a3 = 3 * a1;
    size_t step1 = b_step * sizeof *b, step2 = 2 * step1, step3 = 3 * step1, step4 = 4 * step1;
    HERE("+r"(a1), "+r"(a2), "+r"(a3), "+r"(step1), "+r"(step2), "+r"(step3), "+r"(step4));
    while (count > 0) {
        float32x4x4_t x0 = vld1q_f32_x4(b);
        HERE("+r"(b));
        struct quad a4;
        a4.row0 = vld1q_f32(a);
        HERE();
        a4.row1 = vld1q_f32(at(a, a1));
        a4.row2 = vld1q_f32(at(a, a2));
        a4.row3 = rows > 3 ? vld1q_f32(at(a, a3)) : a4.row0;
        const float *b1 = at(b, step1), *b2 = at(b, step2), *b3 = at(b, step3);
        b = at(b, step4);
        count--;
        HERE("+r"(a), "+r"(b), "+r"(b1), "+r"(b2), "+r"(b3), "+r"(count));
        a += 4;
        HERE("+r"(a));
        float32x4x4_t x1 = vld1q_f32_x4(b1);
        HERE("+w"(a4.row0), "+w"(a4.row1), "+w"(a4.row2));
        if (rows > 3) {
            HERE("+w"(a4.row3));
        }
        fma_row(c, a4, x0, rows, 0);
        HERE("+w"(c->columns12.row0));
        float32x4x4_t x2 = vld1q_f32_x4(b2);
        fma_row(c, a4, x1, rows, 1);
        HERE("+w"(c->columns12.row0));
        float32x4x4_t x3 = vld1q_f32_x4(b3);
        fma_row(c, a4, x2, rows, 2);
        fma_row(c, a4, x3, rows, 3);
    }
}

/* ---- Tiles --------------------------------------------------------------- */

/* C[rows][16 * panels] at row and column of C. */
static ALWAYS_INLINE void tile(const struct mha_gemm *g, size_t row, size_t column, size_t rows,
                               size_t panels) {
    static const float zeros[MHA_PANEL];
    const float *a = g->a + row * g->a_stride;
    const float *b = (const float *)g->b.data + column / MHA_PANEL * g->b.panel_step;
    size_t a_stride = g->a_stride, b_step = g->b.step, p_step = g->b.panel_step;

    const float *start = g->start ? g->start + row * g->start_stride + column : zeros;
    size_t start_stride = g->start ? g->start_stride : 0;
    size_t start_panel = g->start ? MHA_PANEL : 0;
    struct panels acc;
    acc.panel0 = load_panel(start, start_stride, rows);
    if (panels > 1) {
        acc.panel1 = load_panel(start + start_panel, start_stride, rows);
    }
    if (panels > 2) {
        acc.panel2 = load_panel(start + 2 * start_panel, start_stride, rows);
        acc.panel3 = load_panel(start + 3 * start_panel, start_stride, rows);
    }

    size_t count = g->depth / 4;
    if (rows > 2) {
        steps_tall(&acc.panel0, a, a_stride, b, b_step, count, rows);
    } else {
        steps_wide(&acc, a, a_stride, b, b_step, p_step, count, rows, panels);
    }
    a += 4 * count;
    b += 4 * count * b_step;
    for (size_t rest = g->depth % 4; rest > 0; rest--) {
        struct quad a1 = load_step(a, a_stride, rows);
        struct ahead x = {vld1q_f32(b), vld1q_f32(b + 4)};
        fma_panels(&acc, a1, &x, b, p_step, NULL, false, rows, panels, 0);
        a++;
        b += b_step;
    }

    float *c = g->c + row * g->c_stride + column;
    store_panel(c, g->c_stride, rows, acc.panel0);
    if (panels > 1) {
        store_panel(c + MHA_PANEL, g->c_stride, rows, acc.panel1);
    }
    if (panels > 2) {
        store_panel(c + 2 * MHA_PANEL, g->c_stride, rows, acc.panel2);
        store_panel(c + 3 * MHA_PANEL, g->c_stride, rows, acc.panel3);
    }
}

/* Columns from column on, for as long as there are enough; the first of those left. */
static ALWAYS_INLINE size_t strip(const struct mha_gemm *g, size_t column, size_t rows,
                                  size_t panels) {
    for (; column + panels * MHA_PANEL <= g->columns; column += panels * MHA_PANEL) {
        tile(g, 0, column, rows, panels);
    }
    return column;
}

static void one_panel(const struct mha_gemm *g, size_t row, size_t column, size_t rows) {
    switch (rows) {
    case 1:
        tile(g, row, column, 1, 1);
        break;
    case 2:
        tile(g, row, column, 2, 1);
        break;
    case 3:
        tile(g, row, column, 3, 1);
        break;
    default:
        tile(g, row, column, 4, 1);
        break;
    }
}

/* Whole panels. More rows than a tile has are two tiles, one after the other while a panel is
 * in L1. */
static void whole_panels(const struct mha_gemm *g) {
    size_t column = 0;
    if (g->rows == 1) {
        column = strip(g, strip(g, 0, 1, 4), 1, 2);
    } else if (g->rows == 2) {
        column = strip(g, 0, 2, 2);
    }
    size_t upper = g->rows > TILE_ROWS ? (g->rows + 1) / 2 : g->rows;
    for (; column < g->columns; column += MHA_PANEL) {
        one_panel(g, 0, column, upper);
        if (upper < g->rows) {
            one_panel(g, upper, column, g->rows - upper);
        }
    }
}

/* The last panel where some of its columns are missing. B has them all, so it is computed
 * whole, in a buffer. */
static void part_panel(const struct mha_gemm *g, size_t column) {
    float c[MAX_ROWS][MHA_PANEL];
    float start[MAX_ROWS][MHA_PANEL] = {0};
    size_t size = (g->columns - column) * sizeof(float);
    struct mha_gemm whole = *g;
    whole.columns = MHA_PANEL;
    whole.b.data = (const float *)g->b.data + column / MHA_PANEL * g->b.panel_step;
    whole.c = c[0];
    whole.c_stride = MHA_PANEL;
    if (g->start) {
        for (size_t i = 0; i < g->rows; i++) {
            memcpy(start[i], g->start + i * g->start_stride + column, size);
        }
        whole.start = start[0];
        whole.start_stride = MHA_PANEL;
    }
    whole_panels(&whole);
    for (size_t i = 0; i < g->rows; i++) {
        memcpy(g->c + i * g->c_stride + column, c[i], size);
    }
}

void mha_neon_gemm(const struct mha_gemm *g) {
    size_t whole = g->columns / MHA_PANEL * MHA_PANEL;
    if (whole > 0) {
        struct mha_gemm panels = *g;
        panels.columns = whole;
        whole_panels(&panels);
    }
    if (whole < g->columns) {
        part_panel(g, whole);
    }
}
