/* SPDX-License-Identifier: MIT
 *
 * What the program does with wrong command lines, wrong files and full disks: one line in
 * words on standard error, nothing on standard output, exit status 1 or 2, and no file
 * left or changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

/* Nothing but one line "mha: ..." with `message` in it. */
static void expect_error(struct outcome outcome, int status, const char *message) {
    size_t length = strlen(outcome.err);
    require(outcome.status == status, "%s: status %d, not %d: %s%s", case_name(), outcome.status,
            status, outcome.out, outcome.err);
    require(outcome.out[0] == '\0', "%s: printed %s", case_name(), outcome.out);
    require(strncmp(outcome.err, "mha: ", 5) == 0 && length > 0 &&
                strchr(outcome.err, '\n') == outcome.err + length - 1,
            "%s: not one line: %s", case_name(), outcome.err);
    require(strstr(outcome.err, message) != NULL, "%s: '%s' is not in: %s", case_name(), message,
            outcome.err);
}

/* ---- Files to be wrong about ------------------------------------------------------------ */

static void write_zeros(const char *name, const char *type, const char *shape, size_t bytes_) {
    struct bytes bytes = {0};
    char dict[200];
    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type,
             shape);
    put_npy_header(&bytes, 1, dict);
    for (size_t i = 0; i < bytes_; i++) {
        put_number(&bytes, 0, 1, false);
    }
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
}

static void write_layer(const char *name, const char *prefix, size_t k_dim, size_t v_dim) {
    static const char *const names[4] = {"W_q", "W_k", "W_v", "W_o"};
    const size_t columns[4] = {6, k_dim, v_dim, 6};
    const float zeros[72] = {0};
    struct tensors tensors = {0};
    for (size_t i = 0; i < 4; i++) {
        char full[64], shape[32];
        snprintf(full, sizeof full, "%s%s", prefix, names[i]);
        snprintf(shape, sizeof shape, "[6,%zu]", columns[i]);
        add_tensor(&tensors, full, "F32", shape, zeros, 6 * columns[i]);
    }
    write_tensors(name, &tensors);
}

static void setup(void) {
    scratch_setup();
    write_layer("w", "", 6, 6);
    write_layer("w_cross", "", 5, 4);
    write_layer("w_v", "", 6, 4);
    struct bytes whole = read_bytes(in_scratch("w"));
    write_bytes("w_cut", &whole, whole.size - 1);
    bytes_free(&whole);
    write_zeros("q", "<f4", "(2, 3, 6)", 144);
    write_zeros("q_2d", "<f4", "(3, 6)", 72);
    write_zeros("q_1d", "<f4", "(6,)", 24);
    write_zeros("q_4d", "<f4", "(1, 2, 3, 6)", 144);
    write_zeros("q_wide", "<f4", "(2, 3, 7)", 168);
    write_zeros("q_int", "<i4", "(2, 3, 6)", 144);
    write_zeros("q_cut", "<f4", "(2, 3, 6)", 143);
    write_zeros("k_batch", "<f4", "(3, 3, 6)", 216);
    write_zeros("k", "<f4", "(2, 4, 6)", 192);
    write_zeros("k_5", "<f4", "(2, 4, 5)", 160);
    write_zeros("m", "|b1", "(3, 3)", 9);
    write_zeros("m_f", "<f4", "(3, 3)", 36);
    write_zeros("m_i8", "|i1", "(3, 3)", 9);
    write_zeros("m_i64", "<i8", "(3, 3)", 72);
    write_zeros("m_shape", "|b1", "(2, 3)", 6);
    write_zeros("m_5d", "|b1", "(1, 1, 1, 3, 3)", 9);
    write_zeros("m_0", "|b1", "(0, 3)", 0);
    write_zeros("l_3", "<i8", "(3,)", 24);
    write_zeros("l_2d", "<i8", "(1, 2)", 16);
    write_zeros("l_float", "<f4", "(2,)", 8);
    write_zeros("l_bool", "|b1", "(2,)", 2);
    write_zeros("s_3", "<f4", "(3,)", 12);
    write_zeros("s_int", "<i4", "(2,)", 8);
    struct bytes bytes = {0};
    put_npy_header(&bytes, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}");
    put_number(&bytes, 3, 4, false);
    put_number(&bytes, (uint64_t)-1, 4, false);
    write_bytes("l_minus", &bytes, bytes.size);
    put_number(&bytes, 0, 0, false);
    bytes.data[bytes.size - 4] = 4;
    memset(bytes.data + bytes.size - 3, 0, 3);
    write_bytes("l_4", &bytes, bytes.size);
    bytes_free(&bytes);
    bytes = (struct bytes){0};
    put_npy_header(&bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}");
    put_number(&bytes, 0x7f800000, 4, false);
    put_number(&bytes, 0, 4, false);
    write_bytes("s_inf", &bytes, bytes.size);
    bytes_free(&bytes);
}

