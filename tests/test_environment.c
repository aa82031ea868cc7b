/* SPDX-License-Identifier: MIT
 *
 * The caller's floating-point environment changes no bit of the results, and a call does not
 * change it.
 */
#include "cases.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE__)

#include <xmmintrin.h>

static const uint64_t environments[] = {
    0x9fc0, /* FTZ and DAZ */
    0x3f80, /* down */
    0x5f80, /* up */
    0x7f80, /* to zero */
    0x0000, /* every exception traps */
    0xffc0, /* FTZ, DAZ and to zero */
    0x1fbf, /* every flag raised */
};

static uint64_t read_environment(void) {
    return _mm_getcsr();
}

static void write_environment(uint64_t environment) {
    _mm_setcsr((unsigned)environment);
}

#elif defined(__aarch64__) || (defined(__arm__) && defined(__ARM_FP))

/* Bits of FPCR, and of 32-bit ARM's FPSCR. */
static const uint64_t environments[] = {
    1 << 24, /* FZ */
    1 << 22, /* up */
    2 << 22, /* down */
    3 << 22, /* to zero */
    7 << 22, /* FZ and to zero */
    1 << 25, /* default NaN */
};

#if defined(__aarch64__)

static uint64_t read_environment(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static void write_environment(uint64_t environment) {
    __asm__ volatile("msr fpcr, %0" : : "r"(environment));
}

#else

static uint64_t read_environment(void) {
    uint32_t fpscr;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(fpscr));
    return fpscr & ~UINT32_C(0xf800009f); /* without the flags */
}

static void write_environment(uint64_t environment) {
    __asm__ volatile("vmsr fpscr, %0" : : "r"((uint32_t)environment));
}

#endif

#else

static const uint64_t environments[] = {
#ifdef FE_UPWARD
    FE_UPWARD,
#endif
#ifdef FE_DOWNWARD
    FE_DOWNWARD,
#endif
#ifdef FE_TOWARDZERO
    FE_TOWARDZERO,
#endif
    FE_TONEAREST,
};

static uint64_t read_environment(void) {
    return (uint64_t)fegetround();
}

static void write_environment(uint64_t environment) {
    fesetround((int)environment);
}

#endif

enum { ENVIRONMENTS = sizeof environments / sizeof *environments };

static const struct shape_case shape = {"shape", 2, 20, 530, 24, 4, 2, 5, 3, .biases = "q"};

/* Weights so small that the results are subnormal, though they are not. */
static void make_problem(struct forward_problem *p) {
    struct generator g = begin_case("a layer of subnormal values");
    make_forward(&g, &shape, MASK_OF_ALL_PARTS, (struct place){AT_END, 0}, p);
    float *v = (float *)p->weights.v, *o = (float *)p->weights.o;
    for (size_t i = 0; i < 2 * 3 * shape.d_model; i++) {
        v[i] *= 0x1p-70f;
    }
    for (size_t i = 0; i < 4 * 3 * shape.d_model; i++) {
        o[i] *= 0x1p-60f;
    }
}

struct result {
    mha_status status;
    float scale;
};

/* Calls everything that computes. No arithmetic is done here, because some environments would
 * trap. */
static struct result compute(const struct forward_problem *p) {
    mha_layer *layer = NULL, *clone = NULL;
    mha_context *context = NULL;
    struct result result = {.status = mha_layer_create(&p->config, &p->weights, &layer)};
    if (result.status == MHA_OK) {
        result.status = mha_layer_clone(layer, 1, &clone);
    }
    if (result.status == MHA_OK) {
        result.scale = mha_layer_config(clone)->scale;
        result.status = mha_context_create(NULL, &context);
    }
    if (result.status == MHA_OK) {
        result.status = mha_forward(context, clone, &p->args);
    }
    mha_context_destroy(&context);
    mha_layer_destroy(&clone);
    mha_layer_destroy(&layer);
    return result;
}

