/* SPDX-License-Identifier: MIT
 *
 * Decoding of numbers, against values computed from the formats' definitions with ldexp():
 * every binary16 and bfloat16, rounding of binary64. test_npy.c has the other types.
 */
#include "element.h"

#include <math.h>
#include <string.h>

#include "fixture.h"

/* Sign, exponent and fraction by IEEE 754's definition. */
static double by_definition(uint64_t bits, int exponent_bits, int fraction_bits) {
    uint64_t fraction = bits & ((UINT64_C(1) << fraction_bits) - 1);
    int exponent = (int)(bits >> fraction_bits & ((UINT64_C(1) << exponent_bits) - 1));
    int bias = (1 << (exponent_bits - 1)) - 1;
    double sign = (bits >> (exponent_bits + fraction_bits) & 1) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) {
        return fraction != 0 ? NAN : sign * INFINITY;
    }
    if (exponent == 0) {
        return sign * ldexp((double)fraction, 1 - bias - fraction_bits);
    }
    return sign * ldexp(1.0 + ldexp((double)fraction, -fraction_bits), exponent - bias);
}

static bool same_double(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void check_all_16(enum element_kind kind, int exponent_bits, int fraction_bits) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double want = by_definition(bits, exponent_bits, fraction_bits);
        unsigned char low_first[2] = {(unsigned char)(bits & 0xff), (unsigned char)(bits >> 8)};
        unsigned char high_first[2] = {low_first[1], low_first[0]};
        double little = element_float(&(struct element){kind, 2, false}, low_first);
        double big = element_float(&(struct element){kind, 2, true}, high_first);
        require(same_double(little, want), "0x%04x is %a, not %a", bits, little, want);
        require(same_double(big, want), "big-endian 0x%04x is %a, not %a", bits, big, want);
        /* Exact in float as well. */
        require(same_double((double)(float)want, want), "0x%04x is no float", bits);
    }
}

START_TEST(every_16_bits) {
    check_all_16(ELEMENT_FLOAT, 5, 10);
    check_all_16(ELEMENT_BFLOAT16, 8, 7);
}
END_TEST

/* Values whose rounding to float is known from the definition of nearest-even. */
static const struct {
    double value;
    float rounded;
} roundings[] = {
    {-0.0, -0.0f},
    {1.0 + 0x1p-24, 1.0f},                      /* tie, even below */
    {1.0 + 0x1p-23 + 0x1p-24, 1.0f + 0x1p-22f}, /* tie, even above */
    {1.0 + 0x1p-24 + 0x1p-52, 1.0f + 0x1p-23f}, /* just above a tie */
    {0x1.fffffefffffffp127, 0x1.fffffep127f},   /* just below a tie */
    {0x1.ffffffp127, INFINITY},                 /* tie beyond the largest */
    {0x1p-150, 0.0f},                           /* tie with zero */
    {0x1.0000000000001p-150, 0x1p-149f},        /* just above it */
    {-0x1p-1074, -0.0f},
    {INFINITY, INFINITY},
};

START_TEST(rounding_of_doubles) {
    for (size_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++) {
        struct bytes bytes = {0};
        uint64_t bits;
        memcpy(&bits, &roundings[i].value, sizeof bits);
        put_number(&bytes, bits, 8, false);
        float rounded =
            (float)element_float(&(struct element){ELEMENT_FLOAT, 8, false}, bytes.data);
        require(bits_equal(rounded, roundings[i].rounded), "%a became %a, not %a",
                roundings[i].value, (double)rounded, (double)roundings[i].rounded);
        bytes_free(&bytes);
    }
}
END_TEST

START_TEST(shapes) {
    size_t bytes;
    ck_assert(shape_bytes(&(struct shape){0}, 4, &bytes) && bytes == 4);
    ck_assert(shape_bytes(&(struct shape){2, {3, 5}}, 4, &bytes) && bytes == 60);
    ck_assert(shape_bytes(&(struct shape){2, {3, 0}}, 4, &bytes) && bytes == 0);
    ck_assert(!shape_bytes(&(struct shape){1, {SIZE_MAX}}, 2, &bytes));
    ck_assert(shape_bytes(&(struct shape){1, {SIZE_MAX}}, 1, &bytes) && bytes == SIZE_MAX);
    ck_assert(!shape_bytes(&(struct shape){2, {SIZE_MAX / 2, 3}}, 1, &bytes));
    /* A zero does not excuse the rest: (huge, huge, 0) is refused in either order. */
    ck_assert(!shape_bytes(&(struct shape){3, {SIZE_MAX, SIZE_MAX, 0}}, 1, &bytes));
    ck_assert(!shape_bytes(&(struct shape){3, {0, SIZE_MAX, SIZE_MAX}}, 1, &bytes));
    ck_assert_str_eq(shape_text(&(struct shape){0}).text, "()");
    ck_assert_str_eq(shape_text(&(struct shape){1, {7}}).text, "(7,)");
    ck_assert_str_eq(shape_text(&(struct shape){3, {2, 0, 8}}).text, "(2, 0, 8)");
    size_t most = SIZE_MAX; /* the longest text there can be */
    struct shape large = {8, {most, most, most, most, most, most, most, most}};
    ck_assert_uint_eq(strlen(shape_text(&large).text), sizeof(size_t) == 8 ? 176 : 96);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-element");
    TCase *tcase = tcase_create("element");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_16_bits);
    tcase_add_test(tcase, rounding_of_doubles);
    tcase_add_test(tcase, shapes);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
