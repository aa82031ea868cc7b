/* SPDX-License-Identifier: MIT
 *
 * What the program does when the system refuses: full devices and disks, files and folders
 * without permission. It says so in words, fails, and no file is left or changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "errors_fixture.h"

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
    write_layer("w_closed", 6, 6);
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
    Suite *suite = suite_create("tool-system_errors");
    TCase *tcase = tcase_create("system_errors");
    require_tool();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, errors_setup, scratch_teardown);
    tcase_add_test(tcase, full_device);
    tcase_add_test(tcase, full_standard_output);
    tcase_add_test(tcase, file_size_limit);
    tcase_add_test(tcase, no_permission);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
