/* SPDX-License-Identifier: MIT
 *
 * 2^x as the kernels compute it, for every float from -0 down to -infinity: the scalar one
 * within 1 unit in the last place of 2^x in binary64, every other table equal to it. It is
 * reached through softmax: a row that holds a 0 has maximum 0, so p[j] = 2^s[j] with factor 1.
 *
 * The software fma is slow, so where there is a faster scalar table it takes part in one row of
 * floats in 127, and where there is none one float in 127 is tried. That it equals the
 * instruction is test_fma.c's to show.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exp2.h"
#include "support.h"

enum { KEYS = 512, CHUNKS = 24, MAX_TABLES = 8, SLOW_STRIDE = 127 };

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const uint32_t minus_zero = 0x80000000, minus_infinity = 0xff800000;

/* A row of 0 and 511 floats, from `bits` on, `stride` apart; beyond the last: -infinity. */
static void fill_row(float *row, uint64_t bits, uint64_t stride) {
    row[0] = 0.0f;
    for (size_t j = 1; j < KEYS; j++) {
        row[j] = from_bits(bits < minus_infinity ? (uint32_t)bits : minus_infinity);
        bits += stride;
    }
}

static void apply(const struct mha_kernels *table, float *row, bool added) {
    float max, sum;
    struct mha_softmax_row all = {.begin = 0, .end = KEYS};
    table->softmax(&(struct mha_softmax){
        .rows = 1,
        .keys = KEYS,
        .scores = row,
        .stride = KEYS,
        .row = &all,
        .added = added,
        .scale = 1.0f,
        .factor = 1.0f,
        .max = &max,
        .sum = &sum,
    });
}

/* 2^x in binary64. By far most floats are so small that three terms are exact enough. */
static double exact_exp2(double x) {
    double y = x * 0.69314718055994530942; /* ln 2 */
    return x > -0x1p-20 ? 1.0 + (y + y * y * 0.5) : exp2(x);
}

/* |p - exact| in units of the last place that a binary32 near exact has. */
static double ulps(float p, double exact) {
    uint64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    bits = (bits & UINT64_C(0x7ff0000000000000)) - (UINT64_C(23) << 52);
    double unit;
    memcpy(&unit, &bits, sizeof unit);
    return fabs((double)p - exact) / unit;
}

struct findings {
    double largest_error;
    float largest_at;
};

static void check_accuracy(struct findings *found, const float *x, const float *p) {
    for (size_t j = 1; j < KEYS; j++) {
        if (x[j] <= -125.5f) {
            require(bits_equal(p[j], 0.0f), "2^%a is %a, not 0", (double)x[j], (double)p[j]);
            continue;
        }
        double error = ulps(p[j], exact_exp2((double)x[j]));
        if (error > found->largest_error) {
            found->largest_error = error;
            found->largest_at = x[j];
        }
        require(error <= 1.0, "2^%a is %a, off by %g ULP", (double)x[j], (double)p[j], error);
    }
}

static bool is_slow(const struct mha_kernels *table) {
    return strcmp(table_name(table), "scalar") == 0 && !MHA_FMA_INSTRUCTION;
}

static uint64_t stride_of_floats(void) {
    return env_number("MHA_TEST_STRIDE", is_slow(reference_table()) ? SLOW_STRIDE : 1);
}

static uint64_t stride_of_rows(const struct mha_kernels *table) {
    uint64_t stride = stride_of_floats();
    return is_slow(table) && stride < SLOW_STRIDE ? SLOW_STRIDE / stride : 1;
}

/* What the reference is compared with; gives their number. */
static size_t other_tables(const struct mha_kernels *others[MAX_TABLES]) {
    const struct mha_kernels *table;
    size_t count = 0;
    for (size_t i = 0; (table = tested_table(i)); i++) {
        if (table != reference_table()) {
            require(count < MAX_TABLES, "more tables than MAX_TABLES");
            others[count++] = table;
        }
    }
    return count;
}

