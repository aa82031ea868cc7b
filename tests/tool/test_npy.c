/* SPDX-License-Identifier: MIT
 *
 * Reading .npy files of every supported kind, and writing what numpy.save writes. Other files are
 * refused in words: wrong headers, files cut short, garbled or too long.
 */
#include "npy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "fixture.h"

/* Reads the first `size` bytes from memory, as from a file of that size. */
static bool read_from(const struct bytes *bytes, size_t size, struct npy *npy) {
    /* fmemopen refuses size 0. */
    FILE *stream = size > 0 ? fmemopen(bytes->data, size, "rb") : fopen("/dev/null", "rb");
    require(stream != NULL, "no stream");
    bool good = npy_read(stream, "x.npy", npy);
    fclose(stream);
    return good;
}

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

/* Small numbers, exact in every type; of both signs, or with the highest bit of uint8. */
static int test_value(const struct type *type, size_t k) {
    if (type->kind == ELEMENT_BOOL) {
        return k % 3 == 0;
    }
    int value = (int)(k % 100);
    return type->kind == ELEMENT_UNSIGNED ? value + 150 : value - 50;
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

/* The place of C-order element k in a Fortran-order file, by the definition. */
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
        if (type->kind == ELEMENT_FLOAT) {
            put_float(&bytes, (float)stored[k], type->size, big);
        } else {
            put_number(&bytes, (uint64_t)(int64_t)stored[k], type->size, big);
        }
    }
    struct npy npy;
    require(read_from(&bytes, bytes.size, &npy), "%s: %s", case_name(), failure_message());
    require(npy.count == count && shape_equal(&npy.shape, shape), "%s: shape", case_name());
    require(npy.element.kind == type->kind && npy.element.size == type->size, "%s: type",
            case_name());
    for (size_t k = 0; k < count; k++) {
        int have = read_element(&npy, type, k);
        require(have == test_value(type, k), "%s: element %zu is %d", case_name(), k, have);
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

/* A pipe has no size: the reader takes what comes. */
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
        struct bytes have = read_bytes(path);
        require(have.size == want.size && memcmp(have.data, want.data, want.size) == 0,
                "shape %zu differs", i);
        bytes_free(&have);
        free(data);
        bytes_free(&want);
    }
}
END_TEST

/* ---- Refusals: headers -------------------------------------------------------------------- */

static const struct {
    const char *dict;
    bool good;
} dicts[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", true},
    {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", true},
    {"{'shape': (2,), 'descr': '<f4', 'fortran_order': False}", true},
    {"{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2,)}", true},
    {"  { 'descr' : '<f4' ,\t'fortran_order' : False , 'shape' : ( 2 , ) , }  ", true},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}", true},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, )}", true},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (02,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551618,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905, 1)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4, 0)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 1, 1, 1, 1, 1, 1, 1)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", false},
    {"{,'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False}", false},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'a key that is too long': 1}", false},
    {"{descr: '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4\", 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': 'False', 'shape': (2,)}", false},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", false},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", false},
    {"", false},
    {"(", false},
};

START_TEST(header_literals) {
    for (size_t i = 0; i < sizeof dicts / sizeof dicts[0]; i++) {
        struct bytes bytes = {0};
        const float data[2] = {1.5f, -2.0f};
        put_npy_header(&bytes, 1, dicts[i].dict);
        put_floats(&bytes, data, 2);
        struct npy npy;
        failure_usage("nothing yet");
        bool good = read_from(&bytes, bytes.size, &npy);
        require(good == dicts[i].good, "%s was %s (%s)", dicts[i].dict, good ? "taken" : "refused",
                failure_message());
        require(good || (npy.bytes == NULL && strncmp(failure_message(), "x.npy: ", 7) == 0),
                "%s: %s", dicts[i].dict, failure_message());
        require(!good || element_float(&npy.element, npy_element(&npy, 1)) == -2.0, "value");
        npy_free(&npy);
        bytes_free(&bytes);
    }
}
END_TEST

/* ---- Refusals: damage ------------------------------------------------------------------- */

