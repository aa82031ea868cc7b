/* SPDX-License-Identifier: MIT
 *
 * The row work of every table: copy_inputs, softcap, merge, normalize and weights, against the
 * words of their contracts in scalar arithmetic, by bits; softcap also against tanh in binary64.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "exp2.h"
#include "inputs.h"

enum { MAX_ROWS = 16, MAX_WIDTH = 200, MAX_KEYS = 512 };

/* Memory at a random alignment. */
static float *floats(struct generator *g, size_t count, enum guard_side side) {
    size_t shift = side == AT_START ? next_below(g, 16) * sizeof(float) : 0;
    return guarded_floats(count, shift, side);
}

static float *row(struct generator *g, enum input input, size_t count, enum guard_side side) {
    float *data = floats(g, count, side);
    fill_input(g, input, data, count);
    return data;
}

static enum guard_side random_side(struct generator *g) {
    return next_below(g, 2) ? AT_START : AT_END;
}

/* A row's sum as softmax leaves it: mostly some positive number, but 0 for rows of nothing but
 * -inf and NaN or infinity where such scores were. */
static float random_sum(struct generator *g) {
    static const float odd[] = {0.0f, NAN, INFINITY};
    return next_below(g, 4) == 0 ? odd[next_below(g, 3)]
                                 : 1.0f + fabsf(input_float(g, INPUT_LOGITS));
}

/* -inf: nothing was attended to. */
static float random_max(struct generator *g) {
    static const float odd[] = {0.0f, 1.0f, INFINITY, FLT_MAX, -FLT_MAX, -INFINITY, -INFINITY};
    return next_below(g, 3) ? input_float(g, INPUT_LOGITS) : odd[next_below(g, 7)];
}

/* Runs `with` for every count up to four of the widest vectors, and some beyond. */
static void try_counts(void (*with)(const struct mha_kernels *table, size_t count, size_t variant),
                       const struct mha_kernels *table, size_t variants) {
    for (size_t count = 1; count <= MAX_KEYS; count += count < 70 || count > 500 ? 1 : 31) {
        for (size_t variant = 0; variant < variants; variant++) {
            with(table, count, variant);
        }
    }
}

/* ---- copy_inputs ----------------------------------------------------------- */

static void try_copy(const struct mha_kernels *table, size_t columns, size_t variant) {
    struct generator g =
        begin_case("copy_inputs %s, columns %zu, variant %zu", table_name(table), columns, variant);
    if (skip_case()) {
        return;
    }
    enum { ROWS = 3 };
    enum guard_side side = random_side(&g);
    size_t rows = 1 + variant % ROWS;
    size_t from_stride = columns + next_below(&g, 3), to_stride = columns + next_below(&g, 3);
    float *from = floats(&g, (rows - 1) * from_stride + columns, side);
    float *to = floats(&g, (rows - 1) * to_stride + columns, side);
    static float expected[ROWS * MAX_KEYS];
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            from[i * from_stride + j] = any_float(&g);
            expected[i * columns + j] = as_input(from[i * from_stride + j]);
        }
    }
    table->copy_inputs(rows, columns, from, from_stride, to, to_stride);
    ck_assert_same("copy", expected, columns, to, to_stride, rows, columns);
    require(gaps_untouched(to, to_stride, rows, columns), "%s: gaps", case_name());
    guarded_free_all();
}

START_TEST(copy_inputs) {
    try_counts(try_copy, tested_table((size_t)_i), 6);
}
END_TEST

/* ---- has_subnormal --------------------------------------------------------- */

/* One subnormal, or none, among floats that are none. */
static void try_subnormal(const struct mha_kernels *table, size_t columns, size_t variant) {
    struct generator g = begin_case("has_subnormal %s, columns %zu, variant %zu", table_name(table),
                                    columns, variant);
    if (skip_case()) {
        return;
    }
    static const float subnormal[] = {0x1p-149f, -0x1p-149f, 0x1.fffffcp-127f, -0x1.8p-130f};
    size_t rows = 1 + variant % 3, stride = columns + next_below(&g, 3);
    float *from = floats(&g, (rows - 1) * stride + columns, random_side(&g));
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            float x = any_float(&g);
            from[i * stride + j] = fpclassify(x) == FP_SUBNORMAL ? copysignf(FLT_MIN, x) : x;
        }
    }
    bool some = variant % 2 != 0;
    if (some) {
        from[next_below(&g, rows) * stride + next_below(&g, columns)] = subnormal[variant / 2 % 4];
    }
    require(table->has_subnormal(rows, columns, from, stride) == some, "%s", case_name());
    guarded_free_all();
}

