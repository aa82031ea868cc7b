/* SPDX-License-Identifier: MIT
 *
 * Every table's gemm against a plain loop over the contract's chain, by bits: all small
 * sizes, strides with gaps, both layouts of B, every kind of start, between guard pages.
 */
#include <math.h>
#include <stdlib.h>

#include "fma.h"
#include "inputs.h"

enum start { START_ZERO, START_BIAS, START_MATRIX, START_C, STARTS };

struct gemm_case {
    size_t rows, columns, depth;
    enum start start;
    enum input input;
    bool row_major; /* B */
    enum guard_side side;
};

static size_t padded(size_t columns) {
    return (columns + MHA_PANEL - 1) / MHA_PANEL * MHA_PANEL;
}

/* Floats from the first to the last one of [rows][columns]. */
static size_t extent(size_t rows, size_t stride, size_t columns) {
    return rows == 0 || columns == 0 ? 0 : (rows - 1) * stride + columns;
}

static size_t random_gap(struct generator *g) {
    return next_below(g, 2) ? 0 : next_below(g, 20);
}

/* Memory at a random alignment, [rows][columns] of it filled. */
static float *matrix(struct generator *g, const struct gemm_case *c, size_t rows, size_t stride,
                     size_t columns) {
    size_t shift = c->side == AT_START ? next_below(g, 16) * sizeof(float) : 0;
    float *data = guarded_floats(extent(rows, stride, columns), shift, c->side);
    for (size_t i = 0; i < rows; i++) {
        fill_input(g, c->input, data + i * stride, columns);
    }
    return data;
}

/* B as rows with gaps or as panels with gaps. */
static struct mha_operand make_b(struct generator *g, const struct gemm_case *c) {
    size_t panels = padded(c->columns) / MHA_PANEL, count;
    struct mha_operand b = {.type = MHA_TYPE_F32};
    if (c->row_major) {
        b.panel_step = MHA_PANEL;
        b.step = padded(c->columns) + random_gap(g);
        count = extent(c->depth, b.step, padded(c->columns));
    } else {
        b.step = MHA_PANEL + random_gap(g);
        size_t panel = extent(c->depth, b.step, MHA_PANEL);
        b.panel_step = panel + random_gap(g);
        count = extent(panels, b.panel_step, panel);
    }
    size_t shift = c->side == AT_START ? next_below(g, 16) * sizeof(float) : 0;
    float *data = guarded_floats(count, shift, c->side);
    /* What pads the last panel stays NaN: it may be read but not show. */
    for (size_t d = 0; d < c->depth; d++) {
        for (size_t n = 0; n < c->columns; n++) {
            data[n / MHA_PANEL * b.panel_step + d * b.step + n % MHA_PANEL] =
                input_float(g, c->input);
        }
    }
    b.data = data;
    return b;
}

static void make_start(struct generator *g, const struct gemm_case *c, struct mha_gemm *gemm) {
    if (c->start == START_BIAS) {
        gemm->start = matrix(g, c, 1, 0, c->columns);
    } else if (c->start == START_MATRIX) {
        gemm->start_stride = c->columns + random_gap(g);
        gemm->start = matrix(g, c, c->rows, gemm->start_stride, c->columns);
    } else if (c->start == START_C) {
        gemm->start = gemm->c;
        gemm->start_stride = gemm->c_stride;
        for (size_t i = 0; i < c->rows; i++) {
            fill_input(g, c->input, gemm->c + i * gemm->c_stride, c->columns);
        }
    }
}

/* The chain in binary32, and the classical bound on how far it may be from the sum in
 * binary64: one half unit in the last place of at most sum |a||b| a step. */
static float element(const struct mha_gemm *g, size_t row, size_t column, bool bounded) {
    const float *a = g->a + row * g->a_stride;
    const float *b = g->b.data;
    b += column / MHA_PANEL * g->b.panel_step + column % MHA_PANEL;
    float start = g->start ? g->start[row * g->start_stride + column] : 0.0f;
    float chain = start;
    double sum = (double)start, magnitude = fabs(sum);
    for (size_t d = 0; d < g->depth; d++) {
        chain = mha_fma(a[d], b[d * g->b.step], chain);
        double product = (double)a[d] * (double)b[d * g->b.step];
        sum += product;
        magnitude += fabs(product);
    }
    double bound = (double)g->depth * 0x1.001p-24 * magnitude;
    require(!bounded || fabs((double)chain - sum) <= bound, "%s: [%zu][%zu] is %a, not %a",
            case_name(), row, column, (double)chain, sum);
    return chain;
}

