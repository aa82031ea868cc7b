/* SPDX-License-Identifier: MIT
 *
 * Reading safetensors files: every type that has values, every header that the format allows.
 * test_safetensors_refusals.c has the files that are not as the format demands.
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

/* ---- What can't be read -------------------------------------------------------------------- */

START_TEST(types_without_values) {
    struct safetensors file;
    static const char *const jsons[] = {
        "{\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[16],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[16],\"data_offsets\":[0,16]}}",
        "{\"a\":{\"dtype\":\"f32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
    };
    for (size_t i = 0; i < sizeof jsons / sizeof jsons[0]; i++) {
        require(safetensors_open(write_safetensors("x", jsons[i], 16), &file), "%s",
                failure_message());
        ck_assert_ptr_null(safetensors_floats(&file, find(&file, "a")));
        require(strstr(failure_message(), "F32, F16, BF16 and F64 can be used") != NULL, "%s",
                failure_message());
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

START_TEST(no_file) {
    struct safetensors file;
    ck_assert(!safetensors_open(in_scratch("none"), &file));
    ck_assert_ptr_nonnull(strstr(failure_message(), "No such file"));
    ck_assert(!safetensors_open(in_scratch(""), &file));
    ck_assert_ptr_nonnull(strstr(failure_message(), "not a regular file"));
    ck_assert(!safetensors_open("/dev/null", &file));
    ck_assert_ptr_nonnull(strstr(failure_message(), "not a regular file"));
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
    tcase_add_test(tcase, types_without_values);
    tcase_add_test(tcase, shrinking_file);
    tcase_add_test(tcase, no_file);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
