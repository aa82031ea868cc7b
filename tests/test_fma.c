/* SPDX-License-Identifier: MIT
 *
 * The software fma against the instruction, or where the CPU has none against the C library's
 * fmaf: random operands, and operands made to lie on or next to the edges of rounding.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu.h"
#include "fma.h"
#include "support.h"

enum { BATCH = 4096, MILLIONS = 10 }; /* of each kind */

/* ---- The other side -------------------------------------------------------- */

/* Out of line and through a pointer, so that no compiler sees both sides of a comparison. */
typedef void fma_array(size_t n, const float *a, const float *b, const float *c, float *out);

#if defined(__x86_64__) || defined(__i386__)
__attribute__((noinline, target("fma")))
#else
__attribute__((noinline))
#endif
static void
instruction(size_t n, const float *a, const float *b, const float *c, float *out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = __builtin_fmaf(a[i], b[i], c[i]);
    }
}

__attribute__((noinline)) static void library(size_t n, const float *a, const float *b,
                                              const float *c, float *out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = fmaf(a[i], b[i], c[i]);
    }
}

__attribute__((noinline)) static void software(size_t n, const float *a, const float *b,
                                               const float *c, float *out) {
    for (size_t i = 0; i < n; i++) {
        out[i] = mha_fma_software(a[i], b[i], c[i]);
    }
}

static bool have_instruction(void) {
    return MHA_FMA_INSTRUCTION || (mha_cpu_features() & MHA_CPU_FMA);
}

static void compare(size_t n, const float *a, const float *b, const float *c) {
    static float expected[BATCH], actual[BATCH];
    fma_array *volatile trusted = have_instruction() ? instruction : library;
    trusted(n, a, b, c, expected);
    software(n, a, b, c, actual);
    for (size_t i = 0; i < n; i++) {
        require(bits_equal(expected[i], actual[i]), "%s: fma(%a, %a, %a) is %a, not %a",
                case_name(), (double)a[i], (double)b[i], (double)c[i], (double)actual[i],
                (double)expected[i]);
    }
}

/* ---- Operands -------------------------------------------------------------- */

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Random sign; the exponent clamped to what there is; bits of the significand below 1. */
static float make(uint64_t random, int exponent, uint32_t fraction) {
    int field = exponent + 127;
    field = field < 0 ? 0 : field > 254 ? 254 : field;
    return from_bits((uint32_t)(random >> 63) << 31 | (uint32_t)field << 23 |
                     (fraction & 0x7fffff));
}

static int between(struct generator *g, int low, int high) {
    return low + (int)next_below(g, (size_t)(high - low + 1));
}

static float with_exponent(struct generator *g, int low, int high) {
    uint64_t random = next_bits(g);
    return make(random, between(g, low, high), (uint32_t)random);
}

/* 1 + a few units in the last place, up or down, times a power of two. */
static float almost_power(struct generator *g, int exponent) {
    int units = between(g, -3, 3);
    return make(next_bits(g), units < 0 ? exponent - 1 : exponent, (uint32_t)units);
}

struct operands {
    float a, b, c;
};

/* Any bits: NaN, infinities and all. */
static struct operands any_bits(struct generator *g) {
    uint64_t random = next_bits(g);
    return (struct operands){from_bits((uint32_t)random), from_bits((uint32_t)(random >> 32)),
                             from_bits((uint32_t)next_bits(g))};
}

/* The addend near the product, or as far off as still matters. */
static struct operands near_exponents(struct generator *g) {
    int e = between(g, -60, 60), f = between(g, -60, 60);
    float a = with_exponent(g, e, e), b = with_exponent(g, f, f);
    return (struct operands){a, b, with_exponent(g, e + f - 52, e + f + 52)};
}

/* The product is half a unit in the last place of c, times 1 + i 2^-23 + j 2^-46. */
static struct operands near_tie_of_addend(struct generator *g) {
    int e = between(g, -100, 100), f = between(g, -25, 25);
    float c = next_below(g, 4) ? with_exponent(g, e, e) : almost_power(g, e);
    int half = e - 24 - (int)next_below(g, 2);
    return (struct operands){almost_power(g, f), almost_power(g, half - f), c};
}

