/* SPDX-License-Identifier: MIT
 *
 * Files, folders and child processes for the tests of the mha program.
 */
#include "fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- The temporary folder --------------------------------------------------- */

static char folder[256];

void scratch_setup(void) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/mha-tool-XXXXXX", base != NULL ? base : "/tmp");
    require(mkdtemp(folder) != NULL, "no temporary folder at %s", folder);
}

/* Calls remove() on every file; counts them. */
static size_t walk(bool removing) {
    DIR *directory = opendir(folder);
    size_t count = 0;
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (removing) {
                remove(in_scratch(entry->d_name));
            }
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

void scratch_teardown(void) {
    walk(true);
    rmdir(folder);
}

bool become_ordinary(void) {
    const id_t nobody = 65534;
    if (geteuid() == 0 &&
        (chown(folder, nobody, nobody) != 0 || setgid(nobody) != 0 || setuid(nobody) != 0)) {
        return false;
    }
    return geteuid() != 0 && access(folder, W_OK | X_OK) == 0;
}

size_t scratch_count(void) {
    return walk(false);
}

const char *in_scratch(const char *name) {
    static char paths[64][512];
    static size_t next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- Bytes -------------------------------------------------------------------- */

void put(struct bytes *bytes, const void *data, size_t size) {
    if (bytes->size + size >= bytes->capacity) {
        bytes->capacity = 2 * (bytes->size + size) + 64;
        bytes->data = realloc(bytes->data, bytes->capacity);
        require(bytes->data != NULL, "out of memory");
    }
    if (size > 0) {
        memcpy(bytes->data + bytes->size, data, size);
    }
    bytes->size += size;
    bytes->data[bytes->size] = '\0';
}

void put_text(struct bytes *bytes, const char *format, ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    require(n >= 0 && (size_t)n < sizeof text, "text too long");
    put(bytes, text, (size_t)n);
}

void put_number(struct bytes *bytes, uint64_t number, size_t size, bool big_endian) {
    for (size_t i = 0; i < size; i++) {
        size_t shift = 8 * (big_endian ? size - 1 - i : i);
        put(bytes, &(unsigned char){(unsigned char)(number >> shift & 0xff)}, 1);
    }
}

void put_zeros(struct bytes *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        put(bytes, "", 1);
    }
}

void put_floats(struct bytes *bytes, const float *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        put_number(bytes, bits, 4, false);
    }
}

void garble(struct generator *generator, unsigned char *data, size_t size, const char *likely,
            size_t likely_of_4) {
    for (size_t n = 1 + next_below(generator, 3); n > 0; n--) {
        size_t at = next_below(generator, size);
        data[at] = next_below(generator, 4) < likely_of_4
                       ? (unsigned char)likely[next_below(generator, strlen(likely))]
                       : (unsigned char)next_bits(generator);
    }
}

void bytes_free(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){0};
}

const char *write_bytes(const char *name, const struct bytes *bytes, size_t size) {
    const char *path = in_scratch(name);
    remove(path); /* some file systems are slow at writing a file anew in its place */
    FILE *file = fopen(path, "wb");
    require(file != NULL, "cannot write %s", path);
    require(fwrite(bytes->data, 1, size, file) == size, "cannot write %s", path);
    require(fclose(file) == 0, "cannot write %s", path);
    return path;
}

FILE *open_bytes(const struct bytes *bytes, size_t size) {
    /* glibc's fmemopen refuses size 0. */
    FILE *stream = size > 0 ? fmemopen(bytes->data, size, "rb") : fopen("/dev/null", "rb");
    require(stream != NULL, "no stream");
    return stream;
}

struct bytes read_bytes(const char *path) {
    struct bytes bytes = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return bytes;
    }
    unsigned char chunk[4096];
    size_t n;
    put(&bytes, NULL, 0);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) {
        put(&bytes, chunk, n);
    }
    fclose(file);
    return bytes;
}

bool files_equal(const char *path, const struct bytes *bytes) {
    struct bytes other = read_bytes(path);
    bool equal = other.data != NULL && other.size == bytes->size &&
                 memcmp(other.data, bytes->data, bytes->size) == 0;
    bytes_free(&other);
    return equal;
}

/* ---- .npy -------------------------------------------------------------------- */

void put_npy_header(struct bytes *bytes, int version, const char *dict) {
    size_t length_size = version == 1 ? 2 : 4;
    size_t before = 8 + length_size;
    size_t length = strlen(dict) + 1;
    length += (64 - (before + length) % 64) % 64;
    put(bytes, "\x93NUMPY", 6);
    put_number(bytes, (uint64_t)version, 1, false);
    put_number(bytes, 0, 1, false);
    put_number(bytes, length, length_size, false);
    put_text(bytes, "%-*s\n", (int)length - 1, dict);
}

void put_npy_type(struct bytes *bytes, const char *type, const char *shape) {
    char dict[256];
    snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type,
             shape);
    put_npy_header(bytes, 1, dict);
}

void put_npy_floats(struct bytes *bytes, const char *shape, const float *data, size_t count) {
    put_npy_type(bytes, "<f4", shape);
    put_floats(bytes, data, count);
}

const char *write_npy_floats(const char *name, const char *shape, const float *data, size_t count) {
    struct bytes bytes = {0};
    put_npy_floats(&bytes, shape, data, count);
    const char *path = write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    return path;
}