/* Chunk _i of all floats. The reference computes it once, for all other tables. */
START_TEST(every_float) {
    const struct mha_kernels *reference = reference_table(), *others[MAX_TABLES];
    size_t count = other_tables(others);
    uint64_t stride = stride_of_floats(), row = 0, row_stride[MAX_TABLES];
    for (size_t t = 0; t < count; t++) {
        row_stride[t] = stride_of_rows(others[t]);
    }
    uint64_t size = (minus_infinity - minus_zero) / CHUNKS + 1;
    uint64_t first = minus_zero + (uint64_t)_i * size;
    struct findings found = {0};
    begin_case("exp2, floats 0x%llx ..", (unsigned long long)first);
    for (uint64_t bits = first; bits < first + size; bits += (KEYS - 1) * stride, row++) {
        float x[KEYS], expected[KEYS], actual[KEYS];
        fill_row(x, bits, stride);
        memcpy(expected, x, sizeof expected);
        apply(reference, expected, false);
        check_accuracy(&found, x, expected);
        for (size_t t = 0; t < count; t++) {
            if (row % row_stride[t] != 0) {
                continue;
            }
            memcpy(actual, x, sizeof actual);
            apply(others[t], actual, false);
            if (memcmp(expected, actual, sizeof actual) != 0) {
                begin_case("exp2 %s, from %a", table_name(others[t]), (double)x[1]);
                ck_assert_same("2^x", expected, 0, actual, 0, 1, KEYS);
            }
        }
    }
    if (found.largest_error > 0.5) {
        printf("from %a: largest error %.4f ULP, at %a\n", (double)from_bits((uint32_t)first),
               found.largest_error, (double)found.largest_at);
    }
}
END_TEST

/* The ends of the range and NaN, at every place of a row. */
START_TEST(special) {
    static const struct {
        float x, exp2;
    } values[] = {{0.0f, 1.0f},         {-0.0f, 1.0f},   {-INFINITY, 0.0f},
                  {-FLT_MAX, 0.0f},     {-125.5f, 0.0f}, {-126.0f, 0.0f},
                  {-125.0f, 0x1p-125f}, {-1.0f, 0.5f},   {-FLT_MIN, 1.0f},
                  {-0x1p-149f, 1.0f},   {NAN, NAN}};
    const struct mha_kernels *table = tested_table((size_t)_i / 2);
    bool added = _i % 2;
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        begin_case("exp2 %s of %g, added %d", table_name(table), (double)values[v].x, added);
        for (size_t j = 1; j < KEYS; j++) {
            float row[KEYS] = {0};
            row[j] = values[v].x;
            apply(table, row, added);
            require(bits_equal(row[j], values[v].exp2), "%s at %zu is %a", case_name(), j,
                    (double)row[j]);
            require(bits_equal(row[j - 1], 1.0f), "%s at %zu: its neighbour is %a", case_name(), j,
                    (double)row[j - 1]);
        }
        require(bits_equal(mha_exp2(values[v].x), values[v].exp2), "mha_exp2(%a) is %a",
                (double)values[v].x, (double)mha_exp2(values[v].x));
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("exp2");
    TCase *test = tcase_create("every float");
    tcase_set_timeout(test, 0);
    tcase_add_loop_test(test, every_float, 0, CHUNKS);
    suite_add_tcase(suite, test);
    if (stride_of_floats() != 1) {
        printf("SAMPLED: one float in %llu\n", (unsigned long long)stride_of_floats());
    }
    for (int i = 0; i < tested_tables(); i++) {
        const struct mha_kernels *table = tested_table((size_t)i);
        test = tcase_create(table_name(table));
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, special, 2 * i, 2 * i + 2);
        suite_add_tcase(suite, test);
        if (stride_of_rows(table) != 1) {
            printf("SAMPLED: %s, one row of floats in %llu\n", table_name(table),
                   (unsigned long long)stride_of_rows(table));
        }
    }
    return run_suite(suite);
}
