/* SPDX-License-Identifier: MIT
 *
 * What streaming attention does with a block's softmax, in every table: merge, normalize and
 * weights, against the words of their contracts in scalar arithmetic, by bits.
 */
#include <math.h>
#include <string.h>

#include "exp.h"
#include "inputs.h"

enum { MAX_ROWS = 20, MAX_WIDTH = 200, MAX_KEYS = 512 };

static size_t random_gap(struct generator *g) {
    return next_below(g, 2) ? 0 : next_below(g, 20);
}

static float *matrix(struct generator *g, enum input input, size_t rows, size_t stride,
                     size_t width, enum guard_side side) {
    size_t shift = side == AT_START ? next_below(g, 16) * sizeof(float) : 0;
    float *data = guarded_floats((rows - 1) * stride + width, shift, side);
    for (size_t i = 0; i < rows; i++) {
        fill_input(g, input, data + i * stride, width);
    }
    return data;
}

/* A row's sum as softmax leaves it: mostly some positive number, but 0 for masked rows and NaN
 * or infinity where such scores were. */
static float random_sum(struct generator *g) {
    static const float odd[] = {0.0f, 0.0f, 0.0f, NAN, INFINITY};
    return next_below(g, 3) == 0 ? odd[next_below(g, 5)]
                                 : 1.0f + fabsf(input_float(g, INPUT_LOGITS));
}

static float random_max(struct generator *g, float sum) {
    static const float odd[] = {0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, 0x1.fffffep127f};
    if (sum == 0.0f) {
        return -INFINITY;
    }
    return next_below(g, 4) ? input_float(g, INPUT_LOGITS) : odd[next_below(g, 6)];
}

/* ---- merge ----------------------------------------------------------------- */

static struct mha_partial random_partial(struct generator *g, size_t rows, size_t width,
                                         enum guard_side side) {
    struct mha_partial partial = {.stride = width + random_gap(g)};
    partial.max = guarded_floats(rows, 0, side);
    partial.sum = guarded_floats(rows, 0, side);
    partial.out = matrix(g, pick_input(g), rows, partial.stride, width, side);
    for (size_t i = 0; i < rows; i++) {
        partial.sum[i] = random_sum(g);
        partial.max[i] = random_max(g, partial.sum[i]);
        if (partial.sum[i] == 0.0f) { /* not to be looked at */
            fill_input(g, INPUT_NAN, partial.out + i * partial.stride, width);
        }
    }
    return partial;
}

