/* SPDX-License-Identifier: MIT
 *
 * Output files, all or nothing: on failure, and when a signal ends the program, what
 * stood there before still does and no temporary file stays.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

static bool fail_errno(const struct output *output) {
    return failure("%s: %s", output->path, strerror(errno));
}

/* ---- Signals -------------------------------------------------------------- */

/* Temporary files to remove if a signal ends the program. */
static const char *volatile pending[4];

static void remove_pending(int number) {
    for (size_t i = 0; i < sizeof pending / sizeof pending[0]; i++) {
        if (pending[i] != NULL) {
            unlink(pending[i]);
        }
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Has `from` (NULL: a free place) stand for `to` in the list. */
static void replace_pending(const char *from, const char *to) {
    for (size_t i = 0; i < sizeof pending / sizeof pending[0]; i++) {
        if (pending[i] == from) {
            pending[i] = to;
            return;
        }
    }
}

static void catch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action;
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
            action = (struct sigaction){.sa_handler = remove_pending};
            sigaction(numbers[i], &action, NULL);
        }
    }
    /* A full disk or a reader gone are errors of a write, not the end of the program. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- Opening -------------------------------------------------------------- */

/* The directory of a path, ending in '/', in new memory. */
static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? strdup("./") : strndup(path, (size_t)(slash - path) + 1);
}

/* a + b in new memory; NULL if either is. */
static char *join(const char *a, const char *b) {
    if (a == NULL || b == NULL) {
        return NULL;
    }
    size_t size = strlen(a) + strlen(b) + 1;
    char *joined = malloc(size);
    if (joined != NULL) {
        snprintf(joined, size, "%s%s", a, b);
    }
    return joined;
}

/* Where a symbolic link that leads to no file leads, link after link, in new memory; of
 * anything else the path itself. NULL: see errno. */
static char *follow(const char *path) {
    char text[PATH_MAX + 1];
    char *at = strdup(path);
    ssize_t length;
    /* It ends: stat() was through with the links, and found nothing. */
    while (at != NULL && (length = readlink(at, text, sizeof text - 1)) >= 0) {
        text[length] = '\0';
        char *directory = text[0] == '/' ? strdup("") : directory_of(at);
        free(at);
        at = join(directory, text);
        free(directory);
    }
    return at;
}

/* The one absolute name of a file that may not exist yet. NULL: see errno. */
static char *resolve(const char *path, bool exists) {
    if (exists) {
        return realpath(path, NULL);
    }
    char *place = follow(path);
    char *directory = place == NULL ? NULL : directory_of(place);
    char *real = directory == NULL ? NULL : realpath(directory, NULL);
    const char *slash = place == NULL ? NULL : strrchr(place, '/');
    char *parent = join(real, "/");
    char *resolved = join(parent, slash == NULL ? place : slash + 1);
    free(place);
    free(directory);
    free(real);
    free(parent);
    return resolved;
}

/* A new file in the target's directory; its name to *name. -1: see errno. */
static int create_beside(const char *target, mode_t mode, char **name) {
    char *directory = directory_of(target);
    int descriptor = -1;
    for (int i = 0; descriptor < 0 && i < 1000; i++) {
        char base[64];
        snprintf(base, sizeof base, ".mha-%ld-%d.tmp", (long)getpid(), i);
        *name = join(directory, base);
        if (*name == NULL) {
            break;
        }
        descriptor = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (descriptor < 0) {
            int error = errno;
            free(*name);
            *name = NULL;
            errno = error;
            if (error != EEXIST) {
                break;
            }
        }
    }
    free(directory);
    return descriptor;
}

/* Whether a file is the one that standard output goes to. What else the program has to say
 * would be lost in it; on a terminal and in /dev/null nothing is. */
static bool is_stdout(const struct stat *file) {
    struct stat standard;
    return (S_ISREG(file->st_mode) || S_ISFIFO(file->st_mode) || S_ISSOCK(file->st_mode)) &&
           fstat(STDOUT_FILENO, &standard) == 0 && standard.st_dev == file->st_dev &&
           standard.st_ino == file->st_ino;
}

