/* SPDX-License-Identifier: MIT
 *
 * mha run as a program: its files must equal the library's results for the same arguments, bit by
 * bit. test_errors.c has the errors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_fixture.h"

/* ---- Options that are no files -------------------------------------------------------- */

START_TEST(plain_options) {
    static const struct {
        const char *more[8];
        mha_mask mask;
        float scale;
        mha_masked_rows masked_rows;
    } cases[] = {
        {{NULL}, {.causal = MHA_CAUSAL_NONE}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--causal"}, {.causal = MHA_CAUSAL_BOTTOM_RIGHT}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--causal=bottom-right"}, {.causal = MHA_CAUSAL_BOTTOM_RIGHT}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--causal=top-left"}, {.causal = MHA_CAUSAL_TOP_LEFT}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--window", "2"}, {.window_left = 2, .window_right = 2}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--window-left", "2"}, {.window_left = 2}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--window=4", "--window-right=2"},
         {.window_left = 4, .window_right = 2},
         0,
         MHA_MASKED_ROWS_ZERO},
        {{"--window=1", "--query-offset=-3"},
         {.window_left = 1, .window_right = 1, .query_offset = -3},
         0,
         MHA_MASKED_ROWS_ZERO},
        {{"--query-offset", "-3", "--causal=top-left", "--masked-rows", "uniform"},
         {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = -3},
         0,
         MHA_MASKED_ROWS_UNIFORM},
        {{"--query-offset", "-3", "--causal=top-left", "--masked-rows=zero"},
         {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = -3},
         0,
         MHA_MASKED_ROWS_ZERO},
        {{"--scale", "1.5"}, {.causal = MHA_CAUSAL_NONE}, 1.5f, MHA_MASKED_ROWS_ZERO},
        {{"--scale=-0x1p-2"}, {.causal = MHA_CAUSAL_NONE}, -0.25f, MHA_MASKED_ROWS_ZERO},
        {{"--isa", "scalar", "--threads", "1"},
         {.causal = MHA_CAUSAL_NONE},
         0,
         MHA_MASKED_ROWS_ZERO},
        {{"--kv-heads", "3", "--isa=auto"}, {.causal = MHA_CAUSAL_NONE}, 0, MHA_MASKED_ROWS_ZERO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_case("options %s", cases[i].more[0] != NULL ? cases[i].more[0] : "none");
        expect_run(cases[i].more, &cases[i].mask, cases[i].scale, cases[i].masked_rows);
    }
}
END_TEST

/* --isa overrides $MHA_ISA. */
START_TEST(isa_over_the_variable) {
    float output[N_OUTPUT];
    begin_case("--isa scalar, MHA_ISA=mmx");
    forward(NULL, 0, MHA_MASKED_ROWS_ZERO, BATCH, output, NULL);
    setenv("MHA_ISA", "mmx", 1);
    run_with((const char *[]){"--isa", "scalar", NULL});
    unsetenv("MHA_ISA");
    expect_file("y", "(2, 5, 12)", output, N_OUTPUT);
}
END_TEST

/* ---- Inputs of other kinds ------------------------------------------------------------ */

/* (length, width) is a batch of 1; the outputs then have one dimension less, too. */
START_TEST(without_a_batch) {
    float output[N_OUTPUT], attention[N_ATTENTION];
    begin_case("no batch");
    forward(NULL, 0, MHA_MASKED_ROWS_ZERO, 1, output, attention);
    write_npy_floats("q", "(5, 12)", query, Q_LEN * D_MODEL);
    write_npy_floats("k", "(1, 7, 10)", key, KV_LEN * K_DIM);
    write_npy_floats("v", "(7, 9)", value, KV_LEN * V_DIM);
    run_with((const char *[]){NULL});
    expect_file("y", "(5, 12)", output, N_OUTPUT / BATCH);
    expect_file("a", "(3, 5, 7)", attention, N_ATTENTION / BATCH);
}
END_TEST

