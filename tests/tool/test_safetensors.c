/* SPDX-License-Identifier: MIT
 *
 * Reading safetensors files: every type that has values, every header that the format allows. A
 * file that does not follow the format exactly is refused; the message for each fault is part of
 * the test.
 */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "fixture.h"

static const struct tensor *find(const struct safetensors *file, const char *name) {
    return safetensors_find(file, "", 0, name);
}

/* ---- Whole files -------------------------------------------------------------------- */

/* Exact in binary16 and bfloat16. */
static const float values[6] = {0.0f, 1.0f, -2.5f, 0x1p-14f, 240.0f, -0x1.8p-10f};

START_TEST(every_float_type) {
    static const char *const dtypes[] = {"F32", "F16", "BF16", "F64"};
    struct tensors tensors = {0};
    struct safetensors file;
    for (size_t i = 0; i < 4; i++) {
        add_tensor(&tensors, dtypes[i], dtypes[i], "[2, 3]", values, 6);
    }
    require(safetensors_open(write_tensors("x", &tensors), &file), "%s", failure_message());
    ck_assert_uint_eq(file.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct tensor *tensor = find(&file, dtypes[i]);
        ck_assert_ptr_nonnull(tensor);
        ck_assert_str_eq(tensor->dtype, dtypes[i]);
        ck_assert(shape_equal(&tensor->shape, &(struct shape){2, {2, 3}}));
        float *read = safetensors_floats(&file, tensor);
        require(read != NULL && memcmp(read, values, sizeof values) == 0, "%s", dtypes[i]);
        free(read);
    }
    ck_assert_ptr_null(find(&file, "F3"));
    ck_assert_ptr_null(find(&file, "F322"));
    ck_assert_ptr_null(find(&file, ""));
    safetensors_close(&file);
}
END_TEST

/* More than one chunk of reading, in a file with a hundred tensors. */
START_TEST(large_tensors) {
    enum { COUNT = 100, SIZE = 5000 };
    struct generator g = begin_case("large");
    struct tensors tensors = {0};
    float *data = malloc(COUNT * SIZE * sizeof *data);
    fill_floats(&g, data, COUNT * SIZE);
    for (size_t i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "t.%zu", i * 7 % COUNT);
        add_tensor(&tensors, name, "F32", "[5, 1000]", data + i * SIZE, SIZE);
    }
    struct safetensors file;
    require(safetensors_open(write_tensors("x", &tensors), &file), "%s", failure_message());
    for (size_t i = 0; i < COUNT; i++) {
        char digits[32];
        snprintf(digits, sizeof digits, "%zu", i * 7 % COUNT);
        const struct tensor *tensor = safetensors_find(&file, "t.rest", 2, digits);
        require(tensor != NULL, "t.%s is lost", digits);
        float *read = safetensors_floats(&file, tensor);
        require(memcmp(read, data + i * SIZE, SIZE * sizeof *data) == 0, "t.%s", digits);
        free(read);
    }
    safetensors_close(&file);
    free(data);
}
END_TEST

/* ---- Headers ---------------------------------------------------------------------------- */

