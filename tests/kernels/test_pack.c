/* SPDX-License-Identifier: MIT
 *
 * Every table's packing into panels, of values as they are and of inputs, for all small sizes
 * and some large ones, between guard pages.
 */
#include <stdlib.h>

#include "inputs.h"

enum { MAX_ROWS = 49, MAX_COLUMNS = 70 };

static void try_case(const struct mha_kernels *table, size_t rows, size_t columns,
                     enum guard_side side, bool inputs) {
    struct generator g = begin_case("pack %s, rows %zu, columns %zu, side %d, inputs %d",
                                    table_name(table), rows, columns, (int)side, (int)inputs);
    if (skip_case()) {
        return;
    }
    size_t stride = columns + (next_below(&g, 2) ? 0 : next_below(&g, 20));
    size_t shift = side == AT_START ? next_below(&g, 16) * sizeof(float) : 0;
    float *source = guarded_floats((rows - 1) * stride + columns, shift, side);
    for (size_t i = 0; i < rows; i++) {
        for (size_t c = 0; c < columns; c++) {
            source[i * stride + c] = any_float(&g);
        }
    }
    size_t panels = (rows + MHA_PANEL - 1) / MHA_PANEL;
    shift = side == AT_START ? next_below(&g, 16) * sizeof(float) : 0;
    float *actual = guarded_floats(panels * columns * MHA_PANEL, shift, side);
    float *expected = malloc(panels * columns * MHA_PANEL * sizeof *expected);
    ck_assert_ptr_nonnull(expected);
    for (size_t p = 0; p < panels; p++) {
        for (size_t c = 0; c < columns; c++) {
            for (size_t r = 0; r < MHA_PANEL; r++) {
                size_t row = p * MHA_PANEL + r;
                float x = row < rows ? source[row * stride + c] : 0.0f;
                expected[(p * columns + c) * MHA_PANEL + r] = inputs ? as_input(x) : x;
            }
        }
    }
    table->pack(rows, columns, source, stride, actual, inputs);
    ck_assert_same("panels", expected, MHA_PANEL, actual, MHA_PANEL, panels * columns, MHA_PANEL);
    free(expected);
    guarded_free_all();
}

static void try_size(const struct mha_kernels *table, size_t rows, size_t columns) {
    for (int inputs = 0; inputs < 2; inputs++) {
        try_case(table, rows, columns, AT_START, inputs);
        try_case(table, rows, columns, AT_END, inputs);
    }
}

START_TEST(pack) {
    const struct mha_kernels *table = tested_table((size_t)_i / MAX_ROWS);
    size_t rows = (size_t)_i % MAX_ROWS + 1;
    for (size_t columns = 1; columns <= MAX_COLUMNS; columns++) {
        try_size(table, rows, columns);
    }
}
END_TEST

/* Sizes that no cache holds. AT_END leaves the panels aligned, AT_START at random. */
START_TEST(large) {
    static const size_t sizes[][2] = {
        {1024, 1024}, {1037, 1031}, {15, 70000}, {70003, 17}, {17, 65000}};
    const struct mha_kernels *table = tested_table((size_t)_i);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        try_size(table, sizes[i][0], sizes[i][1]);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pack");
    for (int i = 0; i < tested_tables(); i++) {
        TCase *test = tcase_create(table_name(tested_table((size_t)i)));
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, pack, i * MAX_ROWS, (i + 1) * MAX_ROWS);
        tcase_add_loop_test(test, large, i, i + 1);
        suite_add_tcase(suite, test);
    }
    return run_suite(suite);
}
