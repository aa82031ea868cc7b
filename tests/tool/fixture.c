/* SPDX-License-Identifier: MIT
 *
 * Files, folders and child processes for the tests of the mha program.
 */
#include "fixture.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static uint16_t half_bits(float value) {
    uint16_t sign = value < 0 ? 0x8000 : 0;
    /* A search, so that it is independent of the conversion under test. */
    for (uint32_t bits = 0; bits <= 0x7c00; bits++) {
        int exponent = (int)(bits >> 10);
        int fraction = (int)(bits & 0x3ff);
        float magnitude = bits == 0x7c00  ? INFINITY
                          : exponent == 0 ? ldexpf((float)fraction, -24)
                                          : ldexpf((float)(1024 + fraction), exponent - 25);
        if (magnitude == value || magnitude == -value) {
            return (uint16_t)(bits | sign);
        }
    }
    ck_abort_msg("%g is no binary16", (double)value);
    return 0;
}

void put_float(struct bytes *bytes, float value, size_t size, bool big_endian) {
    double wide = (double)value;
    uint32_t single;
    uint64_t bits;
    memcpy(&single, &value, sizeof single);
    memcpy(&bits, &wide, sizeof bits);
    bits = size == 2 ? half_bits(value) : size == 4 ? single : bits;
    put_number(bytes, bits, size, big_endian);
}

void put_floats(struct bytes *bytes, const float *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put_float(bytes, data[i], 4, false);
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
    remove(path); /* some file systems are slow at overwriting a file */
    FILE *file = fopen(path, "wb");
    require(file != NULL, "cannot write %s", path);
    require(fwrite(bytes->data, 1, size, file) == size, "cannot write %s", path);
    require(fclose(file) == 0, "cannot write %s", path);
    return path;
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

void write_npy_zeros(const char *name, const char *type, const char *shape, size_t size) {
    struct bytes bytes = {0};
    put_npy_type(&bytes, type, shape);
    put_zeros(&bytes, size);
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
}

/* ---- safetensors --------------------------------------------------------------- */

static void put_value(struct bytes *bytes, const char *dtype, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (strcmp(dtype, "BF16") == 0) {
        put_number(bytes, bits >> 16, 2, false);
    } else {
        put_float(bytes, value, strstr(dtype, "16") != NULL ? 2 : dtype[1] == '3' ? 4 : 8, false);
    }
}

void add_tensor(struct tensors *tensors, const char *name, const char *dtype, const char *shape,
                const float *values, size_t count) {
    size_t begin = tensors->data.size;
    for (size_t i = 0; i < count; i++) {
        put_value(&tensors->data, dtype, values[i]);
    }
    put_text(&tensors->json, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             tensors->json.size > 0 ? "," : "{", name, dtype, shape, begin, tensors->data.size);
}

void put_safetensors(struct bytes *bytes, const char *json, const void *data, size_t data_size) {
    put_number(bytes, strlen(json), 8, false);
    put(bytes, json, strlen(json));
    put(bytes, data, data_size);
}

const char *write_safetensors(const char *name, const char *json, size_t zeros) {
    struct bytes bytes = {0};
    put_safetensors(&bytes, json, NULL, 0);
    put_zeros(&bytes, zeros);
    const char *path = write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    return path;
}

const char *write_tensors(const char *name, struct tensors *tensors) {
    struct bytes bytes = {0};
    put_text(&tensors->json, "}");
    put_safetensors(&bytes, (const char *)tensors->json.data, tensors->data.data,
                    tensors->data.size);
    const char *path = write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    bytes_free(&tensors->json);
    bytes_free(&tensors->data);
    return path;
}

/* ---- The program ------------------------------------------------------------- */

/* For the shell: the words that run the program. */
#define TOOL "$MHA_EXE_WRAPPER \"$MHA_TOOL\" "

struct outcome run_tool_list(const char *const *arguments) {
    static struct outcome outcome;
    /* Outside the scratch folder, whose files a test may count. */
    char out[300], err[300];
    snprintf(out, sizeof out, "%s.out", folder);
    snprintf(err, sizeof err, "%s.err", folder);
    const char *line[72] = {"sh", "-c",
                            "exec " TOOL "\"$@\" < /dev/null > \"$0.out\" 2> \"$0.err\"", folder};
    for (size_t i = 0; arguments[i] != NULL; i++) {
        require(i < 64, "too many arguments");
        line[4 + i] = arguments[i];
    }
    pid_t child = fork();
    if (child == 0) {
        execv("/bin/sh", (char **)line);
        _exit(127);
    }
    int status = 0;
    require(child > 0 && waitpid(child, &status, 0) == child, "fork or waitpid failed");
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

int run_shell(const char *format, ...) {
    char command[4096] = TOOL;
    size_t n = strlen(command);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + n, sizeof command - n, format, arguments);
    va_end(arguments);
    return system(command);
}

void expect_error(struct outcome outcome, int status, const char *message) {
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

void require_tool(void) {
    const char *tool = getenv("MHA_TOOL");
    if (tool == NULL || *tool == '\0') {
        fprintf(stderr, "MHA_TOOL is not set: it says which mha program to test\n");
        exit(2);
    }
    snprintf(folder, sizeof folder, "/tmp/mha-tool-%ld", (long)getpid());
    if (run_tool("--version", NULL).status != 0) {
        printf("SKIP: %s can't be run here; MHA_EXE_WRAPPER says what runs it\n", tool);
        exit(77);
    }
}
