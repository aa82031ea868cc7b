/* SPDX-License-Identifier: MIT
 *
 * mha run and mha check when memory runs out: every allocation of the program and the library
 * fails once; each time the command fails in words and leaves no file. The sanitizers find memory
 * that it does not free.
 *
 * Linked with --wrap for each allocating function, so that their calls arrive here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "run_fixture.h"

/* ---- Allocation that fails ------------------------------------------------------------ */

static struct {
    bool on;
    size_t fail_at; /* the attempt that fails, from 1 */
    size_t attempts;
} watch;

static bool fails(void) {
    bool now = watch.on && ++watch.attempts == watch.fail_at;
    if (now) {
        errno = ENOMEM;
    }
    return now;
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return fails() ? NULL : __real_##name arguments;                                           \
    }
WRAP(void *, malloc, (size_t size), (size))
WRAP(void *, calloc, (size_t count, size_t size), (count, size))
WRAP(void *, realloc, (void *old, size_t size), (old, size))
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAP(char *, strdup, (const char *text), (text))
WRAP(char *, realpath, (const char *path, char *resolved), (path, resolved))

/* ---- The commands ------------------------------------------------------------------------ */

/* Fails every allocation of a command in turn, up to `limit` of them, until it succeeds. */
static void starve(bool (*command)(char **), const char **arguments, size_t limit) {
    bool good = false;
    require(freopen("/dev/null", "w", stdout) != NULL, "cannot redirect");
    size_t files = scratch_count();
    for (size_t n = 1; !good && n <= limit; n++) {
        begin_case("allocation %zu", n);
        failure("nothing yet");
        watch.fail_at = n;
        watch.attempts = 0;
        watch.on = true;
        good = command((char **)arguments);
        watch.on = false;
        if (watch.attempts < n) {
            require(good, "%s: %s", case_name(), failure_message());
            require(n > 1, "%s: no allocation was tried", case_name());
            return;
        }
        require(!good, "%s: succeeded without it", case_name());
        require(strstr(failure_message(), "emory") != NULL, "%s: %s", case_name(),
                failure_message());
        require(scratch_count() == files, "%s: a file was left", case_name());
    }
}

START_TEST(run) {
    static const float slopes[3] = {1, 2, 3};
    static const float mask[7] = {0};
    float output[N_OUTPUT] = {0};
    write_npy_floats("s", "(3,)", slopes, 3);
    write_npy_floats("m", "(7,)", mask, 7);
    write_npy_floats("e", "(2, 5, 12)", output, N_OUTPUT);
    write_npy_floats("y", "(1,)", slopes, 1); /* the old output, which must stay */
    struct bytes bytes = {0};
    put_npy_header(&bytes, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}");
    put(&bytes, "\5\3", 2);
    write_bytes("l", &bytes, bytes.size);
    bytes_free(&bytes);
    put_npy_header(&bytes, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (5, 1)}");
    put(&bytes, "\1\1\0\1\1", 5);
    write_bytes("k1", &bytes, bytes.size);
    bytes_free(&bytes);
    const char *arguments[] = {"--weights", in_scratch("w"),  "--heads",      "3",
                               "--query",   in_scratch("q"),  "--key",        in_scratch("k"),
                               "--value",   in_scratch("v"),  "--mask",       in_scratch("m"),
                               "--mask",    in_scratch("k1"), "--kv-lengths", in_scratch("l"),
                               "--alibi",   in_scratch("s"),  "--expect",     in_scratch("e"),
                               "--output",  in_scratch("y"),  "--attention",  in_scratch("a"),
                               NULL};
    starve(command_run, arguments, 1000);
}
END_TEST

/* The first cases only: the others allocate in the same places. */
START_TEST(check) {
    const char *arguments[] = {"--quick", NULL};
    starve(command_check, arguments, 60);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, run_setup, scratch_teardown);
    tcase_add_test(tcase, run);
    tcase_add_test(tcase, check);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
