/* SPDX-License-Identifier: MIT
 *
 * Outputs appear whole, together, or not at all: through failures of every step, and
 * through signals.
 */
#include "output.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"
#include "fixture.h"

static void write_text(const char *name, const char *text) {
    struct bytes bytes = {0};
    put_text(&bytes, "%s", text);
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
}

static void expect_text(const char *name, const char *text) {
    struct bytes bytes = read_bytes(in_scratch(name));
    require(text == NULL ? bytes.data == NULL
                         : bytes.data != NULL && strcmp((char *)bytes.data, text) == 0,
            "%s holds '%s', not '%s'", name, bytes.data != NULL ? (char *)bytes.data : "(nothing)",
            text != NULL ? text : "(nothing)");
    bytes_free(&bytes);
}

/* Opens, writes, finishes. */
static bool fill(struct output *output, const char *name, const char *text) {
    return output_open(output, in_scratch(name)) && fputs(text, output->stream) >= 0 &&
           output_finish(output);
}

START_TEST(new_and_replaced) {
    struct output outputs[2] = {{0}};
    write_text("b", "old");
    ck_assert_int_eq(chmod(in_scratch("b"), 0640), 0);
    require(fill(&outputs[0], "a", "new a") && fill(&outputs[1], "b", "new b"), "%s",
            failure_message());
    expect_text("a", NULL);
    expect_text("b", "old");
    require(outputs_commit(outputs, 2), "%s", failure_message());
    output_discard(&outputs[0]);
    output_discard(&outputs[1]);
    expect_text("a", "new a");
    expect_text("b", "new b");
    struct stat status;
    ck_assert(stat(in_scratch("b"), &status) == 0 && (status.st_mode & 0777) == 0640);
    ck_assert_uint_eq(scratch_count(), 2);
}
END_TEST