static const struct {
    const char *json;
    size_t data_size;
    const char *name; /* a tensor that must be found */
} good_headers[] = {
    {"{}", 0, NULL},
    {"{\"a\":" F32_AT(0, 4) "}", 4, "a"},
    {"{\"a\":" F32_AT(0, 4) "}      ", 4, "a"},
    {"{ \"a\" : { \"shape\" : [ 1 ] ,\n\"data_offsets\":[0 , 4],\t\"dtype\":\"F32\" } }\r\n", 4,
     "a"},
    {"{\"b\":" F32_AT(4, 8) ",\"a\":" F32_AT(0, 4) "}", 8, "b"},
    {"{\"__metadata__\":{\"format\":\"pt\",\"x\":\"{[,\"},\"a\":" F32_AT(0, 4) "}", 4, "a"},
    {"{\"__metadata__\":{},\"a\":" F32_AT(0, 4) "}", 4, "a"},
    {"{\"\":" F32_AT(0, 4) "}", 4, ""},
    {"{\"q\\\"\\\\\\/\\b\\f\\n\\r\\t\":" F32_AT(0, 4) "}", 4, "q\"\\/\b\f\n\r\t"},
    {"{\"\\u0041\\u00e9\\u4e09\\ud83d\\ude00\":" F32_AT(0, 4) "}", 4, "A\u00e9\u4e09\U0001f600"},
    {"{\"\u4e09\":" F32_AT(0, 4) "}", 4, "\u4e09"},
    {"{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "s"},
    {"{\"e\":{\"dtype\":\"F32\",\"shape\":[3,0,2],\"data_offsets\":[0,0]}}", 0, "e"},
    {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},\"a\":" F32_AT(0, 4) "}", 4,
     "e"},
    {"{\"i\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16, "i"},
    {"{\"f\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3, "f"},
    {"{\"n\":{\"dtype\":\"NEW_TYPE\",\"shape\":[3],\"data_offsets\":[0,5]}}", 5, "n"},
};

START_TEST(good_files) {
    for (size_t i = 0; i < sizeof good_headers / sizeof good_headers[0]; i++) {
        struct safetensors file;
        const char *path = write_safetensors("x", good_headers[i].json, good_headers[i].data_size);
        require(safetensors_open(path, &file), "%s: %s", good_headers[i].json, failure_message());
        require(good_headers[i].name == NULL || find(&file, good_headers[i].name) != NULL,
                "%s: tensor not found", good_headers[i].json);
        safetensors_close(&file);
    }
}
END_TEST

START_TEST(shrinking_file) {
    struct tensors tensors = {0};
    struct safetensors file;
    add_tensor(&tensors, "a", "F32", "[6]", values, 6);
    const char *path = write_tensors("x", &tensors);
    ck_assert(safetensors_open(path, &file));
    ck_assert_int_eq(truncate(path, 80), 0);
    ck_assert_ptr_null(safetensors_floats(&file, find(&file, "a")));
    ck_assert_ptr_nonnull(strstr(failure_message(), "became shorter"));
    safetensors_close(&file);
}
END_TEST

/* ---- Wrong headers ---------------------------------------------------------------------- */

#define WITH(fields) "{\"a\":{" fields "}}"

static const struct {
    const char *json;
    size_t data_size;
    const char *message; /* part of the message */
} bad_headers[] = {
    /* Offsets. */
    {"{\"a\":" F32_AT(4, 0) "}", 4, "begins at 4 and ends before, at 0"},
    {"{\"a\":" F32_AT(0, 8) "}", 4, "ends at byte 8 of the data, which has 4"},
    {"{\"a\":" F32_AT(0, 4) "}", 3, "ends at byte 4 of the data, which has 3"},
    {"{\"a\":" F32_AT(0, 4) "}", 5, "end at byte 4 of the data, which has 5"},
    {"{}", 1, "end at byte 0 of the data, which has 1"},
    {"{\"a\":" F32_AT(4, 8) "}", 8, "no tensor has bytes 0 to 4"},
    {"{\"a\":" F32_AT(0, 4) ",\"b\":" F32_AT(8, 12) "}", 12, "no tensor has bytes 4 to 8"},
    {"{\"a\":" F32_AT(0, 4) ",\"b\":" F32_AT(0, 4) "}", 4, "overlap"},
    {"{\"a\":" F32_AT(0, 4) ",\"b\":" F32_AT(3, 7) "}", 7, "'a' and 'b' overlap"},
    {"{\"a\":" F32_AT(0, 3) "}", 3, "needs 4 bytes, but its offsets are 0 to 3"},
    {"{\"a\":" F32_AT(0, 18446744073709551615) "}", 4, "18446744073709551615"},
    {"{\"a\":" F32_AT(0, 18446744073709551616) "}", 4, "wrong data_offsets"},
    {"{\"a\":" F32_AT(-1, 4) "}", 4, "wrong data_offsets"},
    {"{\"a\":" F32_AT(0, 4.0) "}", 4, "wrong data_offsets"},
    {"{\"a\":" F32_AT(00, 4) "}", 4, "wrong data_offsets"},
    {"{\"a\":" F32_AT(0, true) "}", 4, "wrong data_offsets"},
    {"{\"a\":" F32_AT(0, "4") "}", 4, "wrong data_offsets"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "wrong data_offsets"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]"), 4, "wrong data_offsets"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":4"), 4, "wrong data_offsets"},
    /* Shapes. */
    {WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, "needs 8 bytes"},
    {WITH("\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,16]"), 16, "needs 8 bytes"},
    {WITH("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]"), 4, "more than 3 deep"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4,
     "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]"), 4, "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1 1],\"data_offsets\":[0,4]"), 4, "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]"), 4, "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":[,1],\"data_offsets\":[0,4]"), 4, "wrong shape"},
    {WITH("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4, ""},
    {WITH("\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]"), 4, ""},
    {WITH("\"dtype\":\"F32\",\"shape\":[18446744073709551615,18446744073709551615,0],"
          "\"data_offsets\":[0,0]"),
     0, ""},
    /* Fields. */
    {WITH("\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "wrong dtype"},
    {WITH("\"dtype\":null,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "wrong dtype"},
    {WITH("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "needs dtype, shape and data_offsets"},
    {WITH("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "needs dtype, shape and data_offsets"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1]"), 4, ""},
    {WITH("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "wrong dtype"},
    {WITH("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1"), 4, "wrong field"},
    {WITH(""), 4, ""},
    {"{\"a\":[]}", 0, "no object for a tensor"},
    {"{\"a\":1}", 0, "no object for a tensor"},
    {"{\"a\":null}", 0, "no object for a tensor"},
    /* Names. */
    {"{\"a\":" F32_AT(0, 4) ",\"a\":" F32_AT(4, 8) "}", 8, "'a' stands twice"},
    {"{\"a\":" F32_AT(0, 4) ",\"\\u0061\":" F32_AT(4, 8) "}", 8, "'a' stands twice"},
    {"{\"\\u0000\":" F32_AT(0, 4) "}", 4, "no name"},
    {"{\"\\ud83d\":" F32_AT(0, 4) "}", 4, "no name"},
    {"{\"\\ud83dx\":" F32_AT(0, 4) "}", 4, "no name"},
    {"{\"\\ud83d\\u0041\":" F32_AT(0, 4) "}", 4, "no name"},
    {"{\"a\nb\":" F32_AT(0, 4) "}", 4, "no name"},
    {"{\"\\x\":" F32_AT(0, 4) "}", 4, "not JSON"},
    {"{\"\\u12g4\":" F32_AT(0, 4) "}", 4, "not JSON"},
    {"{a:" F32_AT(0, 4) "}", 4, "not JSON"},
    {"{1:" F32_AT(0, 4) "}", 4, "not JSON"},
    /* Metadata. */
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, "__metadata__"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":\"b\",}}", 0, "__metadata__"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "second __metadata__"},
    /* JSON itself, and what jsmn accepts. */
    {"", 0, "not JSON"},
    {" ", 0, "not JSON"},
    {" {}", 0, "no JSON object"},
    {"[]", 0, "no JSON object"},
    {"{", 0, ""},
    {"}", 0, ""},
    {"{}{}", 0, "after the JSON object"},
    {"{}x", 0, "not JSON"},
    {"{} 1 ", 0, "after the JSON object"},
    {"{,}", 0, ""},
    {"{\"a\"}", 0, ""},
    {"{\"a\":}", 0, ""},
    {"{\"a\" " F32_AT(0, 4) "}", 4, ""},
    {"{\"a\":" F32_AT(0, 4) ",}", 4, "no name"},
    {"{,\"a\":" F32_AT(0, 4) "}", 4, "no name"},
    {"{\"a\":" F32_AT(0, 4) "\"b\":" F32_AT(4, 8) "}", 8, ""},
    {"{\"a\":" F32_AT(0, 4) ",,\"b\":" F32_AT(4, 8) "}", 8, "no name"},
    {"{\"a\":" F32_AT(0, 4) "]", 4, ""},
    {"{\"a\":" F32_AT(0, 4), 4, ""},
    {"{\"a\":" F32_AT(0, 4) "}}", 4, ""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1},\"data_offsets\":[0,4]}}", 4, ""},
    {WITH("\"dtype\":\"F32\" \"shape\":[1],\"data_offsets\":[0,4]"), 4, ""},
    {WITH("\"dtype\" \"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, ""},
    {"{\"a\":/**/" F32_AT(0, 4) "}", 4, ""},
};

START_TEST(bad_files) {
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        struct safetensors file;
        const char *path = write_safetensors("x", bad_headers[i].json, bad_headers[i].data_size);
        failure_usage("nothing yet");
        require(!safetensors_open(path, &file), "%s was taken", bad_headers[i].json);
        require(strncmp(failure_message(), path, strlen(path)) == 0 &&
                    strstr(failure_message(), bad_headers[i].message) != NULL,
                "%s: %s", bad_headers[i].json, failure_message());
        require(file.fd == -1 && file.header == NULL && file.tensors == NULL, "not empty");
    }
}
END_TEST

/* ---- Wrong lengths, and what is too much --------------------------------------------------- */

START_TEST(truncated_everywhere) {
    struct bytes bytes = {0};
    const char json[] = "{\"b\":" F32_AT(4, 8) ",\"a\":" F32_AT(0, 4) "}";
    put_safetensors(&bytes, json, "01234567", 8);
    struct safetensors file;
    for (size_t size = 0; size < bytes.size; size++) {
        require(!safetensors_open(write_bytes("x", &bytes, size), &file), "cut to %zu was taken",
                size);
    }
    require(safetensors_open(write_bytes("x", &bytes, bytes.size), &file), "whole: %s",
            failure_message());
    safetensors_close(&file);
    bytes_free(&bytes);
}
END_TEST

/* Every length up to the whole header's, and lengths beyond the file and beyond the limit. */
START_TEST(wrong_header_lengths) {
    struct bytes bytes = {0};
    const char json[] = "{\"a\":" F32_AT(0, 4) "}";
    put_safetensors(&bytes, json, "0123", 4);
    size_t right = sizeof json - 1;
    static const uint64_t more[] = {1000000,           100000001,      UINT64_C(1) << 32,
                                    UINT64_C(1) << 63, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < right + 12 + sizeof more / sizeof more[0]; i++) {
        uint64_t length = i < right + 12 ? i : more[i - right - 12];
        for (size_t b = 0; b < 8; b++) {
            bytes.data[b] = (unsigned char)(length >> 8 * b & 0xff);
        }
        struct safetensors file;
        bool good = safetensors_open(write_bytes("x", &bytes, bytes.size), &file);
        require(good == (length == right), "length %llu was %s", (unsigned long long)length,
                good ? "taken" : "refused");
        if (good) {
            safetensors_close(&file);
        }
        require(length <= bytes.size - 8 ||
                    strstr(failure_message(), "its header would have") != NULL,
                "length %llu: %s", (unsigned long long)length, failure_message());
    }
    bytes_free(&bytes);
}
END_TEST

/* A sparse file with a header of more than 100 MB is refused without being read. */
START_TEST(huge_header) {
    struct bytes bytes = {0};
    struct safetensors file;
    put_number(&bytes, 100000001, 8, false);
    const char *path = write_bytes("x", &bytes, bytes.size);
    ck_assert_int_eq(truncate(path, 100000100), 0);
    ck_assert(!safetensors_open(path, &file));
    ck_assert_ptr_nonnull(strstr(failure_message(), "100000001 bytes is refused"));
    bytes_free(&bytes);
}
END_TEST

/* Ten million brackets are refused at once; a parser could take quadratic time. */
START_TEST(deep_header) {
    struct bytes bytes = {0};
    struct safetensors file;
    size_t n = 10000000;
    char *brackets = calloc(n + 1, 1);
    memset(brackets, '[', n / 2);
    memset(brackets + n / 2, ']', n / 2);
    put_safetensors(&bytes, brackets, NULL, 0);
    ck_assert(!safetensors_open(write_bytes("x", &bytes, bytes.size), &file));
    ck_assert_ptr_nonnull(strstr(failure_message(), "more than 3 deep"));
    free(brackets);
    bytes_free(&bytes);
}
END_TEST

/* Headers with changed bytes are accepted or refused, without a crash. */
START_TEST(garbled_headers) {
    struct generator g = begin_case("garbled");
    const char json[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"b\\u0041\":" F32_AT(4, 8) ",\"a\":" F32_AT(0, 4) "}";
    for (size_t i = 0; i < 10000; i++) {
        struct bytes bytes = {0};
        put_safetensors(&bytes, json, "01234567", 8);
        garble(&g, bytes.data + 8, sizeof json - 1, "{}[],:\"\\0123456789 eutrn", 3);
        struct safetensors file;
        if (safetensors_open(write_bytes("x", &bytes, bytes.size), &file)) {
            for (size_t t = 0; t < file.count; t++) {
                free(safetensors_floats(&file, &file.tensors[t]));
            }
            safetensors_close(&file);
        }
        bytes_free(&bytes);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-safetensors");
    TCase *tcase = tcase_create("safetensors");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, every_float_type);
    tcase_add_test(tcase, large_tensors);
    tcase_add_test(tcase, good_files);
    tcase_add_test(tcase, shrinking_file);
    tcase_add_test(tcase, bad_files);
    tcase_add_test(tcase, truncated_everywhere);
    tcase_add_test(tcase, wrong_header_lengths);
    tcase_add_test(tcase, huge_header);
    tcase_add_test(tcase, deep_header);
    tcase_add_test(tcase, garbled_headers);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