START_TEST(truncated_everywhere) {
    for (int version = 1; version <= 3; version++) {
        struct bytes bytes = {0};
        put_npy_header(&bytes, version,
                       "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }");
        put_zeros(&bytes, 6 * 8);
        struct npy npy;
        for (size_t size = 0; size < bytes.size; size++) {
            failure_usage("nothing yet");
            require(!read_from(&bytes, size, &npy), "version %d cut to %zu bytes was taken",
                    version, size);
            require(strstr(failure_message(), size == 0 ? "not a .npy file" : "truncated") != NULL,
                    "version %d cut to %zu: %s", version, size, failure_message());
        }
        require(read_from(&bytes, bytes.size, &npy), "whole: %s", failure_message());
        npy_free(&npy);
        put_zeros(&bytes, 1);
        require(!read_from(&bytes, bytes.size, &npy), "a byte too many was taken");
        require(strstr(failure_message(), "more data") != NULL, "%s", failure_message());
        bytes_free(&bytes);
    }
}
END_TEST

START_TEST(not_npy_at_all) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        {"PK\3\4", 4, "not a .npy file"},
        {"\x93NUMPX\1\0v\0", 10, "not a .npy file"},
        {"\x93NUMPY\0\0v\0", 10, "version 0.0"},
        {"\x93NUMPY\4\0v\0\0\0", 12, "version 4.0"},
        {"\x93NUMPY\1\1v\0", 10, "version 1.1"},
        {"\x93NUMPY\2\0\xff\xff\xff\xff{", 13, "4294967295 bytes is refused"},
        {"\x93NUMPY\1\0\xff\xff{", 11, "truncated within the header"},
        {"\x93NUMPY\1\0\0\0", 10, "its header is not a dict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes bytes = {0};
        struct npy npy;
        put(&bytes, cases[i].bytes, cases[i].size);
        require(!read_from(&bytes, bytes.size, &npy), "case %zu was taken", i);
        require(strstr(failure_message(), cases[i].message) != NULL, "case %zu: %s", i,
                failure_message());
        bytes_free(&bytes);
    }
}
END_TEST

/* A header that claims petabytes costs no more memory than the file has bytes. */
START_TEST(claims_are_not_believed) {
    struct bytes bytes = {0};
    struct npy npy;
    put_npy_header(&bytes, 1,
                   "{'descr': '<f8', 'fortran_order': True, 'shape': (1000000000, 1000000), }");
    put_text(&bytes, "0123456789");
    if (sizeof(size_t) > 4) {
        require(!read_from(&bytes, bytes.size, &npy), "taken");
        ck_assert_ptr_nonnull(strstr(failure_message(), "needs 8000000000000000 bytes"));
        ck_assert_ptr_nonnull(strstr(failure_message(), "the file has 10"));
    }
    bytes_free(&bytes);
}
END_TEST

/* Headers with changed bytes are accepted or refused, without a crash (the sanitizers check
 * that); an array that is accepted is complete. */
START_TEST(garbled_headers) {
    struct generator g = begin_case("garbled");
    for (size_t i = 0; i < 20000; i++) {
        struct bytes bytes = {0};
        put_npy_header(&bytes, 1 + (int)(i % 3),
                       "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }");
        size_t header = bytes.size;
        for (size_t k = 0; k < 24; k++) {
            put_number(&bytes, k, 1, false);
        }
        garble(&g, bytes.data, header, "(){}',:0129 <>f48TrueFalse\n", 2);
        struct npy npy;
        if (read_from(&bytes, bytes.size, &npy)) {
            for (size_t k = 0; k < npy.count; k++) {
                (void)element_bits(&npy.element, npy_element(&npy, k));
            }
            npy_free(&npy);
        }
        bytes_free(&bytes);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-npy");
    TCase *tcase = tcase_create("npy");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, every_kind);
    tcase_add_test(tcase, from_a_pipe);
    tcase_add_test(tcase, as_numpy_saves);
    tcase_add_test(tcase, header_literals);
    tcase_add_test(tcase, truncated_everywhere);
    tcase_add_test(tcase, not_npy_at_all);
    tcase_add_test(tcase, claims_are_not_believed);
    tcase_add_test(tcase, garbled_headers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
