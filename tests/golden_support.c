/* SPDX-License-Identifier: MIT
 *
 * See golden_support.h. Reads .npy files through tools/npy.h.
 */
#include "golden_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "npy.h"
#include "support.h"

#define CANARY_FLOATS ((size_t)64)
#define CANARY_BYTE 0xa5

static const char *folder;
static void *kept[64];
static size_t kept_count;

void golden_set_folder(const char *path) {
    folder = path;
}

void *golden_keep(void *memory) {
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_lt(kept_count, sizeof kept / sizeof kept[0]);
    kept[kept_count++] = memory;
    return memory;
}

void golden_free(void) {
    while (kept_count > 0) {
        free(kept[--kept_count]);
    }
}

const char *golden_path(const char *file) {
    size_t size = strlen(folder) + strlen(file) + 2;
    char *path = golden_keep(malloc(size));
    snprintf(path, size, "%s/%s", folder, file);
    return path;
}

/* ---- Inputs --------------------------------------------------------------- */

static const char *const tensors[] = {"query",  "key",    "value",  "q",      "k",    "v",   "o",
                                      "q_bias", "k_bias", "v_bias", "o_bias", "keep", "bias"};

static uint32_t hash_name(const char *name) { /* FNV-1a */
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    }
    return hash;
}

static uint64_t tensor_start(const char *name, const char *tensor) {
    uint64_t number = 0;
    while (strcmp(tensors[number], tensor) != 0) {
        number++;
        require(number < sizeof tensors / sizeof tensors[0], "no tensor %s", tensor);
    }
    return (uint64_t)hash_name(name) << 32 ^ number << 28;
}

static uint64_t integer_at(uint64_t start, size_t index) { /* splitmix64 over a counter */
    uint64_t z = (start + index + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static float float_of(uint64_t integer, int exponent, int bits) {
    int top = (int)(integer >> (64 - bits)) - (1 << (bits - 1));
    return ldexpf((float)top, exponent - bits + 1);
}

uint64_t golden_integer(const char *name, const char *tensor, size_t index) {
    return integer_at(tensor_start(name, tensor), index);
}

float golden_float(const char *name, const char *tensor, size_t index, int exponent, int bits) {
    return float_of(golden_integer(name, tensor, index), exponent, bits);
}

float *golden_floats(const char *name, const char *tensor, size_t count, int exponent, int bits) {
    float *values = golden_keep(malloc((count + 1) * sizeof *values));
    uint64_t start = tensor_start(name, tensor);
    for (size_t i = 0; i < count; i++) {
        values[i] = float_of(integer_at(start, i), exponent, bits);
    }
    return values;
}

/* ---- Outputs -------------------------------------------------------------- */

float *golden_output(size_t count) {
    float *output = golden_keep(malloc((count + CANARY_FLOATS) * sizeof *output));
    for (size_t i = 0; i < count; i++) {
        output[i] = NAN;
    }
    memset(output + count, CANARY_BYTE, CANARY_FLOATS * sizeof *output);
    return output;
}

void golden_check_output(const char *name, const float *output, size_t count) {
    for (size_t i = 0; i < count; i++) {
        require(!isnan(output[i]), "%s: element %zu of the output is NaN", name, i);
    }
    const unsigned char *canary = (const unsigned char *)(output + count);
    for (size_t i = 0; i < CANARY_FLOATS * sizeof *output; i++) {
        require(canary[i] == CANARY_BYTE, "%s: byte %zu after the output's end was written", name,
                i);
    }
}

/* ---- Comparison ----------------------------------------------------------- */

static double *load_expected(const char *file, size_t count) {
    struct npy npy;
    ck_assert_msg(npy_load(golden_path(file), &npy), "%s", failure_message());
    ck_assert_msg(npy.element.kind == ELEMENT_FLOAT && npy.element.size == 8 && npy.count == count,
                  "%s: %s %s, expected %zu numbers in float64", file, npy_type_text(&npy).text,
                  shape_text(&npy.shape).text, count);
    double *values = golden_keep(malloc((count + 1) * sizeof *values));
    for (size_t i = 0; i < count; i++) {
        values[i] = element_float(&npy.element, npy_element(&npy, i));
    }
    npy_free(&npy);
    return values;
}

void golden_compare(const char *file, const float *actual, size_t groups, size_t q_len,
                    size_t width, size_t step, double tolerance) {
    size_t rows = (q_len + step - 1) / step;
    size_t count = groups * rows * width;
    const double *expected = load_expected(file, count);
    golden_check_output(file, actual, groups * q_len * width);
    double scale = 0;
    for (size_t i = 0; i < count; i++) {
        scale = fmax(scale, fabs(expected[i]));
    }
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        size_t group = i / width / rows, row = i / width % rows * step, column = i % width;
        float value = actual[(group * q_len + row) * width + column];
        double error = fabs((double)value - expected[i]);
        require(error <= tolerance * scale,
                "%s: [%zu][%zu][%zu] is %.9g, expected %.17g: off by %.2e of the largest "
                "magnitude, %g, where %g is allowed",
                file, group, row, column, (double)value, expected[i], error / scale, scale,
                tolerance);
        largest = fmax(largest, error);
    }
    printf("%-34s %.1e of %g\n", file, scale > 0 ? largest / scale : 0, tolerance);
}