START_TEST(has_subnormal) {
    try_counts(try_subnormal, tested_table((size_t)_i), 16);
}
END_TEST

/* ---- softcap --------------------------------------------------------------- */

/* The contract's words. In units of e = 2^-24 of the cap they are off from cap * tanh(y) by
 * - u's own error, 2 relative, and that of its exponent, 2.3 |ln u| (y, the constant and the
 *   product), both times |d tanh / d u| = 2 / (1 + u)^2, and
 * - the roundings of 1 - u, 1 + u, the division and the last product, 4 tanh(|y|),
 * together below 5 for every u = exp(-2 |y|). */
static float softcapped(float s, float factor, float cap) {
    float y = s * factor;
    float u = mha_exp2(fabsf(y) * (-2.0f * MHA_LOG2E));
    float capped = cap * copysignf((1.0f - u) / (1.0f + u), y);
    double exact = (double)cap * tanh((double)s * (double)factor);
    double bound = 5 * 0x1p-24 * (double)cap + 0x1p-149;
    require(isnan(exact) ? isnan(capped) : fabs((double)capped - exact) <= bound,
            "%s: %a * tanh(%a * %a) is %a, not %a", case_name(), (double)cap, (double)s,
            (double)factor, (double)capped, exact);
    return capped;
}

static void try_softcap(const struct mha_kernels *table, size_t count, size_t variant) {
    static const float factors[] = {0.0025f, 0.125f, 1.0f, 1.0f / 50, -0.02f, 1e-30f, 1e30f};
    static const float caps[] = {50.0f, 30.0f, 1.0f, 0.3f, 1e-40f, FLT_MAX};
    struct generator g =
        begin_case("softcap %s, count %zu, variant %zu", table_name(table), count, variant);
    if (skip_case()) {
        return;
    }
    float factor = factors[next_below(&g, 7)], cap = caps[next_below(&g, 6)];
    enum input input = next_below(&g, 2) ? INPUT_LOGITS : pick_input(&g);
    float *s = row(&g, input, count, random_side(&g));
    static float expected[MAX_KEYS];
    for (size_t i = 0; i < count; i++) {
        expected[i] = softcapped(s[i], factor, cap);
    }
    table->softcap(count, s, factor, cap);
    ck_assert_same(input_name(input), expected, 0, s, 0, 1, count);
    guarded_free_all();
}

START_TEST(softcap) {
    try_counts(try_softcap, tested_table((size_t)_i), 24);
}
END_TEST

/* ---- merge ----------------------------------------------------------------- */

static struct mha_partial random_partial(struct generator *g, size_t rows, size_t width,
                                         enum guard_side side) {
    struct mha_partial partial = {.stride = width + (next_below(g, 2) ? 0 : next_below(g, 20))};
    enum input input = pick_input(g);
    partial.max = floats(g, rows, side);
    partial.sum = floats(g, rows, side);
    partial.out = floats(g, (rows - 1) * partial.stride + width, side);
    for (size_t i = 0; i < rows; i++) {
        partial.sum[i] = random_sum(g);
        partial.max[i] = random_max(g);
        bool used = partial.max[i] != -INFINITY;
        if (!used) {
            partial.sum[i] = NAN;
        }
        fill_input(g, used ? input : INPUT_NAN, partial.out + i * partial.stride, width);
    }
    return partial;
}