/* ---- safetensors --------------------------------------------------------------- */

uint16_t half_bits(float value) {
    /* Searched for rather than computed: independent of the conversion under test. */
    for (uint32_t bits = 0; bits < 0x7c00; bits++) {
        int exponent = (int)(bits >> 10);
        int fraction = (int)(bits & 0x3ff);
        float magnitude = exponent == 0 ? ldexpf((float)fraction, -24)
                                        : ldexpf((float)(1024 + fraction), exponent - 25);
        if (magnitude == value || magnitude == -value) {
            return (uint16_t)(bits | (value < 0 ? 0x8000u : 0));
        }
    }
    ck_abort_msg("%g is no binary16", (double)value);
    return 0;
}

static void put_value(struct bytes *bytes, const char *dtype, float value) {
    uint32_t single;
    double wide = (double)value;
    uint64_t bits;
    memcpy(&single, &value, sizeof single);
    memcpy(&bits, &wide, sizeof bits);
    if (strcmp(dtype, "F32") == 0) {
        put_number(bytes, single, 4, false);
    } else if (strcmp(dtype, "F64") == 0) {
        put_number(bytes, bits, 8, false);
    } else if (strcmp(dtype, "BF16") == 0) {
        put_number(bytes, single >> 16, 2, false);
    } else {
        put_number(bytes, half_bits(value), 2, false);
    }
}

void add_tensor(struct tensors *tensors, const char *name, const char *dtype, const char *shape,
                const float *values, size_t count) {
    size_t begin = tensors->data.size;
    for (size_t i = 0; i < count; i++) {
        put_value(&tensors->data, dtype, values[i]);
    }
    put_text(&tensors->json, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             tensors->json.size > 0 ? "," : "", name, dtype, shape, begin, tensors->data.size);
}

void put_safetensors(struct bytes *bytes, const char *json, size_t json_size, const void *data,
                     size_t data_size) {
    put_number(bytes, json_size + 2, 8, false);
    put(bytes, "{", 1);
    put(bytes, json, json_size);
    put(bytes, "}", 1);
    put(bytes, data, data_size);
}

const char *write_safetensors(const char *name, const char *json, size_t zeros) {
    struct bytes bytes = {0};
    put_number(&bytes, strlen(json), 8, false);
    put(&bytes, json, strlen(json));
    put_zeros(&bytes, zeros);
    const char *path = write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    return path;
}

const char *write_tensors(const char *name, struct tensors *tensors) {
    struct bytes bytes = {0};
    put_safetensors(&bytes, (const char *)tensors->json.data, tensors->json.size,
                    tensors->data.data, tensors->data.size);
    const char *path = write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    bytes_free(&tensors->json);
    bytes_free(&tensors->data);
    return path;
}

/* ---- The program ------------------------------------------------------------- */

/* wrapper words, the program, the arguments, NULL; in static memory. */
static char **command_line(const char *const *arguments) {
    static char *line[64];
    static char words[1024];
    size_t n = 0;
    const char *wrapper = getenv("MHA_EXE_WRAPPER");
    snprintf(words, sizeof words, "%s", wrapper != NULL ? wrapper : "");
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        line[n++] = word;
    }
    line[n++] = getenv("MHA_TOOL");
    for (size_t i = 0; arguments[i] != NULL; i++) {
        require(n < sizeof line / sizeof line[0] - 1, "too many arguments");
        line[n++] = (char *)(uintptr_t)arguments[i];
    }
    line[n] = NULL;
    return line;
}

struct outcome run_tool_list(const char *const *arguments) {
    static struct outcome outcome;
    /* Outside the scratch folder, whose files a test may count. */
    char out[300], err[300];
    snprintf(out, sizeof out, "%s.out", folder);
    snprintf(err, sizeof err, "%s.err", folder);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    char **line = command_line(arguments);
    pid_t child;
    int error = posix_spawnp(&child, line[0], &actions, NULL, line, environ);
    posix_spawn_file_actions_destroy(&actions);
    require(error == 0, "cannot run %s: %s", line[0], strerror(error));
    int status;
    require(waitpid(child, &status, 0) == child, "waitpid failed");
    free(outcome.out);
    free(outcome.err);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.out = (char *)read_bytes(out).data;
    outcome.err = (char *)read_bytes(err).data;
    remove(out);
    remove(err);
    return outcome;
}

struct outcome run_tool(const char *first, ...) {
    const char *list[64] = {first};
    va_list arguments;
    va_start(arguments, first);
    for (size_t n = 1; n < 63 && list[n - 1] != NULL; n++) {
        list[n] = va_arg(arguments, const char *);
    }
    va_end(arguments);
    return run_tool_list(list);
}

void require_tool(void) {
    const char *tool = getenv("MHA_TOOL");
    if (tool == NULL || *tool == '\0') {
        fprintf(stderr, "MHA_TOOL is not set: it says which mha program to test\n");
        exit(2);
    }
    snprintf(folder, sizeof folder, "/tmp/mha-tool-%ld", (long)getpid());
    char **line = command_line((const char *[]){"--version", NULL});
    pid_t child;
    int status = 0;
    int error = posix_spawnp(&child, line[0], NULL, NULL, line, environ);
    if (error != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        printf("SKIP: %s can't be run here; MHA_EXE_WRAPPER says what runs it\n", tool);
        exit(77);
    }
}