START_TEST(layers) {
    struct forward_problem p;
    make_problem(&p);
    struct result expected = compute(&p);
    ck_assert_succeeds(expected.status);
    float *output = copy_floats(p.args.output, p.outputs);
    float *attention = copy_floats(p.args.attention, p.attentions);
    size_t subnormal = 0;
    for (size_t i = 0; i < p.outputs; i++) {
        subnormal += fpclassify(output[i]) == FP_SUBNORMAL;
    }
    ck_assert_uint_gt(subnormal, p.outputs / 4);

    memset(p.args.output, 0xff, p.outputs * sizeof *output);
    memset(p.args.attention, 0xff, p.attentions * sizeof *attention);
    uint64_t own = read_environment();
    write_environment(environments[_i]);
    uint64_t before = read_environment();
    struct result actual = compute(&p);
    uint64_t after = read_environment();
    write_environment(own);
    ck_assert_succeeds(actual.status);
    ck_assert_uint_eq(before, after);
    ck_assert(bits_equal(expected.scale, actual.scale));
    ck_assert_same("output", output, 1, p.args.output, 1, p.outputs, 1);
    ck_assert_same("attention", attention, 1, p.args.attention, 1, p.attentions, 1);
    free(output);
    free(attention);
    guarded_free_all();
}
END_TEST

/* Of an odd head_dim, so that the default scale rounds. */
START_TEST(bare_attention) {
    const struct shape_case view = {"view", 2, 9, 600, 0, 2, 0, 7, .layouts = "iiii"};
    struct generator g = begin_case("bare attention");
    struct attention_problem p;
    make_attention(&g, &view, MASK_OF_ALL_PARTS, (struct place){AT_END, 0}, &p);
    mha_context *context = new_context();
    ck_assert_succeeds(mha_attention(context, &p.args));
    float *expected = gather_output(&p);
    memset(p.args.output, 0xff, p.outputs * sizeof *expected);

    uint64_t own = read_environment();
    write_environment(environments[_i]);
    uint64_t before = read_environment();
    mha_status status = mha_attention(context, &p.args);
    uint64_t after = read_environment();
    write_environment(own);
    ck_assert_succeeds(status);
    ck_assert_uint_eq(before, after);
    float *actual = gather_output(&p);
    size_t count = view.batch * view.n_heads * view.q_len * view.head_dim;
    ck_assert_same("output", expected, 1, actual, 1, count, 1);
    free(expected);
    free(actual);
    mha_context_destroy(&context);
    guarded_free_all();
}
END_TEST

/* The same after a call that fails, and with <fenv.h>, which on x86 sets the x87 unit as well. */
START_TEST(rounding_and_failures) {
    static const int modes[] = {
#ifdef FE_UPWARD
        FE_UPWARD,
#endif
#ifdef FE_DOWNWARD
        FE_DOWNWARD,
#endif
#ifdef FE_TOWARDZERO
        FE_TOWARDZERO,
#endif
        FE_TONEAREST,
    };
    struct forward_problem p;
    make_problem(&p);
    ck_assert_succeeds(compute(&p).status);
    float *output = copy_floats(p.args.output, p.outputs);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        ck_assert_int_eq(fesetround(modes[i]), 0);
        struct forward_problem wrong = p;
        wrong.config.scale = NAN;
        mha_status good = compute(&p).status;
        int between = fegetround();
        mha_status bad = compute(&wrong).status;
        int after = fegetround();
        fesetround(FE_TONEAREST);
        ck_assert_int_eq(between, modes[i]);
        ck_assert_int_eq(after, modes[i]);
        ck_assert_succeeds(good);
        ck_assert_int_eq(bad, MHA_ERROR_ARGUMENT);
        ck_assert_same("output", output, 1, p.args.output, 1, p.outputs, 1);
    }
    free(output);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("environment");
    TCase *tests = tcase_create("environment");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, layers, 0, ENVIRONMENTS);
    tcase_add_loop_test(tests, bare_attention, 0, ENVIRONMENTS);
    tcase_add_test(tests, rounding_and_failures);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
