/* SPDX-License-Identifier: MIT
 *
 * Every table's softmax against the scalar one, by bits: every range of every small block,
 * the edges of large ones, every mask, between guard pages. And the scalar one against the
 * words of its contract, with exp in binary64.
 */
#include <math.h>
#include <string.h>

#include "inputs.h"

enum { MAX_ROWS = 18, MAX_KEYS = 512 };

/* -125.5 ln 2: below, exp is 0 (test_exp.c has the exact place). */
#define CUT_OFF (-86.98997158)

enum mask { MASK_NONE, MASK_KEEP, MASK_BIAS, MASK_BOTH, MASKS };

/* Arguments of a call. */
struct call {
    size_t rows, keys, stride;
    float scale;
    enum input input;
    enum guard_side side;
    struct mha_softmax_row mask[MAX_ROWS];
    float *scores, *max, *sum;
};

/* A mask's array holds what may be read, begin .. end - 1, and nothing else. */
static void make_mask(struct generator *g, struct call *c, enum mask kind,
                      struct mha_softmax_row *row) {
    size_t count = row->end - row->begin;
    size_t density = next_below(g, 4); /* 0: all masked; 3: few */
    if (kind == MASK_KEEP || kind == MASK_BOTH) {
        uint8_t *keep = guarded_alloc(count, 0, c->side);
        for (size_t j = 0; j < count; j++) {
            keep[j] = next_below(g, 4) < density ? (uint8_t)(1 + next_below(g, 255)) : 0;
        }
        row->keep = keep - row->begin;
    }
    if (kind == MASK_BIAS || kind == MASK_BOTH) {
        enum input input = next_below(g, 3) ? INPUT_LOGITS : pick_input(g);
        density = next_below(g, 5);
        float *bias = guarded_floats(count, 0, c->side);
        for (size_t j = 0; j < count; j++) {
            bias[j] = next_below(g, 4) < density ? input_float(g, input) : -INFINITY;
        }
        row->bias = bias - row->begin;
    }
}

/* Row 0 has the range begin .. end - 1, the others any. */
static void make_call(struct generator *g, struct call *c, enum mask kind, size_t begin,
                      size_t end) {
    static const float scales[] = {0.125f, 1.0f, 0x1.6a09e6p-3f, 3.0f, -0.5f, 1e-30f, 1e30f};
    c->input = next_below(g, 3) ? INPUT_LOGITS : pick_input(g);
    c->scale = scales[c->input == INPUT_LOGITS ? next_below(g, 5) : next_below(g, 7)];
    c->side = next_below(g, 2) ? AT_START : AT_END;
    c->stride = c->keys + (next_below(g, 2) ? 0 : next_below(g, 20));
    size_t shift = c->side == AT_START ? next_below(g, 16) * sizeof(float) : 0;
    c->scores = guarded_floats((c->rows - 1) * c->stride + c->keys, shift, c->side);
    c->max = guarded_floats(c->rows, 0, c->side);
    c->sum = guarded_floats(c->rows, 0, c->side);
    for (size_t i = 0; i < c->rows; i++) {
        struct mha_softmax_row *row = &c->mask[i];
        *row = (struct mha_softmax_row){.begin = begin, .end = end};
        if (i > 0) {
            row->end = next_below(g, c->keys + 1);
            row->begin = next_below(g, row->end + 1);
        }
        make_mask(g, c, kind, row);
        /* What is outside the range stays NaN. */
        fill_input(g, c->input, c->scores + i * c->stride + row->begin, row->end - row->begin);
        for (size_t j = row->begin; j < row->end; j++) {
            if (row->keep && row->keep[j] == 0 && next_below(g, 2)) {
                c->scores[i * c->stride + j] = input_float(g, INPUT_NAN);
            }
        }
    }
}

static bool masked(const struct mha_softmax_row *row, size_t j) {
    return j < row->begin || j >= row->end || (row->keep && row->keep[j] == 0) ||
           (row->bias && row->bias[j] == -INFINITY);
}

/* A row's results, as the contract says: t and so the maximum in binary32, exp in binary64
 * with room for 1 unit in the last place, the sum of what p[] holds in 16 lanes. */
static void check_row(const struct call *c, size_t i, const float *scores, const float *p,
                      float max, float sum) {
    const struct mha_softmax_row *row = &c->mask[i];
    float t[MAX_KEYS], largest = -INFINITY, lanes[16] = {0};
    for (size_t j = 0; j < c->keys; j++) {
        t[j] = masked(row, j) ? -INFINITY : scores[j] * c->scale;
        if (!masked(row, j) && row->bias) {
            t[j] = fmaf(scores[j], c->scale, row->bias[j]);
        }
        largest = t[j] > largest ? t[j] : largest;
    }
    largest = largest == 0.0f ? 0.0f : largest;
    require(bits_equal(max, largest), "%s: max[%zu] is %a, not %a", case_name(), i, (double)max,
            (double)largest);
    float base = largest == -INFINITY ? 0.0f : largest;
    for (size_t j = 0; j < c->keys; j++) {
        float x = t[j] - base;
        double expected = exp((double)x);
        bool near = fabs((double)p[j] - expected) <= expected * 0x1p-23;
        bool good = masked(row, j) ? bits_equal(p[j], 0.0f)
                    : isnan(x)
                        ? isnan(p[j])
                        : (near && x > CUT_OFF - 1e-4) || (p[j] == 0.0f && x < CUT_OFF + 1e-4);
        require(good, "%s: p[%zu][%zu] is %a, not exp(%a) = %a", case_name(), i, j, (double)p[j],
                (double)x, expected);
        lanes[j % 16] += p[j];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t r = 0; r < half; r++) {
            lanes[r] += lanes[r + half];
        }
    }
    require(bits_equal(sum, lanes[0]), "%s: sum[%zu] is %a, not %a", case_name(), i, (double)sum,
            (double)lanes[0]);
}

