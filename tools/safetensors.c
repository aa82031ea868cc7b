/* SPDX-License-Identifier: MIT
 *
 * Opening a safetensors file and reading tensors from it. safetensors_header.c parses the JSON;
 * this file compares its offsets with each other and with the file's size.
 */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "safetensors_header.h"

/* The format's own limit. */
#define MAX_HEADER ((uint64_t)100000000)

/* Reads all `size` bytes at `offset`. */
static bool read_at(const struct safetensors *file, void *out, size_t size, uint64_t offset) {
    size_t have = 0;
    while (have < size) {
        ssize_t n = pread(file->fd, (char *)out + have, size - have, (off_t)(offset + have));
        if (n == 0) {
            return failure("%s: the file became shorter while it was read", file->path);
        }
        if (n < 0 && errno != EINTR) {
            return failure("%s: %s", file->path, strerror(errno));
        }
        have += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static int by_offset(const void *left, const void *right) {
    const struct tensor *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->end < b->end ? -1 : a->end > b->end;
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const struct tensor *)left)->name, ((const struct tensor *)right)->name);
}

/* Type, shape and offsets of one tensor agree, and are within the data. */
static bool check_tensor(const char *path, const struct tensor *tensor, uint64_t data_size) {
    if (tensor->begin > tensor->end) {
        return failure("%s: tensor '%s' begins at %" PRIu64 " and ends before, at %" PRIu64, path,
                       tensor->name, tensor->begin, tensor->end);
    }
    if (tensor->end > data_size) {
        return failure("%s: tensor '%s' ends at byte %" PRIu64 " of the data, which has %" PRIu64,
                       path, tensor->name, tensor->end, data_size);
    }
    if (tensor->element.size == 0) {
        return true; /* an unknown type: its length can't be checked */
    }
    struct shape_text shape = shape_text(&tensor->shape);
    size_t bytes;
    if (!shape_bytes(&tensor->shape, tensor->element.size, &bytes)) {
        return failure("%s: tensor '%s' has a shape too large to be true, %s", path, tensor->name,
                       shape.text);
    }
    if (bytes != tensor->end - tensor->begin) {
        return failure("%s: tensor '%s', %s of shape %s, needs %zu bytes, but its offsets are "
                       "%" PRIu64 " to %" PRIu64,
                       path, tensor->name, tensor->dtype, shape.text, bytes, tensor->begin,
                       tensor->end);
    }
    return true;
}

/* The tensors tile the data: no overlap, no hole, nothing left over. */
static bool check_tiling(struct safetensors *file, uint64_t data_size) {
    qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    uint64_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct tensor *tensor = &file->tensors[i];
        if (tensor->begin < at) {
            return failure("%s: tensors '%s' and '%s' overlap", file->path,
                           file->tensors[i - 1].name, tensor->name);
        }
        if (tensor->begin > at) {
            return failure("%s: a hole in the data: no tensor has bytes %" PRIu64 " to %" PRIu64,
                           file->path, at, tensor->begin);
        }
        at = tensor->end;
    }
    if (at != data_size) {
        return failure("%s: the tensors end at byte %" PRIu64 " of the data, which has %" PRIu64,
                       file->path, at, data_size);
    }
    return true;
}

static bool check_names(struct safetensors *file) {
    qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
    for (size_t i = 1; i < file->count; i++) {
        if (by_name(&file->tensors[i - 1], &file->tensors[i]) == 0) {
            return failure("%s: the name '%s' stands twice in the header", file->path,
                           file->tensors[i].name);
        }
    }
    return true;
}

static bool read_header(struct safetensors *file, uint64_t file_size) {
    unsigned char start[8];
    if (file_size < sizeof start) {
        return failure("%s: not a safetensors file: %" PRIu64 " bytes are too short", file->path,
                       file_size);
    }
    if (!read_at(file, start, sizeof start, 0)) {
        return false;
    }
    uint64_t length = element_bits(&(struct element){ELEMENT_UNSIGNED, 8, false}, start);
    if (length > file_size - sizeof start) {
        return failure("%s: not a safetensors file, or truncated: its header would have %" PRIu64
                       " bytes, the file has %" PRIu64,
                       file->path, length, file_size);
    }
    if (length > MAX_HEADER) {
        return failure("%s: a header of %" PRIu64 " bytes is refused (the limit is %" PRIu64 ")",
                       file->path, length, MAX_HEADER);
    }
    file->header = malloc((size_t)length + 1);
    if (file->header == NULL) {
        return failure_memory();
    }
    file->data_start = sizeof start + length;
    return read_at(file, file->header, (size_t)length, sizeof start) &&
           safetensors_parse_header(file->path, file->header, (size_t)length, &file->tensors,
                                    &file->count);
}

static bool open_and_check(struct safetensors *file) {
    struct stat status;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        return failure("%s: %s", file->path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return failure("%s: not a regular file (weights are read from where they stand)",
                       file->path);
    }
    uint64_t file_size = (uint64_t)status.st_size;
    if (!read_header(file, file_size)) {
        return false;
    }
    uint64_t data_size = file_size - file->data_start;
    for (size_t i = 0; i < file->count; i++) {
        if (!check_tensor(file->path, &file->tensors[i], data_size)) {
            return false;
        }
    }
    return check_tiling(file, data_size) && check_names(file);
}

bool safetensors_open(const char *path, struct safetensors *file) {
    *file = (struct safetensors){.path = path, .fd = -1};
    if (!open_and_check(file)) {
        safetensors_close(file);
        return false;
    }
    return true;
}

void safetensors_close(struct safetensors *file) {
    if (file->fd >= 0) {
        close(file->fd);
    }
    free(file->header);
    free(file->tensors);
    *file = (struct safetensors){.fd = -1};
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *prefix,
                                      size_t length, const char *name) {
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tensor *tensor = &file->tensors[middle];
        int order = strncmp(prefix, tensor->name, length);
        order = order != 0 ? order : strcmp(name, tensor->name + length);
        if (order == 0) {
            return tensor;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

float *safetensors_floats(const struct safetensors *file, const struct tensor *tensor) {
    const struct element *element = &tensor->element;
    if (element->kind != ELEMENT_FLOAT && element->kind != ELEMENT_BFLOAT16) {
        failure("%s: tensor '%s' is of type %s; F32, F16, BF16 and F64 can be used", file->path,
                tensor->name, tensor->dtype);
        return NULL;
    }
    uint64_t count = (tensor->end - tensor->begin) / element->size;
    float *out = count >= SIZE_MAX / sizeof *out ? NULL : malloc(((size_t)count + 1) * sizeof *out);
    if (out == NULL) {
        failure_memory();
        return NULL;
    }
    unsigned char chunk[8192];
    uint64_t at = file->data_start + tensor->begin;
    for (size_t done = 0; done < count;) {
        size_t n = sizeof chunk / element->size;
        n = n < count - done ? n : (size_t)count - done;
        if (!read_at(file, chunk, n * element->size, at)) {
            free(out);
            return NULL;
        }
        for (size_t i = 0; i < n; i++) {
            out[done + i] = (float)element_float(element, chunk + i * element->size);
        }
        done += n;
        at += n * element->size;
    }
    return out;
}