/* ---- Command lines ------------------------------------------------------------------------ */

#define RUN "run", "--weights", "@w", "--heads", "2", "--query", "@q", "--output", "@y"

static const struct {
    int status;
    const char *message;
    const char *arguments[20];
} cases[] = {
    {2, "no command given", {NULL}},
    {2, "unknown command 'walk'", {"walk"}},
    {2, "unknown command '--verbose'", {"--verbose"}},
    /* Options. */
    {2, "--weights is needed", {"run"}},
    {2, "--heads is needed", {"run", "--weights", "@w", "--query", "@q", "--output", "@y"}},
    {2, "--query is needed", {"run", "--weights", "@w", "--heads", "2", "--output", "@y"}},
    {2, "--output is needed", {"run", "--weights", "@w", "--heads", "2", "--query", "@q"}},
    {2, "unknown option '--wieghts'", {"run", "--wieghts", "@w"}},
    {2, "unknown option '--weight'", {"run", "--weight=w"}},
    {2, "unknown option '--'", {RUN, "--"}},
    {2, "unexpected argument 'extra'", {RUN, "extra"}},
    {2, "unexpected argument '-q'", {"run", "-q", "@q"}},
    {2, "--heads is given twice", {RUN, "--heads", "2"}},
    {2, "--causal is given twice", {RUN, "--causal", "--causal"}},
    {2, "--mask is given more than twice", {RUN, "--mask=a", "--mask=b", "--mask=c"}},
    {2, "--key needs a value", {RUN, "--key"}},
    {2, "--key needs a value", {RUN, "--key", "--causal"}},
    {2, "--key needs a value", {RUN, "--key="}},
    {2, "--key needs a value", {RUN, "--key", ""}},
    {2, "--help takes no value", {"run", "--help=me"}},
    {2, "--causal 'both' is neither", {RUN, "--causal=both"}},
    {2, "--causal '' is neither", {RUN, "--causal="}},
    {2, "unexpected argument 'top-left'", {RUN, "--causal", "top-left"}},
    {2, "--masked-rows 'nan' is neither", {RUN, "--masked-rows", "nan"}},
    {2, "--isa: ", {RUN, "--isa", "sse2"}},
    {2, "--isa: ", {RUN, "--isa", "Scalar"}},
    {2, "--tolerance needs --expect", {RUN, "--tolerance", "1"}},
    {2, "--tolerance '-1' is negative", {RUN, "--expect", "@q", "--tolerance", "-1"}},
    /* Numbers. */
    {2,
     "--heads '0' is not a whole number from 1",
     {"run", "--weights", "@w", "--heads", "0", "--query", "@q", "--output", "@y"}},
    {2, "--kv-heads '0' is not", {RUN, "--kv-heads", "0"}},
    {2, "--kv-heads '-1' is not", {RUN, "--kv-heads", "-1"}},
    {2, "--kv-heads '+1' is not", {RUN, "--kv-heads", "+1"}},
    {2, "--kv-heads ' 1' is not", {RUN, "--kv-heads", " 1"}},
    {2, "--kv-heads '1.0' is not", {RUN, "--kv-heads", "1.0"}},
    {2, "--kv-heads '0x1' is not", {RUN, "--kv-heads", "0x1"}},
    {2, "--kv-heads 'two' is not", {RUN, "--kv-heads", "two"}},
    {2, "--kv-heads '1x' is not", {RUN, "--kv-heads", "1x"}},
    {2, "--kv-heads '18446744073709551616' is not", {RUN, "--kv-heads", "18446744073709551616"}},
    {2, "--window '99999999999999999999999' is not", {RUN, "--window", "99999999999999999999999"}},
    {2, "--window '0' is not a whole number from 1", {RUN, "--window", "0"}},
    {2, "--threads '0' is not", {RUN, "--threads", "0"}},
    {2, "--query-offset '1.5' is not", {RUN, "--query-offset", "1.5"}},
    {2, "--query-offset '-' is not", {RUN, "--query-offset", "-"}},
    {2,
     "--query-offset '9223372036854775808' is not",
     {RUN, "--query-offset", "9223372036854775808"}},
    {2, "--scale 'large' is not a finite number", {RUN, "--scale", "large"}},
    {2, "--scale 'nan' is not a finite number", {RUN, "--scale", "nan"}},
    {2, "--scale 'inf' is not a finite number", {RUN, "--scale", "inf"}},
    {2, "--scale '1e999' is not a finite number", {RUN, "--scale", "1e999"}},
    {2, "--scale '1e99' is inf as a float", {RUN, "--scale", "1e99"}},
    {2, "--scale '0' is 0 as a float", {RUN, "--scale", "0"}},
    {2, "--scale '1e-99' is 0 as a float", {RUN, "--scale", "1e-99"}},
    {2, "--scale '1,5' is not", {RUN, "--scale", "1,5"}},
    {2, "--scale ' ' is not", {RUN, "--scale= "}},
    /* What the library refuses. */
    {1, "threads (2)", {RUN, "--threads", "2"}},
    {1, "heads", {"run", "--weights", "@w", "--heads", "4", "--query", "@q", "--output", "@y"}},
    {1, "6 rows", {"run", "--weights", "@w", "--heads", "4", "--query", "@q", "--output", "@y"}},
    {1, "alibi", {RUN, "--alibi", "@s_inf"}},
    /* Weights; the formats' own faults are in test_safetensors.c and test_names.c. */
    {1,
     "none: No such file",
     {"run", "--weights", "@none", "--heads", "2", "--query", "@q", "--output", "@y"}},
    {1,
     "w_cut: ",
     {"run", "--weights", "@w_cut", "--heads", "2", "--query", "@q", "--output", "@y"}},
    {1,
     "q: not a safetensors file",
     {"run", "--weights", "@q", "--heads", "2", "--query", "@q", "--output", "@y"}},
    {1,
     "not a regular file",
     {"run", "--weights", "/dev/null", "--heads", "2", "--query", "@q", "--output", "@y"}},
    {1, "no attention layer found at --prefix 'x'", {RUN, "--prefix", "x"}},
    {1, "is not 1 key/value heads", {RUN, "--kv-heads", "1"}},
    /* Inputs. */
    {1,
     "none: No such file",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@none", "--output", "@y"}},
    {1,
     "w: not a .npy file",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@w", "--output", "@y"}},
    {1,
     "q_cut: truncated",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q_cut", "--output", "@y"}},
    {1,
     "q_1d: shape (6,) is neither",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q_1d", "--output", "@y"}},
    {1,
     "q_4d: shape (1, 2, 3, 6) is neither",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q_4d", "--output", "@y"}},
    {1,
     "q_wide: width 7 of shape (2, 3, 7) is not the layer's d_model 6",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q_wide", "--output", "@y"}},
    {1,
     "q_int: int32 values, where float16, float32 or float64 are needed",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q_int", "--output", "@y"}},
    {1, "k_batch: batch 3 is not the query's 2", {RUN, "--key", "@k_batch"}},
    {1, "q_2d: batch 1 is not the query's 2", {RUN, "--key", "@q_2d"}},
    {1, "k_5: width 5 of shape (2, 4, 5) is not the layer's k_dim 6", {RUN, "--key", "@k_5"}},
    {1, "k: batch 2 and length 4 are not the query's 2 and 3", {RUN, "--value", "@k"}},
    {1, "q: batch 2 and length 3 are not the key's 2 and 4", {RUN, "--key", "@k", "--value", "@q"}},
    {1,
     "--key is needed: the layer's k_dim 5 is not its d_model 6",
     {"run", "--weights", "@w_cross", "--heads", "2", "--query", "@q", "--output", "@y"}},
    {1,
     "--value is needed: the layer's v_dim 4 is not its k_dim 6",
     {"run", "--weights", "@w_v", "--heads", "2", "--query", "@q", "--output", "@y"}},
    /* Masks, lengths, slopes. */
    {1, "m_i8: int8 values make no mask", {RUN, "--mask", "@m_i8"}},
    {1, "m_i64: int64 values make no mask", {RUN, "--mask", "@m_i64"}},
    {1,
     "m_shape: shape (2, 3) does not broadcast to (batch, heads, q_len, kv_len) = (2, 2, 3, 3)",
     {RUN, "--mask", "@m_shape"}},
    {1, "m_5d: shape (1, 1, 1, 3, 3) does not broadcast", {RUN, "--mask", "@m_5d"}},
    {1, "m_0: shape (0, 3) does not broadcast", {RUN, "--mask", "@m_0"}},
    {1, "m: a second mask that keeps", {RUN, "--mask", "@m", "--mask", "@m"}},
    {1, "m_f: a second mask that is added", {RUN, "--mask", "@m_f", "--mask", "@m_f"}},
    {1, "l_3: shape (3,) is not (batch,) = (2,)", {RUN, "--kv-lengths", "@l_3"}},
    {1, "l_2d: shape (1, 2) is not (batch,) = (2,)", {RUN, "--kv-lengths", "@l_2d"}},
    {1, "l_float: float32 values, where integers are needed", {RUN, "--kv-lengths", "@l_float"}},
    {1, "l_bool: bool values, where integers are needed", {RUN, "--kv-lengths", "@l_bool"}},
    {1, "l_minus: length 1 is negative (-1)", {RUN, "--kv-lengths", "@l_minus"}},
    {1, "l_4: length 1 is 4, beyond the 3 keys there are", {RUN, "--kv-lengths", "@l_4"}},
    {1, "s_3: shape (3,) is not (heads,) = (2,)", {RUN, "--alibi", "@s_3"}},
    {1, "s_int: int32 values", {RUN, "--alibi", "@s_int"}},
    /* Expectations. */
    {1, "q_wide: shape (2, 3, 7) is not the output's (2, 3, 6)", {RUN, "--expect", "@q_wide"}},
    {1, "q_2d: shape (3, 6) is not the output's (2, 3, 6)", {RUN, "--expect", "@q_2d"}},
    {1, "q_int: int32 values, where floats are needed", {RUN, "--expect", "@q_int"}},
    {1, "none: No such file", {RUN, "--expect", "@none"}},
    /* Places to write to. */
    {1,
     "none/y: No such file",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q", "--output", "@none/y"}},
    {1,
     "q/y: Not a directory",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q", "--output", "@q/y"}},
    {1,
     "Is a directory",
     {"run", "--weights", "@w", "--heads", "2", "--query", "@q", "--output", "@"}},
    {1, "none/a: No such file", {RUN, "--attention", "@none/a"}},
    {1, "asked to hold two outputs", {RUN, "--attention", "@y"}},
    /* The other commands. */
    {2, "unknown option '--jsn'", {"info", "--jsn"}},
    {2, "unexpected argument 'json'", {"info", "json"}},
    {2, "--json takes no value", {"info", "--json=1"}},
    {2, "unknown option '--fast'", {"check", "--fast"}},
    {2, "--seed 'x' is not", {"check", "--seed", "x"}},
    {2, "--isa: ", {"check", "--isa", "mmx"}},
};

START_TEST(wrong_arguments) {
    size_t files = scratch_count();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *arguments[24] = {NULL};
        for (size_t n = 0; cases[i].arguments[n] != NULL; n++) {
            const char *argument = cases[i].arguments[n];
            arguments[n] = argument[0] == '@' ? in_scratch(argument + 1) : argument;
        }
        begin_case("arguments, case %zu (%s)", i, cases[i].message);
        if (skip_case()) {
            continue;
        }
        expect_error(run_tool_list(arguments), cases[i].status, cases[i].message);
        require(scratch_count() == files, "%s: a file was left", case_name());
    }
}
END_TEST

/* An ISA that there is none of here. */
START_TEST(unsupported_isa) {
    for (mha_isa isa = MHA_ISA_SCALAR; isa < MHA_ISA_COUNT; isa++) {
        if (mha_isa_supported(isa)) {
            continue;
        }
        const char *name = mha_isa_name(isa);
        begin_case("ISA %s", name);
        expect_error(run_tool("run", "--weights", in_scratch("w"), "--heads", "2", "--query",
                              in_scratch("q"), "--output", in_scratch("y"), "--isa", name, NULL),
                     1, "not supported by this");
        expect_error(run_tool("check", "--quick", "--isa", name, NULL), 1, "not supported by this");
        setenv("MHA_ISA", name, 1);
        expect_error(run_tool("info", NULL), 1, "MHA_ISA: ");
        unsetenv("MHA_ISA");
    }
}
END_TEST

/* ---- Names that try to break the line ------------------------------------------------------ */

START_TEST(control_characters) {
    begin_case("a newline in a file's name");
    expect_error(run_tool("run", "--weights", in_scratch("no\nne\x1b[31m"), "--heads", "2",
                          "--query", in_scratch("q"), "--output", in_scratch("y"), NULL),
                 1, "no?ne?[31m: No such file");
    struct tensors tensors = {0};
    const float zero = 0;
    begin_case("a newline in a tensor's name");
    add_tensor(&tensors, "a\\nb", "F32", "[1]", &zero, 1);
    expect_error(run_tool("run", "--weights", write_tensors("w_nl", &tensors), "--heads", "2",
                          "--query", in_scratch("q"), "--output", in_scratch("y"), NULL),
                 1, "the file has: a?b");
}
END_TEST

/* ---- Full and closed ------------------------------------------------------------------------ */

static struct outcome run_to(const char *output, const char *attention) {
    return run_tool("run", "--weights", in_scratch("w"), "--heads", "2", "--query", in_scratch("q"),
                    "--output", output, attention != NULL ? "--attention" : NULL, attention, NULL);
}

START_TEST(full_device) {
    if (access("/dev/full", W_OK) != 0) {
        printf("SKIP: full_device: no /dev/full here\n");
        return;
    }
    size_t files = scratch_count();
    begin_case("/dev/full");
    expect_error(run_to("/dev/full", NULL), 1, "mha: /dev/full: No space left on device");
    expect_error(run_to(in_scratch("y"), "/dev/full"), 1, "/dev/full: No space left on device");
    expect_error(run_to("/dev/full", in_scratch("a")), 1, "/dev/full: No space left on device");
    ck_assert_uint_eq(scratch_count(), files);
}
END_TEST

/* The program's own words can't be had: the arrays are written all the same. */
START_TEST(full_standard_output) {
    char command[2048];
    const char *wrapper = getenv("MHA_EXE_WRAPPER");
    begin_case("standard output is full");
    if (access("/dev/full", W_OK) != 0) {
        printf("SKIP: full_standard_output: no /dev/full here\n");
        return;
    }
    static const char *const whats[] = {"info", "info --json", "--help", "--version", "run --help"};
    for (size_t i = 0; i < sizeof whats / sizeof whats[0]; i++) {
        snprintf(command, sizeof command, "%s %s %s > /dev/full 2> %s",
                 wrapper != NULL ? wrapper : "", getenv("MHA_TOOL"), whats[i], in_scratch("said"));
        int status = system(command);
        struct bytes said = read_bytes(in_scratch("said"));
        require(status != 0 && strstr((char *)said.data, "mha: standard output: No space") != NULL,
                "%s: %s", whats[i], (char *)said.data);
        bytes_free(&said);
    }
}
END_TEST

/* A disk that is full after 200 bytes: the output of 128 + 144 bytes doesn't fit; what was
 * there before stays. Of two outputs the second may be the one. */
START_TEST(file_size_limit) {
    struct rlimit before, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    write_zeros("old", "<f4", "(1,)", 4);
    struct bytes old = read_bytes(in_scratch("old"));
    size_t files = scratch_count();
    static const struct {
        const char *label;
        size_t limit;
        bool attention;
    } limits[] = {
        {"in the data", 200, false},
        {"in the header", 100, false},
        {"at once", 0, false},
        /* 128 + 144 bytes of output fit, 128 + 192 of attention don't. */
        {"the second output", 300, true},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        small.rlim_cur = limits[i].limit;
        begin_case("disk full: %s", limits[i].label);
        /* Check's own files and the outcome's are under the limit as well. */
        require(setrlimit(RLIMIT_FSIZE, &small) == 0, "setrlimit");
        struct outcome outcome =
            run_tool("run", "--weights", in_scratch("w"), "--heads", "2", "--query",
                     in_scratch("q"), "--key", in_scratch("k"), "--output", in_scratch("old"),
                     limits[i].attention ? "--attention" : NULL, in_scratch("a"), NULL);
        setrlimit(RLIMIT_FSIZE, &before);
        require(outcome.status == 1, "%s: status %d", case_name(), outcome.status);
        require(outcome.out[0] == '\0', "%s: %s", case_name(), outcome.out);
        require(limits[i].limit < 200 || strstr(outcome.err, ": File too large\n") != NULL,
                "%s: %s", case_name(), outcome.err);
        require(files_equal(in_scratch("old"), &old), "%s: the old file changed", case_name());
        require(scratch_count() == files, "%s: a file was left", case_name());
    }
    bytes_free(&old);
}
END_TEST

START_TEST(no_permission) {
    begin_case("permissions");
    write_zeros("q_closed", "<f4", "(2, 3, 6)", 144);
    write_layer("w_closed", "", 6, 6);
    ck_assert_int_eq(chmod(in_scratch("q_closed"), 0), 0);
    ck_assert_int_eq(chmod(in_scratch("w_closed"), 0), 0);
    ck_assert_int_eq(mkdir(in_scratch("closed"), 0555), 0);
    if (!become_ordinary() || access(getenv("MHA_TOOL"), X_OK) != 0) {
        printf(
            "SKIP: no_permission: root may read anything, and others can't run the program here\n");
        return;
    }
    size_t files = scratch_count();
    expect_error(run_tool("run", "--weights", in_scratch("w"), "--heads", "2", "--query",
                          in_scratch("q_closed"), "--output", in_scratch("y"), NULL),
                 1, "q_closed: Permission denied");
    expect_error(run_tool("run", "--weights", in_scratch("w_closed"), "--heads", "2", "--query",
                          in_scratch("q"), "--output", in_scratch("y"), NULL),
                 1, "w_closed: Permission denied");
    expect_error(run_to(in_scratch("closed/y"), NULL), 1, "closed/y: Permission denied");
    expect_error(run_to(in_scratch("y"), in_scratch("closed/a")), 1, "closed/a: Permission denied");
    ck_assert_uint_eq(scratch_count(), files);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-errors");
    TCase *tcase = tcase_create("errors");
    require_tool();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, setup, scratch_teardown);
    tcase_add_test(tcase, wrong_arguments);
    tcase_add_test(tcase, unsupported_isa);
    tcase_add_test(tcase, control_characters);
    tcase_add_test(tcase, full_device);
    tcase_add_test(tcase, full_standard_output);
    tcase_add_test(tcase, file_size_limit);
    tcase_add_test(tcase, no_permission);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
