/* SPDX-License-Identifier: MIT
 *
 * mha run and mha check when memory runs out: every allocation of the program and the library
 * fails once; each time the command fails in words, keeps no memory and leaves no file.
 *
 * Linked with --wrap for each allocating function, so that their calls arrive here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "npy.h"
#include "run_fixture.h"

/* ---- Allocation, watched -------------------------------------------------------------- */

static struct {
    bool on;
    size_t fail_at; /* the attempt that fails, from 1 */
    size_t attempts;
    long live;
} watch;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__real_realpath(const char *path, char *resolved);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
char *__wrap_realpath(const char *path, char *resolved);
void __wrap_free(void *memory);

static bool fails(void) {
    bool now = watch.on && ++watch.attempts == watch.fail_at;
    if (now) {
        errno = ENOMEM;
    }
    return now;
}

static void *counted(void *memory) {
    watch.live += watch.on && memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size) {
    if (fails()) {
        return NULL;
    }
    return old != NULL ? __real_realloc(old, size) : counted(__real_realloc(NULL, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size) {
    int error = fails() ? ENOMEM : __real_posix_memalign(memory, alignment, size);
    watch.live += watch.on && error == 0;
    return error;
}

char *__wrap_strdup(const char *text) {
    return fails() ? NULL : counted(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t size) {
    return fails() ? NULL : counted(__real_strndup(text, size));
}

char *__wrap_realpath(const char *path, char *resolved) {
    return fails() ? NULL : counted(__real_realpath(path, resolved));
}

void __wrap_free(void *memory) {
    watch.live -= watch.on && memory != NULL;
    __real_free(memory);
}

/* ---- The commands ------------------------------------------------------------------------ */

/* Fails every allocation of a command in turn, up to `limit` of them, until it succeeds. */
static void starve(bool (*command)(char **), char **arguments, size_t limit) {
    bool good = false;
    require(freopen("/dev/null", "w", stdout) != NULL, "cannot redirect");
    size_t files = scratch_count();
    for (size_t n = 1; !good && n <= limit; n++) {
        begin_case("allocation %zu", n);
        failure("nothing yet");
        watch.fail_at = n;
        watch.attempts = 0;
        watch.live = 0;
        watch.on = true;
        good = command(arguments);
        watch.on = false;
        require(watch.live == 0, "%s: %ld blocks are left", case_name(), watch.live);
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

static char *scratch_copy(const char *name) {
    return __real_strdup(in_scratch(name));
}

START_TEST(run) {
    static const float slopes[3] = {1, 2, 3};
    static const float mask[7] = {0};
    float output[N_OUTPUT] = {0};
    write_npy_floats("s", "(3,)", slopes, 3);
    write_npy_floats("m", "(7,)", mask, 7);
    write_npy_floats("e", "(2, 5, 12)", output, N_OUTPUT);
    write_npy_floats("y", "(1,)", slopes, 1); /* so that there is something to keep */
    struct bytes bytes = {0};
    put_npy_header(&bytes, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}");
    put(&bytes, "\5\3", 2);
    write_bytes("l", &bytes, bytes.size);
    bytes_free(&bytes);
    put_npy_header(&bytes, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (5, 1)}");
    put(&bytes, "\1\1\0\1\1", 5);
    write_bytes("k1", &bytes, bytes.size);
    bytes_free(&bytes);
    char *arguments[] = {"--weights", scratch_copy("w"),  "--heads",      "3",
                         "--query",   scratch_copy("q"),  "--key",        scratch_copy("k"),
                         "--value",   scratch_copy("v"),  "--mask",       scratch_copy("m"),
                         "--mask",    scratch_copy("k1"), "--kv-lengths", scratch_copy("l"),
                         "--alibi",   scratch_copy("s"),  "--expect",     scratch_copy("e"),
                         "--output",  scratch_copy("y"),  "--attention",  scratch_copy("a"),
                         NULL};
    starve(command_run, arguments, 1000);
    for (size_t i = 0; arguments[i] != NULL; i++) {
        if (arguments[i][0] == '/') {
            free(arguments[i]);
        }
    }
}
END_TEST

/* The first cases; the rest allocates in the same places. */
START_TEST(check) {
    char *arguments[] = {"--quick", NULL};
    starve(command_check, arguments, 60);
}
END_TEST

START_TEST(info) {
    char *arguments[] = {"--json", NULL};
    starve(command_info, arguments, 60);
}
END_TEST

/* More elements than memory has addresses for: the size in bytes must not wrap to a small one. */
START_TEST(beyond_memory) {
    static const size_t counts[] = {SIZE_MAX / 4, SIZE_MAX / 4 + 1, SIZE_MAX - 1, SIZE_MAX};
    unsigned char bytes[8] = {0};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct element half = {ELEMENT_FLOAT, 2, false};
        struct npy npy = {.element = half, .count = counts[i], .bytes = bytes};
        begin_case("%zu elements", counts[i]);
        failure("nothing yet");
        require(npy_floats(&npy) == NULL, "%s: had", case_name());
        require(strstr(failure_message(), "out of memory") != NULL, "%s: %s", case_name(),
                failure_message());
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, run_setup, scratch_teardown);
    tcase_add_test(tcase, run);
    tcase_add_test(tcase, check);
    tcase_add_test(tcase, info);
    tcase_add_test(tcase, beyond_memory);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
