/* SPDX-License-Identifier: MIT
 *
 * mha run as a program: its files against the library called with the same arguments
 * spelled out in full, bit by bit. test_masks.c has masks, test_errors.c what goes wrong.
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
        {{NULL}, {.window = 0}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--causal"}, {.causal = MHA_CAUSAL_BOTTOM_RIGHT}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--causal=bottom-right"}, {.causal = MHA_CAUSAL_BOTTOM_RIGHT}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--causal=top-left"}, {.causal = MHA_CAUSAL_TOP_LEFT}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--window", "2"}, {.window = 2}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--window=1", "--query-offset=-3"},
         {.window = 1, .query_offset = -3},
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
        {{"--scale", "1.5"}, {.window = 0}, 1.5f, MHA_MASKED_ROWS_ZERO},
        {{"--scale=-0x1p-2"}, {.window = 0}, -0.25f, MHA_MASKED_ROWS_ZERO},
        {{"--isa", "scalar", "--threads", "1"}, {.window = 0}, 0, MHA_MASKED_ROWS_ZERO},
        {{"--kv-heads", "3", "--isa=auto"}, {.window = 0}, 0, MHA_MASKED_ROWS_ZERO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_case("options %s", cases[i].more[0] != NULL ? cases[i].more[0] : "none");
        expect_run(cases[i].more, &cases[i].mask, cases[i].scale, cases[i].masked_rows);
    }
}
END_TEST

/* --isa takes the place of $MHA_ISA, whatever that asks for. */
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

/* The query as big-endian doubles in Fortran order. */
START_TEST(query_of_another_kind) {
    static const char *const more[] = {NULL};
    struct bytes bytes = {0};
    begin_case("query '>f8' in Fortran order");
    put_npy_header(&bytes, 3, "{'descr': '>f8', 'fortran_order': True, 'shape': (2, 5, 12)}");
    for (size_t c = 0; c < D_MODEL; c++) {
        for (size_t i = 0; i < Q_LEN; i++) {
            for (size_t b = 0; b < BATCH; b++) {
                double v = (double)query[(b * Q_LEN + i) * D_MODEL + c];
                uint64_t bits;
                memcpy(&bits, &v, sizeof bits);
                put_number(&bytes, bits, 8, true);
            }
        }
    }
    write_bytes("q", &bytes, bytes.size);
    bytes_free(&bytes);
    expect_run(more, NULL, 0, MHA_MASKED_ROWS_ZERO);
}
END_TEST

/* (length, width) is a batch of 1, and the outputs have a dimension less, too. */
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