static void try_case(const struct mha_kernels *table, size_t rows, size_t columns, size_t depth,
                     size_t variant) {
    struct generator g = begin_case("gemm %s, rows %zu, columns %zu, depth %zu, variant %zu",
                                    table_name(table), rows, columns, depth, variant);
    if (skip_case()) {
        return;
    }
    struct gemm_case c = {
        .rows = rows,
        .columns = columns,
        .depth = depth,
        .start = (enum start)next_below(&g, STARTS),
        .input = pick_input(&g),
        .row_major = next_below(&g, 2),
        .side = next_below(&g, 2) ? AT_START : AT_END,
    };
    struct mha_gemm gemm = {.rows = rows, .columns = columns, .depth = depth};
    gemm.a_stride = depth + random_gap(&g);
    gemm.a = matrix(&g, &c, rows, gemm.a_stride, depth);
    gemm.b = make_b(&g, &c);
    gemm.c_stride = columns + random_gap(&g);
    size_t shift = c.side == AT_START ? next_below(&g, 16) * sizeof(float) : 0;
    gemm.c = guarded_floats(extent(rows, gemm.c_stride, columns), shift, c.side);
    make_start(&g, &c, &gemm);
    if (next_below(&g, 2)) { /* a hint: to anywhere, mapped or not */
        gemm.prefetch = (uintptr_t)next_bits(&g);
        gemm.prefetch_step = next_below(&g, 5000);
    }

    float *expected = malloc(rows * columns * sizeof *expected);
    ck_assert_ptr_nonnull(expected);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            expected[i * columns + j] = element(&gemm, i, j, c.input == INPUT_PLAIN);
        }
    }
    table->gemm(&gemm);
    ck_assert_same(input_name(c.input), expected, columns, gemm.c, gemm.c_stride, rows, columns);
    require(gaps_untouched(gemm.c, gemm.c_stride, rows, columns), "%s: gaps", case_name());
    free(expected);
    guarded_free_all();
}

/* Test i is for the tables' i / MHA_MAX_GEMM_ROWS-th and i % MHA_MAX_GEMM_ROWS + 1 rows. */
static const struct mha_kernels *table_of(int i, size_t *rows) {
    *rows = (size_t)i % MHA_MAX_GEMM_ROWS + 1;
    return tested_table((size_t)i / MHA_MAX_GEMM_ROWS);
}

/* Every number of columns up to two of the widest tiles and one more, and every depth up to
 * two panels and one more. */
START_TEST(small) {
    size_t rows;
    const struct mha_kernels *table = table_of(_i, &rows);
    size_t most = 2 * table->gemm_columns + 1 > 140 ? 2 * table->gemm_columns + 1 : 140;
    for (size_t columns = 1; columns <= most; columns++) {
        for (size_t depth = 0; depth <= 2 * MHA_PANEL + 1; depth++) {
            try_case(table, rows, columns, depth, 0);
        }
    }
}
END_TEST

START_TEST(deep) {
    static const size_t depths[] = {63, 64, 65, 127, 128, 129, 255, 511, 512, 1000};
    static const size_t some_columns[] = {1, 15, 16, 17, 31, 32, 33, 47, 64, 65, 128, 129, 200};
    size_t rows;
    const struct mha_kernels *table = table_of(_i, &rows);
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        for (size_t j = 0; j < sizeof some_columns / sizeof *some_columns; j++) {
            try_case(table, rows, some_columns[j], depths[i], 0);
        }
    }
}
END_TEST

/* Few sizes, but every kind of start, input, layout and side. */
START_TEST(kinds) {
    static const size_t sizes[][2] = {{1, 1}, {16, 3}, {17, 9}, {33, 16}, {64, 5}, {130, 12}};
    size_t rows;
    const struct mha_kernels *table = table_of(_i, &rows);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t variant = 0; variant < 300; variant++) {
            try_case(table, rows, sizes[i][0], sizes[i][1], variant);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gemm");
    for (int i = 0; i < tested_tables(); i++) {
        const struct mha_kernels *table = tested_table((size_t)i);
        TCase *test = tcase_create(table_name(table));
        int first = i * (int)MHA_MAX_GEMM_ROWS;
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, small, first, first + (int)table->gemm_rows);
        tcase_add_loop_test(test, deep, first, first + (int)table->gemm_rows);
        tcase_add_loop_test(test, kinds, first, first + (int)table->gemm_rows);
        suite_add_tcase(suite, test);
    }
    return run_suite(suite);
}
