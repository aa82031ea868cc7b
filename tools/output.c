/* SPDX-License-Identifier: MIT
 *
 * Output files: write, fsync, rename. On failure the old file is unchanged and no temporary file
 * is left.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

static bool fail_errno(const struct output *output) {
    return failure("%s: %s", output->path, strerror(errno));
}

/* Whether standard output goes to this file. The program's summary would mix with the array
 * there; on a terminal and in /dev/null it does no harm. */
static bool is_stdout(const struct stat *file) {
    struct stat standard;
    return !S_ISCHR(file->st_mode) && fstat(STDOUT_FILENO, &standard) == 0 &&
           standard.st_dev == file->st_dev && standard.st_ino == file->st_ino;
}

/* Whether new files can be created in the folder of a file. */
static bool folder_is_writable(const char *path) {
    char *copy = strdup(path);
    bool good = copy != NULL && access(dirname(copy), W_OK | X_OK) == 0;
    free(copy);
    return good;
}

bool output_check(struct output *output, const char *path) {
    struct stat status;
    mode_t mask = umask(0);
    umask(mask);
    *output = (struct output){.path = path, .mode = 0666 & ~mask};
    bool exists = stat(path, &status) == 0;
    if (!exists && errno != ENOENT) {
        return fail_errno(output);
    }
    if (exists && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return fail_errno(output);
    }
    output->is_stdout = exists && is_stdout(&status);
    if (output->is_stdout) {
        return true;
    }
    /* A read-only file is not replaced, though rename() would do it. */
    if (exists && access(path, W_OK) != 0) {
        return fail_errno(output);
    }
    if (exists && !S_ISREG(status.st_mode)) {
        return true;
    }
    output->mode = exists ? status.st_mode & 0777 : output->mode;
    output->target = exists ? realpath(path, NULL) : strdup(path);
    return (output->target != NULL && folder_is_writable(output->target)) || fail_errno(output);
}

bool output_same(const struct output *a, const struct output *b) {
    return (a->is_stdout && b->is_stdout) ||
           (a->target != NULL && b->target != NULL && strcmp(a->target, b->target) == 0);
}

/* A new file beside the target, open. -1: see errno. */
static int create_temporary(struct output *output) {
    size_t size = strlen(output->target) + sizeof ".XXXXXX";
    output->temporary = malloc(size);
    if (output->temporary == NULL) {
        return -1;
    }
    snprintf(output->temporary, size, "%s.XXXXXX", output->target);
    int descriptor = mkstemp(output->temporary);
    if (descriptor < 0) {
        output->temporary[0] = '\0'; /* nothing to remove */
    } else {
        (void)!fchmod(descriptor, output->mode); /* the file is good without it */
    }
    return descriptor;
}

bool output_open(struct output *output) {
    /* A full disk and a closed pipe are errors of a write; they must not end the program. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int descriptor = output->is_stdout        ? dup(STDOUT_FILENO) /* continues at its position */
                     : output->target != NULL ? create_temporary(output)
                                              : open(output->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    output->stream = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (output->stream == NULL) {
        fail_errno(output);
        if (descriptor >= 0) {
            close(descriptor);
        }
        return false;
    }
    return true;
}

bool output_finish(struct output *output) {
    FILE *stream = output->stream;
    output->stream = NULL;
    /* EINVAL: a file system without fsync. */
    bool good = fflush(stream) == 0 &&
                (output->target == NULL || fsync(fileno(stream)) == 0 || errno == EINVAL);
    if (!good) {
        fail_errno(output);
        fclose(stream);
        return false;
    }
    return fclose(stream) == 0 || fail_errno(output);
}

bool output_commit(struct output *output) {
    if (output->temporary != NULL) {
        if (rename(output->temporary, output->target) != 0) {
            return fail_errno(output);
        }
        free(output->temporary);
        output->temporary = NULL;
    }
    return true;
}

void output_discard(struct output *output) {
    if (output->stream != NULL) {
        fclose(output->stream);
    }
    if (output->temporary != NULL) {
        unlink(output->temporary);
    }
    free(output->temporary);
    free(output->target);
    *output = (struct output){0};
}