static void try_merge(const struct mha_kernels *table, size_t rows, size_t width, size_t variant) {
    struct generator g = begin_case("merge %s, rows %zu, width %zu, variant %zu", table_name(table),
                                    rows, width, variant);
    if (skip_case()) {
        return;
    }
    enum guard_side side = random_side(&g);
    struct mha_partial running = random_partial(&g, rows, width, side);
    struct mha_partial block = random_partial(&g, rows, width, side);
    float factor = next_below(&g, 2) ? 0.125f * MHA_LOG2E : MHA_LOG2E;
    static float max[MAX_ROWS], sum[MAX_ROWS], out[MAX_ROWS * MAX_WIDTH];
    for (size_t i = 0; i < rows; i++) {
        const float *ours = running.out + i * running.stride;
        const float *other = block.out + i * block.stride;
        if (next_below(&g, 8) == 0 && running.max[i] != -INFINITY && block.max[i] != -INFINITY) {
            block.max[i] = running.max[i];
        }
        bool keep = block.max[i] == -INFINITY, take = !keep && running.max[i] == -INFINITY;
        max[i] = block.max[i] > running.max[i] ? block.max[i] : running.max[i];
        float a = mha_exp2((running.max[i] - max[i]) * factor);
        float b = mha_exp2((block.max[i] - max[i]) * factor);
        sum[i] = mha_fma(block.sum[i], b, running.sum[i] * a);
        if (keep || take) {
            max[i] = keep ? running.max[i] : block.max[i];
            sum[i] = keep ? running.sum[i] : block.sum[i];
        }
        for (size_t d = 0; d < width; d++) {
            out[i * width + d] = keep   ? ours[d]
                                 : take ? other[d]
                                        : mha_fma(other[d], b, ours[d] * a);
        }
    }
    table->merge(rows, width, &running, &block, factor);
    ck_assert_same("max", max, 1, running.max, 1, rows, 1);
    ck_assert_same("sum", sum, 1, running.sum, 1, rows, 1);
    ck_assert_same("out", out, width, running.out, running.stride, rows, width);
    require(gaps_untouched(running.out, running.stride, rows, width), "%s: gaps", case_name());
    guarded_free_all();
}

START_TEST(merge) {
    const struct mha_kernels *table = tested_table((size_t)_i);
    for (size_t width = 1; width <= MAX_WIDTH; width += width < 70 ? 1 : 29) {
        for (size_t rows = 1; rows <= MAX_ROWS; rows++) {
            for (size_t variant = 0; variant < 3; variant++) {
                try_merge(table, rows, width, variant);
            }
        }
    }
}
END_TEST

/* ---- normalize ------------------------------------------------------------- */

static void try_normalize(const struct mha_kernels *table, size_t width, size_t variant) {
    struct generator g =
        begin_case("normalize %s, width %zu, variant %zu", table_name(table), width, variant);
    if (skip_case()) {
        return;
    }
    enum guard_side side = random_side(&g);
    float *in = row(&g, next_below(&g, 4) ? pick_input(&g) : INPUT_ZEROS, width, side);
    float *out = floats(&g, width, side);
    float sum = random_sum(&g);
    static float expected[MAX_KEYS];
    for (size_t d = 0; d < width; d++) {
        expected[d] = mha_fma(in[d], 1.0f / sum, 0.0f);
    }
    table->normalize(width, sum, in, out);
    ck_assert_same("out", expected, 0, out, 0, 1, width);
    guarded_free_all();
}

START_TEST(normalize) {
    try_counts(try_normalize, tested_table((size_t)_i), 24);
}
END_TEST

/* ---- weights --------------------------------------------------------------- */

static void try_weights(const struct mha_kernels *table, size_t keys, size_t variant) {
    struct generator g =
        begin_case("weights %s, keys %zu, variant %zu", table_name(table), keys, variant);
    if (skip_case()) {
        return;
    }
    enum input input = next_below(&g, 2) ? INPUT_ZEROS : pick_input(&g);
    float *p = row(&g, input, keys, random_side(&g));
    /* -inf where nothing in the block was attended to, NaN where both maxima are infinite. */
    static const float odd[] = {0.0f, -0.0f, -FLT_MAX, -INFINITY, NAN};
    float below =
        next_below(&g, 2) ? odd[next_below(&g, 5)] : -fabsf(input_float(&g, INPUT_LOGITS));
    float sum = random_sum(&g);
    static float expected[MAX_KEYS];
    for (size_t j = 0; j < keys; j++) {
        expected[j] = p[j] == 0.0f ? 0.0f : p[j] * (mha_exp2(below) * (1.0f / sum));
    }
    table->weights(keys, p, below, sum);
    ck_assert_same("p", expected, 0, p, 0, 1, keys);
    guarded_free_all();
}

START_TEST(weights) {
    try_counts(try_weights, tested_table((size_t)_i), 24);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rows");
    for (int i = 0; i < tested_tables(); i++) {
        TCase *test = tcase_create(table_name(tested_table((size_t)i)));
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, copy_inputs, i, i + 1);
        tcase_add_loop_test(test, has_subnormal, i, i + 1);
        tcase_add_loop_test(test, softcap, i, i + 1);
        tcase_add_loop_test(test, merge, i, i + 1);
        tcase_add_loop_test(test, normalize, i, i + 1);
        tcase_add_loop_test(test, weights, i, i + 1);
        suite_add_tcase(suite, test);
    }
    return run_suite(suite);
}
