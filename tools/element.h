/* SPDX-License-Identifier: MIT
 *
 * Numbers as files store them, and shapes. Values are decoded from bytes, so the
 * host's byte order never matters. Knows nothing of any file format.
 */
#ifndef MHA_TOOL_ELEMENT_H
#define MHA_TOOL_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most dimensions of an array that is read. */
#define MAX_RANK ((size_t)8)

enum element_kind {
    ELEMENT_OTHER = 0, /* known to the format, not used here */
    ELEMENT_FLOAT,     /* binary16, 32, 64 */
    ELEMENT_BFLOAT16,
    ELEMENT_BOOL,
    ELEMENT_UNSIGNED,
    ELEMENT_SIGNED,
};

struct element {
    enum element_kind kind;
    size_t size; /* bytes: 1, 2, 4 or 8 */
    bool big_endian;
};

/* The value of a FLOAT or BFLOAT16; exact. A cast to float rounds to nearest even. */
double element_float(const struct element *element, const unsigned char *bytes);

/* The bits of any element, as an unsigned number; a SIGNED one is sign-extended. */
uint64_t element_bits(const struct element *element, const unsigned char *bytes);

struct shape {
    size_t rank;
    size_t dim[MAX_RANK];
};

/* The number of elements times element_size to *bytes; false if beyond SIZE_MAX (even if another
 * dimension is 0). */
bool shape_bytes(const struct shape *shape, size_t element_size, size_t *bytes);

bool shape_equal(const struct shape *a, const struct shape *b);

/* "(2, 5, 8)" as Python prints it. */
struct shape_text {
    char text[MAX_RANK * 22 + 4];
};
struct shape_text shape_text(const struct shape *shape);

#endif
