/* SPDX-License-Identifier: MIT
 *
 * exp as the kernels compute it, for every float from 0 down to -infinity: the scalar one
 * within 1 unit in the last place of exp in binary64, every other table equal to it. It is
 * reached through softmax: a row that holds a 0 has maximum 0, so p[j] = exp(s[j]).
 *
 * Where scalar has the software fma alone, which is slow, one float in 127 is tried; that it
 * equals the instruction is test_fma.c's to show.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exp.h"
#include "support.h"

enum { KEYS = 512, CHUNKS = 24 };

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

static void apply(const struct mha_kernels *table, float *row) {
    float max, sum;
    struct mha_softmax_row mask = {.begin = 0, .end = KEYS};
    table->softmax(1, KEYS, row, KEYS, 1.0f, &mask, &max, &sum);
}

/* exp(x) in binary64. By far most floats are so small that three terms are exact enough. */
static double exact_exp(double x) {
    return x > -0x1p-20 ? 1.0 + (x + x * x * 0.5) : exp(x);
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

/* -125.5 ln 2, in binary64: the cut-off, as far as rounding of x log2(e) allows. */
static const double cut_off = -0x1.5bf5bafff56cdp6;

struct findings {
    double largest_error;
    float largest_at;
    bool zero; /* exp of the float before was 0 */
};

static void check_accuracy(struct findings *found, const float *x, const float *p) {
    for (size_t j = 1; j < KEYS; j++) {
        if ((double)x[j] > cut_off + 1e-5) {
            double error = ulps(p[j], exact_exp((double)x[j]));
            if (error > found->largest_error) {
                found->largest_error = error;
                found->largest_at = x[j];
            }
            require(error <= 1.0, "exp(%a) is %a, off by %g ULP", (double)x[j], (double)p[j],
                    error);
        }
        bool below = (double)x[j] < cut_off - 1e-5;
        require(below ? bits_equal(p[j], 0.0f) : p[j] >= FLT_MIN || (double)x[j] < cut_off + 1e-5,
                "exp(%a) is %a", (double)x[j], (double)p[j]);
        require(p[j] == 0.0f || p[j] >= FLT_MIN, "exp(%a) is subnormal", (double)x[j]);
        require(!found->zero || p[j] == 0.0f, "exp(%a) is %a, but 0 before", (double)x[j],
                (double)p[j]);
        found->zero = p[j] == 0.0f;
    }
}

static const struct mha_kernels *table_of(int i) {
    return tested_table((size_t)i / CHUNKS);
}

static uint64_t stride_of(const struct mha_kernels *table) {
    bool slow = strcmp(table_name(table), "scalar") == 0 && !MHA_FMA_INSTRUCTION;
    return env_number("MHA_TEST_STRIDE", slow ? 127 : 1);
}

START_TEST(every_float) {
    const struct mha_kernels *table = table_of(_i);
    const struct mha_kernels *reference = reference_table();
    uint64_t stride = stride_of(table);
    uint64_t size = (minus_infinity - minus_zero) / CHUNKS + 1;
    uint64_t first = minus_zero + (uint64_t)_i % CHUNKS * size;
    struct findings found = {0};
    begin_case("exp %s, floats 0x%llx ..", table_name(table), (unsigned long long)first);
    for (uint64_t bits = first; bits < first + size; bits += (KEYS - 1) * stride) {
        float x[KEYS], expected[KEYS], actual[KEYS];
        fill_row(x, bits, stride);
        memcpy(expected, x, sizeof expected);
        apply(reference, expected);
        if (table == reference) {
            check_accuracy(&found, x, expected);
            continue;
        }
        memcpy(actual, x, sizeof actual);
        apply(table, actual);
        if (memcmp(expected, actual, sizeof actual) != 0) {
            ck_assert_same("exp", expected, 0, actual, 0, 1, KEYS);
        }
    }
    if (found.largest_error > 0.5) {
        printf("%s from %a: largest error %.4f ULP, at %a\n", table_name(table),
               (double)from_bits((uint32_t)first), found.largest_error, (double)found.largest_at);
    }
}
END_TEST

/* The ends of the range and NaN, at every place of a row. */
START_TEST(special) {
    static const struct {
        float x, exp;
    } values[] = {{0.0f, 1.0f},   {-0.0f, 1.0f},    {-INFINITY, 0.0f},  {-FLT_MAX, 0.0f},
                  {-87.0f, 0.0f}, {-FLT_MIN, 1.0f}, {-0x1p-149f, 1.0f}, {NAN, NAN}};
    const struct mha_kernels *table = tested_table((size_t)_i);
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        begin_case("exp %s of %g", table_name(table), (double)values[v].x);
        for (size_t j = 1; j < KEYS; j++) {
            float row[KEYS] = {0};
            row[j] = values[v].x;
            apply(table, row);
            require(bits_equal(row[j], values[v].exp), "%s at %zu is %a", case_name(), j,
                    (double)row[j]);
            require(bits_equal(row[j - 1], 1.0f), "%s at %zu: its neighbour is %a", case_name(), j,
                    (double)row[j - 1]);
        }
        require(bits_equal(mha_exp(values[v].x), values[v].exp), "mha_exp(%a) is %a",
                (double)values[v].x, (double)mha_exp(values[v].x));
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("exp");
    for (int i = 0; i < tested_tables(); i++) {
        const struct mha_kernels *table = tested_table((size_t)i);
        TCase *test = tcase_create(table_name(table));
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, every_float, i * CHUNKS, (i + 1) * CHUNKS);
        tcase_add_loop_test(test, special, i, i + 1);
        suite_add_tcase(suite, test);
        if (stride_of(table) != 1) {
            printf("SAMPLED: %s, one float in %llu\n", table_name(table),
                   (unsigned long long)stride_of(table));
        }
    }
    return run_suite(suite);
}
