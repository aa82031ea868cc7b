/* SPDX-License-Identifier: MIT
 *
 * Every table's softmax against the scalar one, by bits: every range of every small block,
 * the edges of large ones, every kind of terms and masks, between guard pages. And the scalar
 * one against the words of its contract, with 2^x in binary64.
 */
#include <math.h>
#include <string.h>

#include "exp2.h"
#include "inputs.h"

enum { MAX_ROWS = 18, MAX_KEYS = 512 };

/* What a row has, and whether terms are added at all. */
enum { KEEP = 1, ADDED = 2, BIAS = 4, ALIBI = 8 };
static const unsigned kinds[] = {
    0,
    KEEP,
    ADDED,
    ADDED | KEEP,
    ADDED | BIAS,
    ADDED | BIAS | KEEP,
    ADDED | ALIBI,
    ADDED | ALIBI | KEEP,
    ADDED | BIAS | ALIBI,
    ADDED | BIAS | ALIBI | KEEP,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint8_t *make_keep(struct generator *g, size_t count, enum guard_side side) {
    size_t density = next_below(g, 4); /* 0: all masked; 3: few */
    uint8_t *keep = guarded_alloc(count, 0, side);
    for (size_t j = 0; j < count; j++) {
        keep[j] = next_below(g, 4) < density ? (uint8_t)(1 + next_below(g, 255)) : 0;
    }
    return keep;
}

static float *make_bias(struct generator *g, size_t count, enum guard_side side) {
    enum input input = next_below(g, 3) ? INPUT_LOGITS : pick_input(g);
    size_t density = next_below(g, 5);
    float *bias = guarded_floats(count, 0, side);
    for (size_t j = 0; j < count; j++) {
        bias[j] = next_below(g, 4) < density ? input_float(g, input) : -INFINITY;
    }
    return bias;
}

/* Mostly near the keys, else as far as distances are exact. */
static float random_position(struct generator *g) {
    static const float far[] = {0x1p24f, 0x1p24f - 1, 512 - 0x1p24f, 513 - 0x1p24f, 0x1p23f};
    return next_below(g, 4) ? (float)next_below(g, 1200) - 300.0f : far[next_below(g, 5)];
}

/* Masks and terms for the range of a row. Arrays hold what may be read, begin .. end - 1, and
 * nothing else. */
static void make_row(struct generator *g, unsigned kind, enum guard_side side,
                     struct mha_softmax_row *row) {
    static const float slopes[] = {0.5f, 0.00390625f, 0x1.6a09e6p-3f, 1.0f, -0.25f, 1e-40f, 1e37f};
    size_t count = row->end - row->begin;
    if (kind & KEEP) {
        row->keep = make_keep(g, count, side) - row->begin;
    }
    if (kind & BIAS) {
        row->bias = make_bias(g, count, side) - row->begin;
    }
    if (kind & ALIBI) {
        row->slope = slopes[next_below(g, 7)];
        row->position = random_position(g);
    }
}

/* Scores of the range; what is outside of it stays NaN. Some rows have no number but -inf, or
 * none that stays above it. */
static void make_scores(struct generator *g, const struct mha_softmax_row *row, enum input input,
                        float *scores) {
    static const float low[] = {-INFINITY, NAN, -FLT_MAX};
    size_t lows = next_below(g, 6) ? 0 : 1 + next_below(g, 3);
    for (size_t j = row->begin; j < row->end; j++) {
        scores[j] = lows > 0 ? low[next_below(g, lows)] : input_float(g, input);
        if (row->keep && row->keep[j] == 0 && next_below(g, 2)) {
            scores[j] = input_float(g, INPUT_NAN);
        }
    }
}

/* Row 0 has the range begin .. end - 1 and all that the kind says, the others any. */
static void make_call(struct generator *g, struct mha_softmax *x, unsigned kind, size_t begin,
                      size_t end) {
    static const float scales[] = {0.125f, 1.0f, 0x1.6a09e6p-3f, 3.0f, -0.5f, 0.0f, 1e-30f, 1e30f};
    static const float factors[] = {0.125f * MHA_LOG2E, 1.0f, 3.0f, 1e-30f, 1e30f};
    enum input input = next_below(g, 3) ? INPUT_LOGITS : pick_input(g);
    bool extreme = input != INPUT_LOGITS;
    enum guard_side side = next_below(g, 2) ? AT_START : AT_END;
    x->added = kind & ADDED;
    x->scale = x->added ? scales[next_below(g, extreme ? 8 : 5)] : NAN; /* must not be read */
    bool usual = x->added && next_below(g, 2);
    x->factor = usual ? MHA_LOG2E : factors[next_below(g, extreme ? 5 : 3)];
    x->stride = x->keys + (next_below(g, 2) ? 0 : next_below(g, 20));
    size_t shift = side == AT_START ? next_below(g, 16) * sizeof(float) : 0;
    x->scores = guarded_floats((x->rows - 1) * x->stride + x->keys, shift, side);
    x->max = guarded_floats(x->rows, 0, side);
    x->sum = guarded_floats(x->rows, 0, side);
    struct mha_softmax_row *rows = guarded_alloc(x->rows * sizeof *rows, 0, side);
    x->row = rows;
    for (size_t i = 0; i < x->rows; i++) {
        struct mha_softmax_row *row = &rows[i];
        *row = (struct mha_softmax_row){.begin = begin, .end = end};
        unsigned has = kind;
        if (i > 0) {
            row->end = next_below(g, x->keys + 1);
            row->begin = next_below(g, row->end + 1);
            has &= (unsigned)next_bits(g);
        }
        make_row(g, has, side, row);
        make_scores(g, row, input, x->scores + i * x->stride);
    }
}

/* ---- The contract's words --------------------------------------------------- */

static float term(const struct mha_softmax_row *row, size_t j) {
    float b = -(row->slope * fabsf(row->position - (float)j));
    return row->bias ? b + row->bias[j] : b;
}

static bool masked(const struct mha_softmax *x, const struct mha_softmax_row *row, size_t j) {
    return j < row->begin || j >= row->end || (row->keep && row->keep[j] == 0) ||
           (x->added && term(row, j) == -INFINITY);
}

/* Whether p may be the kernel's 2^x: within 1 unit in the last place, and 0 from -125.5 down. */
static bool is_power(float p, float x) {
    if (isnan(x)) {
        return isnan(p);
    }
    double exact = exp2((double)x);
    return x <= -125.5f ? bits_equal(p, 0.0f) : fabs((double)p - exact) <= exact * 0x1p-23;
}

static float sum_of(const float *p, size_t keys) {
    float lanes[16] = {0};
    for (size_t j = 0; j < keys; j++) {
        lanes[j % 16] += p[j];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t r = 0; r < half; r++) {
            lanes[r] += lanes[r + half];
        }
    }
    return lanes[0];
}