static void try_case(const struct mha_kernels *table, size_t rows, size_t keys, size_t begin,
                     size_t end, enum mask kind) {
    struct generator g = begin_case("softmax %s, rows %zu, keys %zu, range %zu..%zu, mask %d",
                                    table_name(table), rows, keys, begin, end, (int)kind);
    if (skip_case()) {
        return;
    }
    struct call c = {.rows = rows, .keys = keys};
    make_call(&g, &c, kind, begin, end);
    size_t size = (rows - 1) * c.stride + keys;
    static float before[MAX_ROWS * (MAX_KEYS + 20)], expected[MAX_ROWS * (MAX_KEYS + 20)];
    float max[MAX_ROWS], sum[MAX_ROWS];
    memcpy(before, c.scores, size * sizeof *before);
    memcpy(expected, before, size * sizeof *before);
    reference_table()->softmax(rows, keys, expected, c.stride, c.scale, c.mask, max, sum);
    table->softmax(rows, keys, c.scores, c.stride, c.scale, c.mask, c.max, c.sum);
    ck_assert_same("max", max, 1, c.max, 1, rows, 1);
    ck_assert_same("p", expected, c.stride, c.scores, c.stride, rows, keys);
    ck_assert_same("sum", sum, 1, c.sum, 1, rows, 1);
    require(gaps_untouched(c.scores, c.stride, rows, keys), "%s: gaps", case_name());
    for (size_t i = 0; table->isa == MHA_ISA_SCALAR && i < rows; i++) {
        check_row(&c, i, before + i * c.stride, c.scores + i * c.stride, c.max[i], c.sum[i]);
    }
    guarded_free_all();
}

/* Test i is for the table i / MASKS and the kind of mask i % MASKS. */
static const struct mha_kernels *table_of(int i, enum mask *kind) {
    *kind = (enum mask)(i % MASKS);
    return tested_table((size_t)i / MASKS);
}

START_TEST(every_range) {
    enum mask kind;
    const struct mha_kernels *table = table_of(_i, &kind);
    for (size_t keys = 1; keys <= 2 * MHA_PANEL + 1; keys++) {
        for (size_t end = 0; end <= keys; end++) {
            for (size_t begin = 0; begin <= end; begin++) {
                try_case(table, 1 + (keys + end + begin) % 3, keys, begin, end, kind);
            }
        }
    }
}
END_TEST

START_TEST(long_rows) {
    static const size_t sizes[] = {47,  48,  49,  63,  64,  65,  79,  80,  96,  100, 127,
                                   128, 129, 160, 255, 256, 257, 300, 495, 496, 511, 512};
    static const size_t edges[] = {0, 1, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65, 100, 128, 130};
    enum { EDGES = sizeof edges / sizeof *edges };
    enum mask kind;
    const struct mha_kernels *table = table_of(_i, &kind);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        size_t keys = sizes[n];
        for (size_t i = 0; i < EDGES; i++) {
            for (size_t j = 0; j < EDGES; j++) {
                if (edges[i] + edges[j] <= keys) {
                    try_case(table, 1 + (i + j) % 3, keys, edges[i], keys - edges[j], kind);
                }
            }
        }
    }
}
END_TEST

START_TEST(many_rows) {
    enum mask kind;
    const struct mha_kernels *table = table_of(_i, &kind);
    for (size_t rows = 1; rows <= MAX_ROWS; rows++) {
        for (size_t keys = 1; keys <= MAX_KEYS; keys += 1 + keys / 4) {
            try_case(table, rows, keys, 0, keys, kind);
        }
        try_case(table, rows, MAX_KEYS, 0, MAX_KEYS, kind);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("softmax");
    for (int i = 0; i < tested_tables(); i++) {
        TCase *test = tcase_create(table_name(tested_table((size_t)i)));
        tcase_set_timeout(test, 0);
        tcase_add_loop_test(test, every_range, i * MASKS, (i + 1) * MASKS);
        tcase_add_loop_test(test, long_rows, i * MASKS, (i + 1) * MASKS);
        tcase_add_loop_test(test, many_rows, i * MASKS, (i + 1) * MASKS);
        suite_add_tcase(suite, test);
    }
    return run_suite(suite);
}