/* The product has 25 bits, or 24: a tie, until something far smaller is added. */
static struct operands near_tie_of_product(struct generator *g) {
    unsigned s = (unsigned)between(g, 0, 23), t = 23 - s;
    int e = between(g, -50, 50), f = between(g, -50, 50);
    uint32_t m = ((uint32_t)next_bits(g) | 1) << s, n = ((uint32_t)next_bits(g) | 1) << t;
    float c = next_below(g, 8) ? with_exponent(g, -127, e + f - 20) : from_bits(0);
    return (struct operands){make(next_bits(g), e, m), make(next_bits(g), f, n), c};
}

/* Results among the subnormals, products down to a fraction of the smallest. */
static struct operands subnormal(struct generator *g) {
    int e = between(g, -120, 0), sum = between(g, -156, -120);
    bool power = next_below(g, 2);
    float a = power ? almost_power(g, e) : with_exponent(g, e, e);
    float b = power ? almost_power(g, sum - e) : with_exponent(g, sum - e, sum - e);
    float c = next_below(g, 4) ? with_exponent(g, -127, -120)
                               : from_bits((uint32_t)next_below(g, 8)); /* 0 .. 7 units */
    return (struct operands){a, b, c};
}

/* Next to the largest finite number, and to where rounding makes it infinite. */
static struct operands overflow(struct generator *g) {
    int e = between(g, 0, 127), sum = next_below(g, 2) ? between(g, 98, 104) : between(g, 125, 128);
    float c = from_bits(0x7f7fffffu - (uint32_t)next_below(g, 4));
    c = next_below(g, 4) ? (next_below(g, 2) ? c : -c) : with_exponent(g, 100, 127);
    return (struct operands){almost_power(g, e), almost_power(g, sum - e), c};
}

/* The addend cancels the product to a few units in the last place, or to its low half. */
static struct operands cancel(struct generator *g) {
    int e = between(g, -60, 60), f = between(g, -60, 60);
    float a = with_exponent(g, e, e), b = with_exponent(g, f, f);
    float c = -(a * b);
    uint32_t bits;
    memcpy(&bits, &c, sizeof bits);
    return (struct operands){a, b, from_bits(bits + (uint32_t)between(g, -2, 2))};
}

static const struct {
    const char *name;
    struct operands (*next)(struct generator *g);
} kinds[] = {
    {"any bits", any_bits},
    {"near exponents", near_exponents},
    {"near tie of the addend", near_tie_of_addend},
    {"near tie of the product", near_tie_of_product},
    {"subnormal", subnormal},
    {"overflow", overflow},
    {"cancellation", cancel},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

START_TEST(random_operands) {
    struct generator g = begin_case("fma, %s, part %d", kinds[_i / MILLIONS].name, _i % MILLIONS);
    uint64_t count = 1000000 / env_number("MHA_TEST_STRIDE", 1) + 1;
    static float a[BATCH], b[BATCH], c[BATCH];
    for (uint64_t done = 0; done < count; done += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            struct operands x = kinds[_i / MILLIONS].next(&g);
            a[i] = x.a;
            b[i] = x.b;
            c[i] = x.c;
        }
        compare(BATCH, a, b, c);
    }
}
END_TEST

/* Every triple of the numbers at which something changes, of both signs. */
START_TEST(edges) {
    static const uint32_t magnitudes[] = {
        0x00000000, 0x00000001, 0x00000002, 0x00000003, 0x00400000, 0x007fffff, 0x00800000,
        0x00800001, 0x00ffffff, 0x01000000, 0x0c800000, 0x1fffffff, 0x20000000, 0x33800000,
        0x34000000, 0x3effffff, 0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3fffffff,
        0x40000000, 0x4b7fffff, 0x4b800000, 0x4b800001, 0x5f7fffff, 0x5f800000, 0x7e800000,
        0x7effffff, 0x7f000000, 0x7f7ffffe, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000};
    enum { COUNT = 2 * sizeof magnitudes / sizeof *magnitudes };
    begin_case("fma, edges");
    float value[COUNT], a[COUNT], b[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        value[i] = from_bits(magnitudes[i / 2] | (uint32_t)(i % 2) << 31);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < COUNT; j++) {
            for (size_t k = 0; k < COUNT; k++) {
                a[k] = value[i];
                b[k] = value[j];
            }
            compare(COUNT, a, b, value);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fma");
    TCase *test = tcase_create("software");
    printf("compared with %s\n", have_instruction() ? "the instruction" : "fmaf of the C library");
    tcase_set_timeout(test, 0);
    tcase_add_test(test, edges);
    tcase_add_loop_test(test, random_operands, 0, KINDS * MILLIONS);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
