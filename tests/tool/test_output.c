/* SPDX-License-Identifier: MIT
 *
 * The outputs of mha run: files appear whole or not at all, and an array may go to standard
 * output. Errors of the system (full devices and disks, files and folders without permission) are
 * reported in words, and no file is left or changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_fixture.h"

static float want[N_OUTPUT], want_attention[N_ATTENTION];

static void setup(void) {
    run_setup();
    forward(NULL, 0, MHA_MASKED_ROWS_ZERO, BATCH, want, want_attention);
    write_npy_floats("old", "(1,)", want, 1);
}

static struct outcome run_on(const char *weights, const char *inputs, const char *output,
                             const char *attention) {
    return run_tool("run", "--weights", in_scratch(weights), "--heads", "3", "--query",
                    in_scratch(inputs), "--key", in_scratch("k"), "--value", in_scratch("v"),
                    "--output", output, attention != NULL ? "--attention" : NULL, attention, NULL);
}

static struct outcome run_to(const char *output, const char *attention) {
    return run_on("w", "q", output, attention);
}

static struct stat status_of(const char *name) {
    struct stat status;
    require(lstat(in_scratch(name), &status) == 0, "%s: no file %s", case_name(), name);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------ */

START_TEST(new_and_replaced) {
    begin_case("a new file and one behind a link");
    ck_assert_int_eq(chmod(in_scratch("old"), 0604), 0);
    ck_assert_int_eq(symlink("old", in_scratch("link")), 0);
    size_t files = scratch_count();
    umask(027);
    expect_error(run_to(in_scratch("link"), in_scratch("old")), 1, "asked to hold two outputs");
    ck_assert_int_eq(status_of("old").st_size, 132);
    struct outcome outcome = run_to(in_scratch("link"), in_scratch("a"));
    require(outcome.status == 0, "%s", outcome.err);
    expect_file("old", "(2, 5, 12)", want, N_OUTPUT);
    expect_file("a", "(2, 3, 5, 7)", want_attention, N_ATTENTION);
    ck_assert(S_ISLNK(status_of("link").st_mode));
    ck_assert_int_eq(status_of("old").st_mode & 0777, 0604);
    ck_assert_int_eq(status_of("a").st_mode & 0777, 0640);
    ck_assert_uint_eq(scratch_count(), files + 1);
}
END_TEST

/* The program reads every input before it writes. */
START_TEST(over_its_own_input) {
    begin_case("output over the query");
    struct outcome outcome = run_to(in_scratch("q"), NULL);
    require(outcome.status == 0, "%s", outcome.err);
    expect_file("q", "(2, 5, 12)", want, N_OUTPUT);
}
END_TEST

START_TEST(no_permission) {
    begin_case("permissions");
    write_npy_floats("q_closed", "(2, 5, 12)", query, N_OUTPUT);
    write_npy_floats("w_closed", "(1,)", query, 1);
    ck_assert_int_eq(chmod(in_scratch("q_closed"), 0), 0);
    ck_assert_int_eq(chmod(in_scratch("w_closed"), 0), 0);
    ck_assert_int_eq(chmod(in_scratch("old"), 0444), 0);
    ck_assert_int_eq(mkdir(in_scratch("closed"), 0555), 0);
    if (!become_ordinary() || access(getenv("MHA_TOOL"), X_OK) != 0) {
        printf(
            "SKIP: no_permission: root may read anything, and others can't run the program here\n");
        return;
    }
    size_t files = scratch_count();
    expect_error(run_on("w", "q_closed", in_scratch("y"), NULL), 1, "q_closed: Permission denied");
    expect_error(run_on("w_closed", "q", in_scratch("y"), NULL), 1, "w_closed: Permission denied");
    expect_error(run_to(in_scratch("old"), NULL), 1, "old: Permission denied");
    expect_error(run_to(in_scratch("closed/y"), NULL), 1, "closed/y: Permission denied");
    expect_error(run_to(in_scratch("y"), in_scratch("closed/a")), 1, "closed/a: Permission denied");
    ck_assert_uint_eq(scratch_count(), files);
}
END_TEST

