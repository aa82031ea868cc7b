/* SPDX-License-Identifier: MIT
 *
 * NumPy's .npy files (numpy.lib.format): reads versions 1.0, 2.0 and 3.0, C and Fortran
 * order, either byte order; writes float32 as numpy.save does. Knows nothing of what
 * the arrays are for.
 */
#ifndef MHA_TOOL_NPY_H
#define MHA_TOOL_NPY_H

#include <stdio.h>

#include "element.h"

struct npy {
    struct element element;
    bool fortran_order;
    struct shape shape;
    size_t count; /* elements */
    unsigned char *bytes;
};

/* Reads one array from a stream that holds it and nothing after it. `name` is what messages call
 * the stream. On failure *npy is empty. Allocates at most a small multiple of what the stream
 * holds, even if its header claims more. */
bool npy_read(FILE *stream, const char *name, struct npy *npy);
bool npy_load(const char *path, struct npy *npy);
void npy_free(struct npy *npy);

/* The element type in words, without its byte order: "float64", "int32"; for messages. */
struct npy_type_text {
    char text[32];
};
struct npy_type_text npy_type_text(const struct npy *npy);

/* Where element `index`, counted in C order, is stored. */
const unsigned char *npy_element(const struct npy *npy, size_t index);

/* All elements of a float array, in C order, each rounded to nearest even. NULL if out
 * of memory (recorded); never NULL otherwise. The caller frees. */
float *npy_floats(const struct npy *npy);

/* Header and data of a C-order float32 array: the bytes of numpy.save on a
 * little-endian machine. False, with errno set, if the stream takes no more. */
bool npy_write(FILE *stream, const struct shape *shape, const float *data);

#endif