/* Self-attention with grouped heads; and calls without sequences or queries. */
START_TEST(self_attention_and_nothing) {
    static const char *const names[4] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                         "o_proj.weight"};
    static const char *const shapes[] = {"(2, 5, 12)", "(0, 5, 12)", "(2, 0, 12)", "(0, 12)"};
    float output[N_OUTPUT];
    const mha_config config = {.d_model = 12, .n_heads = 3, .n_kv_heads = 1};
    const mha_weights weights = {.q = weight[0], .k = weight[1], .v = weight[2], .o = weight[3]};
    compute(&config, &weights,
            &(mha_forward_args){.batch = BATCH, .q_len = Q_LEN, .query = query, .output = output});
    struct tensors tensors = {0};
    for (size_t i = 0; i < 4; i++) {
        bool is_kv = i == 1 || i == 2;
        add_tensor(&tensors, names[i], "F32", is_kv ? "[4,12]" : "[12,12]", weight[i],
                   is_kv ? 48 : 144);
    }
    const char *path = write_tensors("square", &tensors);
    for (size_t i = 0; i < 4; i++) {
        size_t count = i == 0 ? N_OUTPUT : 0;
        begin_case("self-attention of %s", shapes[i]);
        write_npy_floats("q", shapes[i], query, count);
        struct outcome outcome =
            run_tool("run", "--weights", path, "--heads", "3", "--kv-heads", "1", "--query",
                     in_scratch("q"), "--output", in_scratch("y"), NULL);
        require(outcome.status == 0, "%s: %s", case_name(), outcome.err);
        require(strstr(outcome.out, "biases      none\n") != NULL, "%s", outcome.out);
        expect_file("y", shapes[i], output, count);
    }
}
END_TEST

/* ---- Masks, lengths, slopes: every type, every shape that broadcasts ------------------ */

static const struct {
    const char *text;
    size_t rank;
    size_t dim[4];
} mask_shapes[] = {
    {"()", 0, {0}},
    {"(7,)", 1, {7}},
    {"(1,)", 1, {1}},
    {"(5, 7)", 2, {5, 7}},
    {"(1, 7)", 2, {1, 7}},
    {"(5, 1)", 2, {5, 1}},
    {"(3, 5, 7)", 3, {3, 5, 7}},
    {"(3, 1, 7)", 3, {3, 1, 7}},
    {"(2, 1, 1, 7)", 4, {2, 1, 1, 7}},
    {"(2, 1, 5, 7)", 4, {2, 1, 5, 7}},
    {"(1, 3, 1, 1)", 4, {1, 3, 1, 1}},
    {"(2, 3, 5, 7)", 4, {2, 3, 5, 7}},
    {"(2, 3, 5, 1)", 4, {2, 3, 5, 1}},
};

/* Element of a mask at (b, h, i, j), by NumPy's rule for broadcasting. */
static size_t broadcast_index(size_t shape, const size_t at[4]) {
    size_t index = 0, rank = mask_shapes[shape].rank;
    for (size_t i = 0; i < rank; i++) {
        size_t dim = mask_shapes[shape].dim[i];
        index = index * dim + (dim == 1 ? 0 : at[4 - rank + i]);
    }
    return index;
}

/* A mask's file, and the same mask dense for the library. */
static void make_mask(const char *name, size_t shape, const char *type, struct generator *g,
                      uint8_t *keep, float *add) {
    size_t count = 1;
    for (size_t i = 0; i < mask_shapes[shape].rank; i++) {
        count *= mask_shapes[shape].dim[i];
    }
    struct bytes bytes = {0};
    put_npy_type(&bytes, type, mask_shapes[shape].text);
    float values[N_ATTENTION];
    for (size_t i = 0; i < count; i++) {
        bool masked = next_below(g, 4) == 0;
        if (strchr(type, 'f') != NULL) {
            /* Exact in binary16, too. */
            values[i] = masked ? -INFINITY : (float)(int)next_below(g, 64) / 16.0f - 2.0f;
            put_float(&bytes, values[i], (size_t)(type[2] - '0'), type[0] == '>');
        } else {
            values[i] = masked ? 0 : strcmp(type, "|b1") == 0 ? 1 : (float)(1 + next_below(g, 255));
            put_number(&bytes, (uint64_t)values[i], 1, false);
        }
    }
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    for (size_t i = 0; i < N_ATTENTION; i++) {
        const size_t at[4] = {i / (HEADS * Q_LEN * KV_LEN), i / (Q_LEN * KV_LEN) % HEADS,
                              i / KV_LEN % Q_LEN, i % KV_LEN};
        float v = values[broadcast_index(shape, at)];
        if (keep != NULL) {
            keep[i] = v != 0;
        } else {
            add[i] = v;
        }
    }
}

