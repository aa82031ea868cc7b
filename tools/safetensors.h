/* SPDX-License-Identifier: MIT
 *
 * safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes. The whole
 * header is checked when the file is opened; data is read tensor by tensor, so memory grows with
 * the tensors that are read, not with the file. Knows nothing of what tensors are for.
 */
#ifndef MHA_TOOL_SAFETENSORS_H
#define MHA_TOOL_SAFETENSORS_H

#include "element.h"

struct tensor {
    const char *name;
    const char *dtype; /* as in the file */
    struct element element;
    struct shape shape;
    uint64_t begin, end; /* of its bytes, from the start of the data */
};

struct safetensors {
    const char *path; /* the caller's */
    int fd;
    char *header;
    uint64_t data_start;
    struct tensor *tensors; /* by name, in strcmp order */
    size_t count;
};

/* Refuses a file that does not follow the format exactly: names that repeat, offsets that
 * overlap, leave holes or disagree with type and shape, bytes after the data. On failure *file is
 * empty. */
bool safetensors_open(const char *path, struct safetensors *file);
void safetensors_close(struct safetensors *file);

/* The tensor named prefix[length] + name. NULL if there is none (nothing is recorded). */
const struct tensor *safetensors_find(const struct safetensors *file, const char *prefix,
                                      size_t length, const char *name);

/* The tensor's values, F32, F16 and BF16 exactly, F64 rounded to nearest even. NULL and a
 * recorded failure for other types, or if reading fails. The caller frees. */
float *safetensors_floats(const struct safetensors *file, const struct tensor *tensor);

#endif
