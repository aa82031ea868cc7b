/* SPDX-License-Identifier: MIT
 *
 * Reading .npy files of every supported kind, and writing what numpy.save writes.
 * test_npy_refusals.c has what is no such file.
 */
#include "npy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "fixture.h"

/* ---- Reading ------------------------------------------------------------------ */

/* How element k of a test array is stored, and its value. */
struct type {
    const char *code;
    size_t size;
    enum element_kind kind;
};

static const struct type types[] = {
    {"f2", 2, ELEMENT_FLOAT},    {"f4", 4, ELEMENT_FLOAT},    {"f8", 8, ELEMENT_FLOAT},
    {"b1", 1, ELEMENT_BOOL},     {"u1", 1, ELEMENT_UNSIGNED}, {"u2", 2, ELEMENT_UNSIGNED},
    {"u4", 4, ELEMENT_UNSIGNED}, {"u8", 8, ELEMENT_UNSIGNED}, {"i1", 1, ELEMENT_SIGNED},
    {"i2", 2, ELEMENT_SIGNED},   {"i4", 4, ELEMENT_SIGNED},   {"i8", 8, ELEMENT_SIGNED},
};

/* Small numbers of both signs, exact in every type that can hold a sign. */
static int test_value(const struct type *type, size_t k) {
    if (type->kind == ELEMENT_BOOL) {
        return k % 3 == 0;
    }
    int value = (int)(k % 100);
    return type->kind == ELEMENT_UNSIGNED ? value : value - 50;
}

static void put_element(struct bytes *bytes, const struct type *type, int value, bool big) {
    uint64_t bits = (uint64_t)(int64_t)value;
    if (type->kind == ELEMENT_FLOAT) {
        float single = (float)value;
        double wide = value;
        uint32_t narrow;
        memcpy(&narrow, &single, sizeof narrow);
        memcpy(&bits, &wide, sizeof bits);
        bits = type->size == 2 ? half_bits(single) : type->size == 4 ? narrow : bits;
    }
    put_number(bytes, bits, type->size, big);
}

static int read_element(const struct npy *npy, const struct type *type, size_t k) {
    return type->kind == ELEMENT_FLOAT
               ? (int)element_float(&npy->element, npy_element(npy, k))
               : (int)(int64_t)element_bits(&npy->element, npy_element(npy, k));
}

static const struct {
    const char *text;
    struct shape shape;
} read_shapes[] = {
    {"()", {0, {0}}},
    {"(1,)", {1, {1}}},
    {"(7,)", {1, {7}}},
    {"(0,)", {1, {0}}},
    {"(3, 5)", {2, {3, 5}}},
    {"(4, 0, 3)", {3, {4, 0, 3}}},
    {"(2, 3, 5)", {3, {2, 3, 5}}},
    {"(2, 1, 3, 4)", {4, {2, 1, 3, 4}}},
    {"(1, 2, 1, 2, 1, 2, 1, 3)", {8, {1, 2, 1, 2, 1, 2, 1, 3}}},
};

/* Where C-order element k stands in a Fortran-order file, from the definition. */
static size_t fortran_place(const struct shape *shape, size_t k) {
    size_t coordinate[8] = {0}, place = 0, stride = 1;
    for (size_t i = shape->rank; i-- > 0;) {
        coordinate[i] = k % shape->dim[i];
        k /= shape->dim[i];
    }
    for (size_t i = 0; i < shape->rank; i++) {
        place += coordinate[i] * stride;
        stride *= shape->dim[i];
    }
    return place;
}

static void check_reading(const struct type *type, size_t s, bool big, bool fortran, int version) {
    const struct shape *shape = &read_shapes[s].shape;
    char dict[200];
    char order = big ? '>' : type->size == 1 ? '|' : '<';
    snprintf(dict, sizeof dict, "{'descr': '%c%s', 'fortran_order': %s, 'shape': %s, }", order,
             type->code, fortran ? "True" : "False", read_shapes[s].text);
    begin_case("version %d %s", version, dict);
    size_t count = 1;
    for (size_t i = 0; i < shape->rank; i++) {
        count *= shape->dim[i];
    }
    int *stored = calloc(count + 1, sizeof *stored);
    for (size_t k = 0; k < count; k++) {
        stored[fortran ? fortran_place(shape, k) : k] = test_value(type, k);
    }
    struct bytes bytes = {0};
    put_npy_header(&bytes, version, dict);
    for (size_t k = 0; k < count; k++) {
        put_element(&bytes, type, stored[k], big);
    }
    struct npy npy;
    FILE *stream = open_bytes(&bytes, bytes.size);
    require(npy_read(stream, "x.npy", &npy), "%s: %s", case_name(), failure_message());
    fclose(stream);
    require(npy.count == count && shape_equal(&npy.shape, shape), "%s: shape", case_name());
    require(npy.element.kind == type->kind && npy.element.size == type->size, "%s: type",
            case_name());
    for (size_t k = 0; k < count; k++) {
        int have = read_element(&npy, type, k);
        require(have == test_value(type, k), "%s: element %zu is %d", case_name(), k, have);
    }
    if (type->kind == ELEMENT_FLOAT) {
        float *floats = npy_floats(&npy);
        for (size_t k = 0; k < count; k++) {
            require(floats[k] == (float)test_value(type, k), "%s: float %zu", case_name(), k);
        }
        free(floats);
    }
    npy_free(&npy);
    bytes_free(&bytes);
    free(stored);
}