/* A row's results: t, the maximum and x in binary32, 2^x in binary64, the sum of what p holds. */
static void check_row(const struct mha_softmax *x, size_t i, const float *scores) {
    const struct mha_softmax_row *row = &x->row[i];
    const float *p = x->scores + i * x->stride;
    float t[MAX_KEYS], max = -INFINITY;
    bool attends = false;
    for (size_t j = 0; j < x->keys; j++) {
        t[j] = -INFINITY;
        if (!masked(x, row, j)) {
            t[j] = x->added ? fmaf(scores[j], x->scale, term(row, j)) : scores[j];
            attends = true;
        }
        max = t[j] > max ? t[j] : max;
    }
    max = max == 0.0f ? 0.0f : max;
    max = max == -INFINITY && attends ? -FLT_MAX : max;
    require(bits_equal(x->max[i], max), "%s: max[%zu] is %a, not %a", case_name(), i,
            (double)x->max[i], (double)max);
    for (size_t j = 0; j < x->keys; j++) {
        float power = (t[j] - max) * x->factor;
        bool good = masked(x, row, j) ? bits_equal(p[j], 0.0f) : is_power(p[j], power);
        require(good, "%s: p[%zu][%zu] is %a, not 2^%a", case_name(), i, j, (double)p[j],
                (double)power);
    }
    float sum = sum_of(p, x->keys);
    require(bits_equal(x->sum[i], sum), "%s: sum[%zu] is %a, not %a", case_name(), i,
            (double)x->sum[i], (double)sum);
}

/* ---- Cases ------------------------------------------------------------------ */

static void try_case(const struct mha_kernels *table, size_t rows, size_t keys, size_t begin,
                     size_t end, unsigned kind) {
    struct generator g = begin_case("softmax %s, rows %zu, keys %zu, range %zu..%zu, kind %u",
                                    table_name(table), rows, keys, begin, end, kind);
    if (skip_case()) {
        return;
    }
    struct mha_softmax x = {.rows = rows, .keys = keys};
    make_call(&g, &x, kind, begin, end);
    static float before[MAX_ROWS * (MAX_KEYS + 20)], p[MAX_ROWS * (MAX_KEYS + 20)];
    float max[MAX_ROWS], sum[MAX_ROWS];
    size_t size = (rows - 1) * x.stride + keys;
    memcpy(before, x.scores, size * sizeof *before);
    memcpy(p, before, size * sizeof *before);
    struct mha_softmax expected = x;
    expected.scores = p;
    expected.max = max;
    expected.sum = sum;
    reference_table()->softmax(&expected);
    table->softmax(&x);
    ck_assert_same("max", max, 1, x.max, 1, rows, 1);
    ck_assert_same("p", p, x.stride, x.scores, x.stride, rows, keys);
    ck_assert_same("sum", sum, 1, x.sum, 1, rows, 1);
    require(gaps_untouched(x.scores, x.stride, rows, keys), "%s: gaps", case_name());
    for (size_t i = 0; table->isa == MHA_ISA_SCALAR && i < rows; i++) {
        check_row(&x, i, before + i * x.stride);
    }
    guarded_free_all();
}

/* Test i is for the table i / KINDS and the kind i % KINDS. */
static const struct mha_kernels *table_of(int i, unsigned *kind) {
    *kind = kinds[i % KINDS];
    return tested_table((size_t)i / KINDS);
}

START_TEST(every_range) {
    unsigned kind;
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
    unsigned kind;
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
    unsigned kind;
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
        tcase_add_loop_test(test, every_range, i * KINDS, (i + 1) * KINDS);
        tcase_add_loop_test(test, long_rows, i * KINDS, (i + 1) * KINDS);
        tcase_add_loop_test(test, many_rows, i * KINDS, (i + 1) * KINDS);
        suite_add_tcase(suite, test);
    }
    return run_suite(suite);
}