static void try_merge(const struct mha_kernels *table, size_t rows, size_t width, size_t variant) {
    struct generator g = begin_case("merge %s, rows %zu, width %zu, variant %zu", table_name(table),
                                    rows, width, variant);
    if (skip_case()) {
        return;
    }
    enum guard_side side = next_below(&g, 2) ? AT_START : AT_END;
    struct mha_partial running = random_partial(&g, rows, width, side);
    struct mha_partial block = random_partial(&g, rows, width, side);
    static float max[MAX_ROWS], sum[MAX_ROWS], out[MAX_ROWS * MAX_WIDTH];
    for (size_t i = 0; i < rows; i++) {
        const float *ours = running.out + i * running.stride;
        const float *other = block.out + i * block.stride;
        if (next_below(&g, 8) == 0 && running.sum[i] != 0.0f && block.sum[i] != 0.0f) {
            block.max[i] = running.max[i];
        }
        bool keep = block.sum[i] == 0.0f, take = !keep && running.sum[i] == 0.0f;
        max[i] = block.max[i] > running.max[i] ? block.max[i] : running.max[i];
        float a = mha_exp(running.max[i] - max[i]), b = mha_exp(block.max[i] - max[i]);
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
    table->merge(rows, width, &running, &block);
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

static void try_normalize(const struct mha_kernels *table, size_t rows, size_t width,
                          size_t variant) {
    struct generator g = begin_case("normalize %s, rows %zu, width %zu, variant %zu",
                                    table_name(table), rows, width, variant);
    if (skip_case()) {
        return;
    }
    enum guard_side side = next_below(&g, 2) ? AT_START : AT_END;
    size_t in_stride = width + random_gap(&g), out_stride = width + random_gap(&g);
    float *sum = guarded_floats(rows, 0, side);
    float *in = matrix(&g, pick_input(&g), rows, in_stride, width, side);
    size_t shift = side == AT_START ? next_below(&g, 16) * sizeof(float) : 0;
    float *out = guarded_floats((rows - 1) * out_stride + width, shift, side);
    static float expected[MAX_ROWS * MAX_WIDTH];
    for (size_t i = 0; i < rows; i++) {
        sum[i] = random_sum(&g);
        if (sum[i] == 0.0f) {
            fill_input(&g, INPUT_NAN, in + i * in_stride, width);
        }
        for (size_t d = 0; d < width; d++) {
            expected[i * width + d] =
                sum[i] == 0.0f ? 0.0f : mha_fma(in[i * in_stride + d], 1.0f / sum[i], 0.0f);
        }
    }
    table->normalize(rows, width, sum, in, in_stride, out, out_stride);
    ck_assert_same("out", expected, width, out, out_stride, rows, width);
    require(gaps_untouched(out, out_stride, rows, width), "%s: gaps", case_name());
    guarded_free_all();
}

START_TEST(normalize) {
    const struct mha_kernels *table = tested_table((size_t)_i);
    for (size_t width = 1; width <= MAX_WIDTH; width += width < 70 ? 1 : 29) {
        for (size_t rows = 1; rows <= MAX_ROWS; rows++) {
            for (size_t variant = 0; variant < 3; variant++) {
                try_normalize(table, rows, width, variant);
            }
        }
    }
}
END_TEST

/* ---- weights --------------------------------------------------------------- */

static void try_weights(const struct mha_kernels *table, size_t keys, size_t variant) {
    struct generator g =
        begin_case("weights %s, keys %zu, variant %zu", table_name(table), keys, variant);
    if (skip_case()) {
        return;
    }
    enum guard_side side = next_below(&g, 2) ? AT_START : AT_END;
    enum input input = next_below(&g, 2) ? INPUT_ZEROS : pick_input(&g);
    float *p = matrix(&g, input, 1, 0, keys, side);
    float sum = random_sum(&g);
    sum = sum == 0.0f ? 1.0f : sum;
    float max = random_max(&g, sum);
    /* A block's maximum is at most the row's; -inf where nothing in the block was attended. */
    float block_max = next_below(&g, 4) == 0 ? max : max - fabsf(input_float(&g, INPUT_LOGITS));
    block_max = next_below(&g, 6) == 0 ? -INFINITY : block_max;
    static float expected[MAX_KEYS];
    float factor = mha_exp(block_max - max) * (1.0f / sum);
    for (size_t j = 0; j < keys; j++) {
        expected[j] = p[j] == 0.0f ? 0.0f : p[j] * factor;
    }
    table->weights(keys, p, block_max, max, sum);
    ck_assert_same("p", expected, 0, p, 0, 1, keys);
    guarded_free_all();
}

START_TEST(weights) {
    const struct mha_kernels *table = tested_table((size_t)_i);
    for (size_t keys = 1; keys <= MAX_KEYS; keys += keys < 140 || keys > 500 ? 1 : 31) {
        for (size_t variant = 0; variant < 24; variant++) {
            try_weights(table, keys, variant);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("partial");
    for (int i = 0; i < tested_tables(); i++) {
        TCase *test = tcase_create(table_name(tested_table((size_t)i)));
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, merge, i, i + 1);
        tcase_add_loop_test(test, normalize, i, i + 1);
        tcase_add_loop_test(test, weights, i, i + 1);
        suite_add_tcase(suite, test);
    }
    return run_suite(suite);
}