static void write_square_layer(void) {
    static const char *const names[4] = {"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                         "o_proj.weight"};
    struct tensors tensors = {0};
    for (size_t i = 0; i < 4; i++) {
        size_t rows = i == 1 || i == 2 ? 4 : 12;
        char shape[32];
        snprintf(shape, sizeof shape, "[%zu,12]", rows);
        add_tensor(&tensors, names[i], "F32", shape, weight[i], rows * 12);
    }
    write_tensors("square", &tensors);
}

/* Self-attention with grouped heads; and no sequences, no queries. */
START_TEST(self_attention_and_nothing) {
    float output[N_OUTPUT];
    const mha_config config = {.d_model = 12, .n_heads = 3, .n_kv_heads = 1};
    const mha_weights weights = {.q = weight[0], .k = weight[1], .v = weight[2], .o = weight[3]};
    const mha_forward_args args = {
        .batch = BATCH, .q_len = Q_LEN, .query = query, .output = output};
    mha_layer *layer;
    mha_context *context;
    begin_case("self-attention");
    ck_assert(mha_layer_create(&config, &weights, &layer) == MHA_OK);
    ck_assert(mha_context_create(NULL, &context) == MHA_OK);
    ck_assert(mha_forward(context, layer, &args) == MHA_OK);
    mha_layer_destroy(&layer);
    mha_context_destroy(&context);
    write_square_layer();
    const char *shapes[] = {"(2, 5, 12)", "(0, 5, 12)", "(2, 0, 12)", "(0, 12)"};
    for (size_t i = 0; i < 4; i++) {
        size_t count = i == 0 ? N_OUTPUT : 0;
        write_npy_floats("q", shapes[i], query, count);
        struct outcome outcome =
            run_tool("run", "--weights", in_scratch("square"), "--heads", "3", "--kv-heads", "1",
                     "--query", in_scratch("q"), "--output", in_scratch("y"), NULL);
        require(outcome.status == 0, "%s: %s", shapes[i], outcome.err);
        require(strstr(outcome.out, "biases      none\n") != NULL, "%s", outcome.out);
        expect_file("y", shapes[i], output, count);
    }
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
    size_t changed = 0; /* an element that is not the largest, whatever it becomes */
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

/* The array alone goes to standard output, pipe or file; what is said goes to standard error. */
START_TEST(through_standard_output) {
    static const struct {
        const char *output, *redirection;
    } cases[] = {
        {"/dev/stdout", "| cat >"},
        {"/dev/stdout", ">"},
        {"/dev/stdout", ">>"},
        {NULL, ">"}, /* the file by its own name */
    };
    char command[4096];
    const char *wrapper = getenv("MHA_EXE_WRAPPER");
    float output[N_OUTPUT];
    forward(NULL, 0, MHA_MASKED_ROWS_ZERO, BATCH, output, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *y = in_scratch("y");
        const char *to = cases[i].output != NULL ? cases[i].output : y;
        begin_case("--output %s %s y", to, cases[i].redirection);
        remove(y);
        snprintf(command, sizeof command,
                 "%s %s run --weights %s --heads 3 --query %s --key %s --value %s --output %s "
                 "2> %s %s %s",
                 wrapper != NULL ? wrapper : "", getenv("MHA_TOOL"), in_scratch("w"),
                 in_scratch("q"), in_scratch("k"), in_scratch("v"), to, in_scratch("said"),
                 cases[i].redirection, y);
        require(system(command) == 0, "%s: failed", case_name());
        expect_file("y", "(2, 5, 12)", output, N_OUTPUT);
        struct bytes said = read_bytes(in_scratch("said"));
        require(strstr((char *)said.data, "isa         ") != NULL, "%s: said %s", case_name(),
                (char *)said.data);
        bytes_free(&said);
    }
}
END_TEST

/* Two arrays do not go to standard output, by whatever names: nothing is written. */
START_TEST(twice_through_standard_output) {
    static const char *const redirections[] = {"| cat >", ">", ">>"};
    char command[4096];
    const char *wrapper = getenv("MHA_EXE_WRAPPER");
    for (size_t i = 0; i < sizeof redirections / sizeof redirections[0]; i++) {
        const char *y = in_scratch("y");
        begin_case("two outputs %s y", redirections[i]);
        remove(y);
        snprintf(command, sizeof command,
                 "%s %s run --weights %s --heads 3 --query %s --key %s --value %s "
                 "--output /dev/stdout --attention %s 2> %s %s %s",
                 wrapper != NULL ? wrapper : "", getenv("MHA_TOOL"), in_scratch("w"),
                 in_scratch("q"), in_scratch("k"), in_scratch("v"), i == 0 ? "/dev/stdout" : y,
                 in_scratch("said"), redirections[i], y);
        int status = system(command);
        struct bytes written = read_bytes(y), said = read_bytes(in_scratch("said"));
        require(i == 0 || status != 0, "%s: taken", case_name()); /* a pipe's status is cat's */
        require(written.size == 0, "%s: %zu bytes were written", case_name(), written.size);
        require(strstr((char *)said.data, "asked to hold two outputs\n") != NULL, "%s: said %s",
                case_name(), (char *)said.data);
        bytes_free(&written);
        bytes_free(&said);
    }
}
END_TEST

/* The output may replace the query: all is read before anything is written. */
START_TEST(over_its_own_input) {
    float output[N_OUTPUT];
    begin_case("output over the query");
    forward(NULL, 0, MHA_MASKED_ROWS_ZERO, BATCH, output, NULL);
    struct outcome outcome = run_tool(
        "run", "--weights", in_scratch("w"), "--heads", "3", "--query", in_scratch("q"), "--key",
        in_scratch("k"), "--value", in_scratch("v"), "--output", in_scratch("q"), NULL);
    require(outcome.status == 0, "%s", outcome.err);
    expect_file("q", "(2, 5, 12)", output, N_OUTPUT);
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
    tcase_add_test(tcase, query_of_another_kind);
    tcase_add_test(tcase, without_a_batch);
    tcase_add_test(tcase, self_attention_and_nothing);
    tcase_add_test(tcase, summary);
    tcase_add_test(tcase, expectations);
    tcase_add_test(tcase, through_standard_output);
    tcase_add_test(tcase, twice_through_standard_output);
    tcase_add_test(tcase, over_its_own_input);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
