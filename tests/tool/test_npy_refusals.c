/* SPDX-License-Identifier: MIT
 *
 * What is no .npy file, or none of a supported kind, is refused in words: headers that say
 * something else, files cut short, garbled or too long. test_npy.c has what is taken.
 */
#include "npy.h"

#include <string.h>

#include "failure.h"
#include "fixture.h"

/* Reads from memory, as from a file of that size. */
static bool read_from(const struct bytes *bytes, size_t size, struct npy *npy) {
    FILE *stream = open_bytes(bytes, size);
    bool good = npy_read(stream, "x.npy", npy);
    fclose(stream);
    return good;
}

/* ---- Headers -------------------------------------------------------------------- */

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
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (+2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (02,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (0x2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1+1,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551618,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905, 1)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4, 0)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 1, 1, 1, 1, 1, 1, 1)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,),,}", false},
    {"{,'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False}", false},
    {"{'descr': '<f4', 'shape': (2,)}", false},
    {"{'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", false},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'a key that is too long': 1}", false},
    {"{descr: '<f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4\", 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': false, 'shape': (2,)}", false},
    {"{'descr': '<f4', 'fortran_order': 'False', 'shape': (2,)}", false},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '=f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", false},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", false},
    {"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", false},
    {"{'descr': '|S8', 'fortran_order': False, 'shape': (1,)}", false},
    {"", false},
    {"{}", false},
    {"(", false},
    {"None", false},
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

/* ---- Damage ------------------------------------------------------------------- */

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

/* A header that claims exabytes costs no memory beyond what the file has. */
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

/* Headers with bytes changed, removed or doubled: taken or refused, never a crash (which
 * the sanitizers look for), and what is taken is whole. */
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
    Suite *suite = suite_create("tool-npy_refusals");
    TCase *tcase = tcase_create("npy_refusals");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, header_literals);
    tcase_add_test(tcase, truncated_everywhere);
    tcase_add_test(tcase, not_npy_at_all);
    tcase_add_test(tcase, claims_are_not_believed);
    tcase_add_test(tcase, garbled_headers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