START_TEST(masks_broadcast) {
    static const char *const types[] = {"|b1", "|u1", "<f4", ">f4", "<f8", ">f8", "<f2"};
    const char *more[] = {"--mask", "@m", NULL};
    uint8_t keep[N_ATTENTION];
    float add[N_ATTENTION];
    for (size_t s = 0; s < sizeof mask_shapes / sizeof mask_shapes[0]; s++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            struct generator g = begin_case("mask %s of %s", mask_shapes[s].text, types[t]);
            bool adds = strchr(types[t], 'f') != NULL;
            if (skip_case()) {
                continue;
            }
            make_mask("m", s, types[t], &g, adds ? NULL : keep, add);
            const mha_mask keeping = {.keep = keep, DENSE(keep)};
            const mha_mask adding = {.bias = add, DENSE(bias)};
            expect_run(more, adds ? &adding : &keeping, 0, MHA_MASKED_ROWS_ZERO);
        }
    }
}
END_TEST

START_TEST(all_masks_at_once) {
    static const char *const more[] = {"--mask",       "@m1", "--mask",  "@m2", "--causal",
                                       "--kv-lengths", "@l",  "--alibi", "@s",  NULL};
    uint8_t keep[N_ATTENTION];
    float add[N_ATTENTION];
    struct generator g = begin_case("all masks");
    make_mask("m1", 9, "<f4", &g, NULL, add);
    make_mask("m2", 3, "|b1", &g, keep, NULL);
    static const size_t lengths[2] = {6, 3};
    static const float slopes[3] = {0.5f, -0.25f, 0};
    struct bytes bytes = {0};
    put_npy_header(&bytes, 2, "{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }");
    put_number(&bytes, 6, 4, true);
    put_number(&bytes, 3, 4, true);
    write_bytes("l", &bytes, bytes.size);
    bytes_free(&bytes);
    write_npy_floats("s", "(3,)", slopes, 3);
    const mha_mask mask = {.keep = keep,
                           DENSE(keep),
                           .bias = add,
                           DENSE(bias),
                           .kv_lengths = lengths,
                           .alibi_slopes = slopes,
                           .causal = MHA_CAUSAL_BOTTOM_RIGHT};
    expect_run(more, &mask, 0, MHA_MASKED_ROWS_ZERO);
}
END_TEST

START_TEST(lengths_of_every_integer) {
    static const struct {
        const char *type;
        size_t size;
        bool big;
    } types[] = {{"|u1", 1, false}, {"|i1", 1, false}, {"<u2", 2, false}, {">i2", 2, true},
                 {"<u4", 4, false}, {"<i4", 4, false}, {">u8", 8, true},  {"<i8", 8, false}};
    static const size_t lengths[2] = {0, 7};
    static const char *const more[] = {"--kv-lengths", "@l", "--masked-rows=uniform", NULL};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct bytes bytes = {0};
        char dict[200];
        begin_case("lengths of %s", types[i].type);
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': True, 'shape': (2,)}",
                 types[i].type);
        put_npy_header(&bytes, 1, dict);
        put_number(&bytes, 0, types[i].size, types[i].big);
        put_number(&bytes, 7, types[i].size, types[i].big);
        write_bytes("l", &bytes, bytes.size);
        bytes_free(&bytes);
        expect_run(more, &(mha_mask){.kv_lengths = lengths}, 0, MHA_MASKED_ROWS_UNIFORM);
    }
}
END_TEST

/* The paper's slopes for 3 heads: those of 2 heads, 2^-4 and 2^-8, and the first of 4
 * heads, 2^-2. */