START_TEST(every_kind) {
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (size_t s = 0; s < sizeof read_shapes / sizeof read_shapes[0]; s++) {
            for (int variant = 0; variant < 4; variant++) {
                for (int version = 1; version <= 3; version++) {
                    check_reading(&types[t], s, (variant & 1) != 0, (variant & 2) != 0, version);
                }
            }
        }
    }
}
END_TEST

/* ---- Files and pipes ------------------------------------------------------------ */

START_TEST(from_files) {
    struct npy npy;
    ck_assert(!npy_load(in_scratch("none.npy"), &npy));
    ck_assert_ptr_nonnull(strstr(failure_message(), "No such file"));
    ck_assert(!npy_load(in_scratch(""), &npy));
    ck_assert_ptr_nonnull(strstr(failure_message(), "Is a directory"));
    const float data[3] = {1, 2, 3};
    ck_assert(npy_load(write_npy_floats("x.npy", "(3,)", data, 3), &npy));
    ck_assert_uint_eq(npy.count, 3);
    npy_free(&npy);
}
END_TEST

/* A pipe has no size to ask for: what comes is read. */
START_TEST(from_a_pipe) {
    struct bytes bytes = {0};
    const float data[4] = {1, 2, 3, 4};
    int ends[2];
    struct npy npy;
    put_npy_floats(&bytes, "(2, 2)", data, 4);
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq((int)write(ends[1], bytes.data, bytes.size), (int)bytes.size);
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "rb");
    ck_assert(npy_read(stream, "pipe", &npy));
    ck_assert(element_float(&npy.element, npy_element(&npy, 3)) == 4.0);
    fclose(stream);
    npy_free(&npy);
    bytes_free(&bytes);
}
END_TEST

/* ---- Writing -------------------------------------------------------------------- */

/* What numpy.lib.format.write_array_header_1_0 of NumPy 2.4.6 wrote for these shapes. */
static const struct {
    struct shape shape;
    const char *dict;
} written[] = {
    {{1, {7}}, "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }"},
    {{2, {2, 3}}, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"},
    {{3, {1, 17, 384}}, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 17, 384), }"},
    {{4, {2, 12, 1, 33}}, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 12, 1, 33), }"},
    {{3, {12345678, 0, 44}},
     "{'descr': '<f4', 'fortran_order': False, 'shape': (12345678, 0, 44), }"},
};

START_TEST(as_numpy_saves) {
    struct generator g = begin_case("writing");
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        struct bytes want = {0};
        size_t count = 1;
        for (size_t k = 0; k < written[i].shape.rank; k++) {
            count *= written[i].shape.dim[k];
        }
        float *data = calloc(count + 1, sizeof *data);
        fill_floats(&g, data, count);
        /* All of these headers came out as 128 bytes: 10 and 118. */
        put(&want, "\x93NUMPY\1\0\x76\0", 10);
        put_text(&want, "%-117s\n", written[i].dict);
        put_floats(&want, data, count);
        const char *path = in_scratch("y.npy");
        FILE *file = fopen(path, "wb");
        ck_assert(npy_write(file, &written[i].shape, data));
        ck_assert_int_eq(fclose(file), 0);
        require(files_equal(path, &want), "shape %zu differs", i);
        struct npy npy;
        require(npy_load(path, &npy), "%s", failure_message());
        float *back = npy_floats(&npy);
        ck_assert(npy.count == count && memcmp(back, data, count * sizeof *data) == 0);
        free(back);
        npy_free(&npy);
        free(data);
        bytes_free(&want);
    }
}
END_TEST

START_TEST(a_full_stream) {
    const float data[4] = {0};
    FILE *file = fopen("/dev/full", "wb");
    if (file == NULL) {
        printf("SKIP: a_full_stream: no /dev/full here\n");
        return;
    }
    setvbuf(file, NULL, _IONBF, 0);
    ck_assert(!npy_write(file, &(struct shape){1, {4}}, data));
    fclose(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-npy");
    TCase *tcase = tcase_create("npy");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, every_kind);
    tcase_add_test(tcase, from_files);
    tcase_add_test(tcase, from_a_pipe);
    tcase_add_test(tcase, as_numpy_saves);
    tcase_add_test(tcase, a_full_stream);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
