/* SPDX-License-Identifier: MIT
 *
 * What the tests themselves rely on: a sample of cases has all sizes, not a few.
 */
#include <stdlib.h>

#include "support.h"

enum { ROWS = 49, COLUMNS = 70 };

START_TEST(samples_spread) {
    size_t of_row[ROWS] = {0}, of_column[COLUMNS] = {0}, kept = 0;
    setenv("MHA_TEST_STRIDE", "18446744073709551615", 1);
    begin_case("the first of a program");
    ck_assert(!skip_case());
    begin_case("the second");
    ck_assert(skip_case());
    setenv("MHA_TEST_STRIDE", "10000", 1); /* one in 10 */
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < COLUMNS; j++) {
            begin_case("rows %zu, columns %zu", i, j);
            bool keep = !skip_case();
            kept += keep;
            of_row[i] += keep;
            of_column[j] += keep;
        }
    }
    ck_assert_uint_ge(kept, ROWS * COLUMNS / 20);
    ck_assert_uint_le(kept, ROWS * COLUMNS / 5);
    for (size_t i = 0; i < ROWS; i++) {
        ck_assert_msg(of_row[i] > 0, "no case with %zu rows", i);
    }
    for (size_t j = 0; j < COLUMNS; j++) {
        ck_assert_msg(of_column[j] > 0, "no case with %zu columns", j);
    }
    setenv("MHA_TEST_STRIDE", "1", 1);
    begin_case("the second");
    ck_assert(!skip_case());
}
END_TEST

int main(void) {
    Suite *suite = suite_create("support");
    TCase *tests = tcase_create("support");
    tcase_add_test(tests, samples_spread);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
