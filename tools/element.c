/* SPDX-License-Identifier: MIT
 *
 * Decodes the numbers that files store, bit by bit rather than by the host's own
 * conversions, and counts and prints shapes.
 */
#include "element.h"

#include <stdio.h>
#include <string.h>

static double double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double single(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double half(uint64_t bits) {
    uint64_t sign = bits >> 15 << 63;
    uint64_t exponent = bits >> 10 & 0x1f;
    uint64_t mantissa = bits & 0x3ff;
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 is exact in double */
        double magnitude = (double)mantissa * 0x1p-24;
        return sign != 0 ? -magnitude : magnitude;
    }
    uint64_t wide = exponent == 0x1f ? 0x7ff : exponent - 15 + 1023;
    return double_of_bits(sign | wide << 52 | mantissa << 42);
}

uint64_t element_bits(const struct element *element, const unsigned char *bytes) {
    uint64_t bits = 0;
    for (size_t i = 0; i < element->size; i++) {
        bits = bits << 8 | bytes[element->big_endian ? i : element->size - 1 - i];
    }
    if (element->kind == ELEMENT_SIGNED && element->size < 8) {
        uint64_t sign = (uint64_t)1 << (8 * element->size - 1);
        bits = (bits ^ sign) - sign;
    }
    return bits;
}

double element_float(const struct element *element, const unsigned char *bytes) {
    uint64_t bits = element_bits(element, bytes);
    if (element->kind == ELEMENT_BFLOAT16) {
        return single((uint32_t)bits << 16);
    }
    switch (element->size) {
    case 2:
        return half(bits);
    case 4:
        return single((uint32_t)bits);
    default:
        return double_of_bits(bits);
    }
}

bool shape_bytes(const struct shape *shape, size_t element_size, size_t *bytes) {
    size_t total = element_size;
    bool empty = false;
    for (size_t i = 0; i < shape->rank; i++) {
        size_t dim = shape->dim[i];
        if (dim == 0) {
            empty = true;
        } else if (total > SIZE_MAX / dim) {
            return false;
        } else {
            total *= dim;
        }
    }
    *bytes = empty ? 0 : total;
    return true;
}

bool shape_equal(const struct shape *a, const struct shape *b) {
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

struct shape_text shape_text(const struct shape *shape) {
    struct shape_text out = {"("};
    size_t n = 1;
    for (size_t i = 0; i < shape->rank; i++) {
        n += (size_t)snprintf(out.text + n, sizeof out.text - n, i == 0 ? "%zu" : ", %zu",
                              shape->dim[i]);
    }
    snprintf(out.text + n, sizeof out.text - n, shape->rank == 1 ? ",)" : ")");
    return out;
}