START_TEST(discarded) {
    struct output output = {0};
    output_discard(&output);
    write_text("a", "old");
    ck_assert(fill(&output, "a", "new"));
    output_discard(&output);
    ck_assert(output_open(&output, in_scratch("a")));
    fputs("half", output.stream);
    output_discard(&output);
    expect_text("a", "old");
    ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

/* The second can't be put in its place: the first is as it was, there or not. */
START_TEST(both_or_neither) {
    for (int there_before = 0; there_before < 2; there_before++) {
        struct output outputs[2] = {{0}};
        if (there_before) {
            write_text("a", "old a");
        }
        ck_assert(fill(&outputs[0], "a", "new a") && fill(&outputs[1], "b", "new b"));
        ck_assert_int_eq(mkdir(in_scratch("b"), 0700), 0);
        ck_assert(!outputs_commit(outputs, 2));
        require(strstr(failure_message(), "Is a directory") != NULL, "%s", failure_message());
        output_discard(&outputs[0]);
        output_discard(&outputs[1]);
        expect_text("a", there_before ? "old a" : NULL);
        ck_assert_uint_eq(scratch_count(), there_before ? 2 : 1);
        remove(in_scratch("a"));
        rmdir(in_scratch("b"));
    }
}
END_TEST

START_TEST(two_in_one_place) {
    const char *const names[2] = {"a", "./a"};
    for (int there_before = 0; there_before < 2; there_before++) {
        struct output outputs[2] = {{0}};
        if (there_before) {
            write_text("a", "old");
        }
        ck_assert(fill(&outputs[0], names[0], "1") && fill(&outputs[1], names[1], "2"));
        ck_assert(!outputs_commit(outputs, 2));
        ck_assert_ptr_nonnull(strstr(failure_message(), "asked to hold two outputs"));
        output_discard(&outputs[0]);
        output_discard(&outputs[1]);
        expect_text("a", there_before ? "old" : NULL);
        ck_assert_uint_eq(scratch_count(), (unsigned)there_before);
    }
}
END_TEST

START_TEST(through_a_link) {
    struct output output = {0};
    write_text("a", "old");
    ck_assert_int_eq(symlink("a", in_scratch("link")), 0);
    ck_assert(fill(&output, "link", "new") && outputs_commit(&output, 1));
    output_discard(&output);
    struct stat status;
    ck_assert(lstat(in_scratch("link"), &status) == 0 && S_ISLNK(status.st_mode));
    expect_text("a", "new");
    ck_assert_uint_eq(scratch_count(), 2);
}
END_TEST

/* Links that lead to no file yet: it is made where the last one leads. */
START_TEST(through_dangling_links) {
    const char *const names[] = {"link", "link2", "absolute", "sub/up"};
    ck_assert_int_eq(mkdir(in_scratch("sub"), 0700), 0);
    ck_assert_int_eq(symlink("a", in_scratch("link")), 0);
    ck_assert_int_eq(symlink("sub/../link", in_scratch("link2")), 0);
    ck_assert_int_eq(symlink(in_scratch("link"), in_scratch("absolute")), 0);
    ck_assert_int_eq(symlink("../a", in_scratch("sub/up")), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct output output;
        struct stat status;
        begin_case("to %s", names[i]);
        require(fill(&output, names[i], "new") && outputs_commit(&output, 1), "%s: %s", case_name(),
                failure_message());
        output_discard(&output);
        require(lstat(in_scratch(names[i]), &status) == 0 && S_ISLNK(status.st_mode),
                "%s: no longer a link", case_name());
        expect_text("a", "new");
        remove(in_scratch("a"));
    }
    struct output outputs[2] = {{0}};
    ck_assert(fill(&outputs[0], "link", "1") && fill(&outputs[1], "a", "2"));
    ck_assert(!outputs_commit(outputs, 2));
    ck_assert_ptr_nonnull(strstr(failure_message(), "asked to hold two outputs"));
    output_discard(&outputs[0]);
    output_discard(&outputs[1]);
    remove(in_scratch("sub/up"));
    ck_assert_uint_eq(scratch_count(), 4);
}
END_TEST

START_TEST(long_names) {
    struct output output = {0};
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    require(fill(&output, name, "x") && outputs_commit(&output, 1), "%s", failure_message());
    output_discard(&output);
    expect_text(name, "x");
}
END_TEST

START_TEST(places_that_are_none) {
    static const struct {
        const char *name, *message;
    } cases[] = {
        {"", "Is a directory"},
        {"none/a", "No such file"},
        {"file/a", "Not a directory"},
        {"none/", "No such file"},
    };
    write_text("file", "x");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct output output;
        const char *path = in_scratch(cases[i].name);
        require(!output_open(&output, path), "%s was opened", cases[i].name);
        require(strstr(failure_message(), cases[i].message) != NULL, "%s", failure_message());
        require(strncmp(failure_message(), path, strlen(path)) == 0, "%s", failure_message());
    }
    ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

/* The longest path there can be leaves room for the reason. */
START_TEST(long_path) {
    struct output output;
    struct bytes path = {0};
    put_text(&path, "%s", in_scratch(""));
    while (path.size < 4000) {
        put_text(&path, "./");
    }
    put_text(&path, "none/a");
    ck_assert(!output_open(&output, (char *)path.data));
    ck_assert(strncmp(failure_message(), (char *)path.data, path.size) == 0);
    ck_assert_ptr_nonnull(strstr(failure_message(), "none/a: No such file or directory"));
    bytes_free(&path);
}
END_TEST

START_TEST(no_permission) {
    struct output output;
    write_text("read_only", "x");
    ck_assert_int_eq(chmod(in_scratch("read_only"), 0444), 0);
    ck_assert_int_eq(mkdir(in_scratch("closed"), 0555), 0);
    if (!become_ordinary()) {
        printf("SKIP: no_permission: root may write anywhere, and others can't here\n");
        return;
    }
    ck_assert(!output_open(&output, in_scratch("read_only")));
    ck_assert_ptr_nonnull(strstr(failure_message(), "Permission denied"));
    ck_assert(!output_open(&output, in_scratch("closed/a")));
    ck_assert_ptr_nonnull(strstr(failure_message(), "Permission denied"));
    ck_assert_uint_eq(scratch_count(), 2);
}
END_TEST

/* Neither a regular file nor made one: written directly. */
START_TEST(direct) {
    struct output output;
    ck_assert(output_open(&output, "/dev/null"));
    fputs("x", output.stream);
    ck_assert(output_finish(&output) && outputs_commit(&output, 1));
    output_discard(&output);

    ck_assert_int_eq(mkfifo(in_scratch("pipe"), 0600), 0);
    int reader = open(in_scratch("pipe"), O_RDONLY | O_NONBLOCK);
    ck_assert(reader >= 0);
    ck_assert(fill(&output, "pipe", "through") && outputs_commit(&output, 1));
    output_discard(&output);
    char text[16] = {0};
    ck_assert_int_eq((int)read(reader, text, sizeof text - 1), 7);
    ck_assert_str_eq(text, "through");
    close(reader);
    ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

START_TEST(full_device) {
    struct output output;
    if (access("/dev/full", W_OK) != 0) {
        printf("SKIP: full_device: no /dev/full here\n");
        return;
    }
    ck_assert(output_open(&output, "/dev/full"));
    fputs("x", output.stream);
    ck_assert(!output_finish(&output));
    ck_assert_str_eq(failure_message(), "/dev/full: No space left on device");
    output_discard(&output);
}
END_TEST

START_TEST(file_size_limit) {
    struct output output;
    struct rlimit before, small;
    write_text("a", "old");
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100;
    ck_assert(output_open(&output, in_scratch("a"))); /* from here on, no SIGXFSZ */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 200; i++) {
        fputc('x', output.stream);
    }
    bool good = output_finish(&output);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert(!good);
    ck_assert_ptr_nonnull(strstr(failure_message(), "File too large"));
    output_discard(&output);
    expect_text("a", "old");
    ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

/* Ended by a signal while it writes: nothing stays, and the signal is what ended it. */
START_TEST(signals) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < 3; i++) {
        pid_t child = fork();
        ck_assert(child >= 0);
        if (child == 0) {
            struct output output;
            signal(numbers[i], SIG_DFL);
            if (output_open(&output, in_scratch("a"))) {
                fputs("half", output.stream);
                fflush(output.stream);
                raise(numbers[i]);
            }
            _exit(99);
        }
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
        ck_assert_uint_eq(scratch_count(), 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-output");
    TCase *tcase = tcase_create("output");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, new_and_replaced);
    tcase_add_test(tcase, discarded);
    tcase_add_test(tcase, both_or_neither);
    tcase_add_test(tcase, two_in_one_place);
    tcase_add_test(tcase, through_a_link);
    tcase_add_test(tcase, through_dangling_links);
    tcase_add_test(tcase, long_names);
    tcase_add_test(tcase, places_that_are_none);
    tcase_add_test(tcase, long_path);
    tcase_add_test(tcase, no_permission);
    tcase_add_test(tcase, direct);
    tcase_add_test(tcase, full_device);
    tcase_add_test(tcase, file_size_limit);
    tcase_add_test(tcase, signals);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