START_TEST(alibi_auto) {
    static const char *const more[] = {"--alibi", "auto", NULL};
    static const float slopes[3] = {0x1p-4f, 0x1p-8f, 0x1p-2f};
    begin_case("alibi auto");
    expect_run(more, &(mha_mask){.alibi_slopes = slopes}, 0, MHA_MASKED_ROWS_ZERO);
}
END_TEST

/* ---- What it says ----------------------------------------------------------------------- */

START_TEST(summary) {
    begin_case("summary");
    struct outcome outcome = run_with((const char *[]){"--isa", "scalar", NULL});
    static const char *const lines[] = {
        "biases      q k v o\n",          "layer       d_model 12, 3 heads of 4\n",
        "query       (2, 5, 12)",         "key         (2, 7, 10)",
        "value       (2, 7, 9)",          "output      (2, 5, 12)",
        "attention   (2, 3, 5, 7)",       "isa         scalar\n",
        " ms for one call of mha_forward"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        require(strstr(outcome.out, lines[i]) != NULL, "'%s' is not in:\n%s", lines[i],
                outcome.out);
    }
}
END_TEST

START_TEST(expectations) {
    float output[N_OUTPUT];
    begin_case("expect");
    forward(NULL, 0, MHA_MASKED_ROWS_ZERO, BATCH, output, NULL);
    float largest = 0;
    for (size_t i = 0; i < N_OUTPUT; i++) {
        largest = fabsf(output[i]) > largest ? fabsf(output[i]) : largest;
    }
    size_t changed = 0; /* any element but the largest */
    while (fabsf(output[changed]) > 0.25f * largest) {
        changed++;
    }
    char element[32];
    snprintf(element, sizeof element, "(element %zu)", changed);
    static const struct {
        float change; /* in units of the largest value, of one element */
        const char *tolerance;
        int status;
    } cases[] = {
        {0, "0", 0},        {0, "1e-9", 0}, {0.5f, NULL, 0},  {0.125f, "0.2", 0},
        {0.125f, "0.1", 1}, {NAN, NULL, 0}, {NAN, "1e30", 1}, {INFINITY, "1e30", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float expected[N_OUTPUT];
        memcpy(expected, output, sizeof expected);
        expected[changed] += cases[i].change * largest;
        write_npy_floats("e", "(2, 5, 12)", expected, N_OUTPUT);
        struct outcome outcome =
            run_tool("run", "--weights", in_scratch("w"), "--heads", "3", "--query",
                     in_scratch("q"), "--key", in_scratch("k"), "--value", in_scratch("v"),
                     "--output", in_scratch("y"), "--expect", in_scratch("e"),
                     cases[i].tolerance != NULL ? "--tolerance" : NULL, cases[i].tolerance, NULL);
        require(outcome.status == cases[i].status, "case %zu: status %d, %s%s", i, outcome.status,
                outcome.out, outcome.err);
        require(strstr(outcome.out, "difference  ") != NULL, "case %zu: %s", i, outcome.out);
        require(cases[i].change == 0 || strstr(outcome.out, element) != NULL, "case %zu: %s", i,
                outcome.out);
        require((outcome.status == 0) == (outcome.err[0] == '\0'), "case %zu: %s", i, outcome.err);
        require(outcome.status == 0 || strstr(outcome.err, "the output differs by") != NULL,
                "case %zu: %s", i, outcome.err);
        expect_file("y", "(2, 5, 12)", output, N_OUTPUT);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-run");
    TCase *tcase = tcase_create("run");
    require_tool();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, run_setup, scratch_teardown);
    tcase_add_test(tcase, plain_options);
    tcase_add_test(tcase, isa_over_the_variable);
    tcase_add_test(tcase, without_a_batch);
    tcase_add_test(tcase, self_attention_and_nothing);
    tcase_add_test(tcase, masks_broadcast);
    tcase_add_test(tcase, all_masks_at_once);
    tcase_add_test(tcase, lengths_of_every_integer);
    tcase_add_test(tcase, alibi_auto);
    tcase_add_test(tcase, summary);
    tcase_add_test(tcase, expectations);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