bool output_open(struct output *output, const char *path) {
    struct stat status;
    *output = (struct output){.path = path};
    catch_signals();
    bool exists = stat(path, &status) == 0;
    if (!exists && errno != ENOENT) {
        return fail_errno(output);
    }
    if (exists && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return fail_errno(output);
    }
    int descriptor;
    output->is_stdout = exists && is_stdout(&status);
    if (output->is_stdout) {
        descriptor = dup(STDOUT_FILENO); /* goes on where it stands */
    } else if (exists && !S_ISREG(status.st_mode)) {
        descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } else {
        /* A file that its owner made read-only is not to be replaced either. */
        if (exists && access(path, W_OK) != 0) {
            return fail_errno(output);
        }
        output->target = resolve(path, exists);
        if (output->target == NULL) {
            return fail_errno(output);
        }
        descriptor = create_beside(output->target, 0666, &output->temporary);
        if (descriptor >= 0) {
            replace_pending(NULL, output->temporary);
            if (exists) {
                (void)!fchmod(descriptor, status.st_mode & 0777); /* nice to have */
            }
        }
    }
    output->stream = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (output->stream == NULL) {
        fail_errno(output);
        if (descriptor >= 0) {
            close(descriptor);
        }
        output_discard(output);
        return false;
    }
    return true;
}

/* ---- Finishing ------------------------------------------------------------ */

bool output_finish(struct output *output) {
    FILE *stream = output->stream;
    output->stream = NULL;
    /* EINVAL: a file system that does not know fsync. */
    bool good = fflush(stream) == 0 &&
                (output->target == NULL || fsync(fileno(stream)) == 0 || errno == EINVAL);
    if (!good) {
        fail_errno(output);
        fclose(stream);
        return false;
    }
    return fclose(stream) == 0 || fail_errno(output);
}

/* Has what stood at the target before stand there again. */
static void take_back(struct output *output) {
    if (output->backup != NULL) {
        rename(output->backup, output->target);
        unlink(output->backup); /* rename leaves it if both are still the same file */
        free(output->backup);
        output->backup = NULL;
    } else if (output->target != NULL && output->temporary == NULL) {
        unlink(output->target);
    }
}

/* Keeps what stands at the target under another name, if anything does. */
static bool back_up(struct output *output) {
    struct stat status;
    if (lstat(output->target, &status) != 0) {
        return errno == ENOENT || fail_errno(output);
    }
    if (!S_ISREG(status.st_mode)) {
        return failure("%s: no longer a regular file", output->path);
    }
    int descriptor = create_beside(output->target, 0600, &output->backup);
    if (descriptor < 0) {
        return fail_errno(output);
    }
    close(descriptor);
    unlink(output->backup);
    /* Where there are no hard links, moving it away does as well. */
    if (link(output->target, output->backup) != 0 && rename(output->target, output->backup) != 0) {
        fail_errno(output);
        free(output->backup);
        output->backup = NULL;
        return false;
    }
    return true;
}

static bool put_in_place(struct output *output, bool last) {
    if (output->target == NULL) {
        return true;
    }
    if (!last && !back_up(output)) {
        return false;
    }
    if (rename(output->temporary, output->target) != 0) {
        fail_errno(output);
        if (output->backup != NULL) {
            take_back(output);
        }
        return false;
    }
    replace_pending(output->temporary, NULL);
    free(output->temporary);
    output->temporary = NULL;
    return true;
}

static bool put_all_in_place(struct output *outputs, size_t n) {
    size_t last = 0; /* the one after which nothing can fail */
    for (size_t i = 0; i < n; i++) {
        last = outputs[i].target != NULL ? i : last;
    }
    for (size_t i = 0; i < n; i++) {
        if (!put_in_place(&outputs[i], i == last)) {
            while (i-- > 0) {
                take_back(&outputs[i]);
            }
            return false;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (outputs[i].backup != NULL) {
            unlink(outputs[i].backup);
        }
    }
    return true;
}

bool outputs_commit(struct output *outputs, size_t n) {
    for (size_t i = 1; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (outputs[i].target != NULL && outputs[j].target != NULL &&
                strcmp(outputs[i].target, outputs[j].target) == 0) {
                return failure("%s: asked to hold two outputs", outputs[i].path);
            }
        }
    }
    sigset_t all, before; /* all or nothing for signals, too */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    bool good = put_all_in_place(outputs, n);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return good;
}

void output_discard(struct output *output) {
    if (output->stream != NULL) {
        fclose(output->stream);
    }
    if (output->temporary != NULL) {
        unlink(output->temporary);
        replace_pending(output->temporary, NULL);
    }
    free(output->temporary);
    free(output->backup);
    free(output->target);
    *output = (struct output){0};
}