/* A disk that is full after limits[i] bytes. The output has 128 + 480, the weights 128 + 840. */
START_TEST(file_size_limit) {
    static const size_t limits[] = {700, 300, 100, 0};
    struct rlimit before, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    size_t files = scratch_count();
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        small.rlim_cur = limits[i];
        begin_case("%zu bytes to a file", limits[i]);
        /* The limit also applies to Check's own files and to the captured output. */
        require(setrlimit(RLIMIT_FSIZE, &small) == 0, "setrlimit");
        struct outcome outcome = run_to(in_scratch("old"), in_scratch("a"));
        setrlimit(RLIMIT_FSIZE, &before);
        require(outcome.status == 1 && outcome.out[0] == '\0', "%s: status %d: %s", case_name(),
                outcome.status, outcome.out);
        require(limits[i] < 200 || strstr(outcome.err, ": File too large\n") != NULL, "%s: %s",
                case_name(), outcome.err);
        require(status_of("old").st_size == 132, "%s: the old file changed", case_name());
        require(scratch_count() == files, "%s: a file was left", case_name());
    }
}
END_TEST

/* ---- Devices and standard output ---------------------------------------------------------- */

START_TEST(devices) {
    size_t files = scratch_count();
    begin_case("/dev/null");
    struct outcome outcome = run_to("/dev/null", "/dev/null");
    require(outcome.status == 0 && strstr(outcome.out, "isa ") != NULL, "%s", outcome.err);
    if (access("/dev/full", W_OK) != 0) {
        printf("SKIP: devices: no /dev/full here\n");
        return;
    }
    begin_case("/dev/full");
    expect_error(run_to("/dev/full", NULL), 1, "mha: /dev/full: No space left on device");
    expect_error(run_to(in_scratch("y"), "/dev/full"), 1, "/dev/full: No space left on device");
    expect_error(run_to("/dev/full", in_scratch("a")), 1, "/dev/full: No space left on device");
    ck_assert_uint_eq(scratch_count(), files);
    /* The program can't print its own text. */
    static const char *const whats[] = {"info", "info --json", "--help", "--version", "run --help"};
    for (size_t i = 0; i < sizeof whats / sizeof whats[0]; i++) {
        int status = run_shell("%s > /dev/full 2> %s", whats[i], in_scratch("said"));
        struct bytes said = read_bytes(in_scratch("said"));
        require(status != 0 && strstr((char *)said.data, "mha: standard output: No space") != NULL,
                "%s: %s", whats[i], (char *)said.data);
        bytes_free(&said);
    }
}
END_TEST

/* If an array goes to standard output, a pipe or a file, the summary goes to standard error. Two
 * arrays may not both go there, under any name; nothing is written then. */
START_TEST(standard_output) {
    static const struct {
        const char *output, *attention; /* "y": the file by its own name */
        const char *redirection;
        bool good;
    } cases[] = {
        {"/dev/stdout", NULL, "| cat >", true},
        {"/dev/stdout", NULL, ">", true},
        {"/dev/stdout", NULL, ">>", true},
        {"y", NULL, ">", true},
        {"/dev/stdout", "/dev/stdout", "| cat >", false},
        {"/dev/stdout", "y", ">", false},
        {"y", "/dev/stdout", ">>", false},
    };
    const char *y = in_scratch("y");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *output = cases[i].output[0] == 'y' ? y : cases[i].output;
        const char *attention = cases[i].attention;
        begin_case("standard output, case %zu", i);
        remove(y);
        int status = run_shell("run --weights %s --heads 3 --query %s --key %s --value %s "
                               "--output %s %s %s 2> %s %s %s",
                               in_scratch("w"), in_scratch("q"), in_scratch("k"), in_scratch("v"),
                               output, attention != NULL ? "--attention" : "",
                               attention == NULL     ? ""
                               : attention[0] == 'y' ? y
                                                     : attention,
                               in_scratch("said"), cases[i].redirection, y);
        struct bytes written = read_bytes(y), said = read_bytes(in_scratch("said"));
        /* The status of a pipe is that of cat. */
        require((status == 0) == (cases[i].good || cases[i].redirection[0] == '|'), "%s: status %d",
                case_name(), status);
        require(strstr((char *)said.data,
                       cases[i].good ? "isa         " : "asked to hold two outputs\n") != NULL,
                "%s: said %s", case_name(), (char *)said.data);
        require(cases[i].good || written.size == 0, "%s: %zu bytes were written", case_name(),
                written.size);
        if (cases[i].good) {
            expect_file("y", "(2, 5, 12)", want, N_OUTPUT);
        }
        bytes_free(&written);
        bytes_free(&said);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-output");
    TCase *tcase = tcase_create("output");
    require_tool();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, setup, scratch_teardown);
    tcase_add_test(tcase, new_and_replaced);
    tcase_add_test(tcase, over_its_own_input);
    tcase_add_test(tcase, no_permission);
    tcase_add_test(tcase, file_size_limit);
    tcase_add_test(tcase, devices);
    tcase_add_test(tcase, standard_output);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
