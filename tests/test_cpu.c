/* SPDX-License-Identifier: MIT
 *
 * The choice of an ISA: for the readings of many CPUs, and on this CPU by name, by option and by
 * $MHA_ISA. An ISA that is not supported is an error in words, never a fallback.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__) && (defined(__aarch64__) || defined(__arm__))
#include <sys/auxv.h>
#endif

#include "cpu.h"
#include "dispatch.h"
#include "support.h"

/* ---- Recorded CPUs --------------------------------------------------------- */

#if defined(__x86_64__) || defined(__i386__)

enum {
    NONE = 0,
    FMA = MHA_CPU_FMA,
    AVX2 = FMA | MHA_CPU_AVX2,
    AVX512 = AVX2 | MHA_CPU_AVX512,
};

/* Leaf 1 ecx: OSXSAVE is 0x08000000, AVX 0x10000000, FMA 0x00001000. Leaf 7 ebx: AVX2 0x20,
 * AVX-512 F, DQ, BW, VL 0x10000, 0x20000, 0x40000000, 0x80000000. XCR0: ymm 0x6, zmm 0xe0. */
static const struct {
    const char *name;
    uint32_t max_leaf, leaf1_ecx, leaf7_ebx;
    uint64_t xcr0;
    unsigned features;
} cpus[] = {
    {"nothing at all", 0, 0, 0, 0, NONE},
    {"Penryn, no AVX", 0xa, 0x0408e3bd, 0, 0, NONE},
    {"Nehalem, no AVX", 0xb, 0x009ce3bd, 0, 0, NONE},
    {"Nehalem of qemu", 0xb, 0x80982201, 0, 0, NONE},
    {"Silvermont, leaf 7 without AVX", 0xb, 0x41d8e3bf, 0x00002282, 0, NONE},
    {"Sandy Bridge, AVX without FMA", 0xd, 0x1f9ae3bf, 0, 0x7, NONE},
    {"Ivy Bridge, AVX without FMA", 0xd, 0x7fbae3ff, 0x00000281, 0x7, NONE},
    {"Bulldozer, AVX with FMA4 alone", 0xd, 0x1e98220b, 0, 0x7, NONE},
    {"Piledriver, FMA without AVX2", 0xd, 0x3e98320b, 0x00000008, 0x7, FMA},
    {"Haswell", 0xd, 0x7ffafbff, 0x000027ab, 0x7, AVX2},
    {"Skylake client", 0x16, 0x7ffafbbf, 0x029c67af, 0x1f, AVX2},
    {"Zen 2", 0x10, 0x7ed8320b, 0x219c91a9, 0x207, AVX2},
    {"Alder Lake", 0x20, 0x7ffafbff, 0x239ca7eb, 0x207, AVX2},
    {"Knights Landing, AVX-512 F and CD alone", 0xd, 0x7ff8f3bf, 0x1c0d23ab, 0xe7, AVX2},
    {"Skylake server", 0x16, 0x7ffefbff, 0xd39ffffb, 0x2ff, AVX512},
    {"Sapphire Rapids in a virtual machine", 0x1c, 0xfffa3203, 0xf1bf2ffb, 0xe7, AVX512},
    {"Zen 4", 0x10, 0x7ef8320b, 0xf1bf97a9, 0x2e7, AVX512},

    /* The operating system or the hypervisor takes something away. */
    {"Haswell, OS without XSAVE", 0xd, 0x77fafbff, 0x000027ab, 0, NONE},
    {"Haswell, XCR0 of no meaning without XSAVE", 0xd, 0x77fafbff, 0x000027ab, 0x7, NONE},
    {"Haswell, XCR0 without ymm", 0xd, 0x7ffafbff, 0x000027ab, 0x3, NONE},
    {"Haswell, XCR0 with ymm but not SSE", 0xd, 0x7ffafbff, 0x000027ab, 0x5, NONE},
    {"Haswell, AVX masked", 0xd, 0xeffafbff, 0x000027ab, 0x7, NONE},
    {"Haswell, FMA masked", 0xd, 0xfffaebff, 0x000027ab, 0x7, NONE},
    {"Haswell, AVX2 masked", 0xd, 0xfffafbff, 0x0000278b, 0x7, FMA},
    {"Haswell, leaves limited to 3", 0x3, 0x7ffafbff, 0x000027ab, 0x7, FMA},
    {"Haswell, leaves limited to 0", 0x0, 0x7ffafbff, 0x000027ab, 0x7, NONE},
    {"Skylake server, XCR0 without zmm", 0x16, 0x7ffefbff, 0xd39ffffb, 0x7, AVX2},
    {"Skylake server, XCR0 without opmask", 0x16, 0x7ffefbff, 0xd39ffffb, 0xc7, AVX2},
    {"Skylake server, XCR0 without upper halves", 0x16, 0x7ffefbff, 0xd39ffffb, 0xa7, AVX2},
    {"Skylake server, XCR0 without zmm16-31", 0x16, 0x7ffefbff, 0xd39ffffb, 0x67, AVX2},
    {"Skylake server, XCR0 without ymm", 0x16, 0x7ffefbff, 0xd39ffffb, 0xe3, NONE},
    {"Skylake server, OS without XSAVE", 0x16, 0x77fefbff, 0xd39ffffb, 0, NONE},
    {"Skylake server, AVX512F masked", 0x16, 0xfffefbff, 0xd39efffb, 0xe7, AVX2},
    {"Skylake server, AVX512DQ masked", 0x16, 0xfffefbff, 0xd39dfffb, 0xe7, AVX2},
    {"Skylake server, AVX512BW masked", 0x16, 0xfffefbff, 0x939ffffb, 0xe7, AVX2},
    {"Skylake server, AVX512VL masked", 0x16, 0xfffefbff, 0x539ffffb, 0xe7, AVX2},
    {"Skylake server, AVX2 masked", 0x16, 0xfffefbff, 0xd39fffdb, 0xe7, FMA},
};
enum { CPUS = sizeof cpus / sizeof *cpus };

START_TEST(recorded) {
    begin_case("%s", cpus[_i].name);
    unsigned features = mha_cpu_decode(&(struct mha_cpu_raw){
        .max_leaf = cpus[_i].max_leaf,
        .leaf1_ecx = cpus[_i].leaf1_ecx,
        .leaf7_ebx = cpus[_i].leaf7_ebx,
        .xcr0 = cpus[_i].xcr0,
    });
    ck_assert_msg(features == cpus[_i].features, "%s: features %u", case_name(), features);

    bool avx512 = (features & MHA_CPU_AVX512) && mha_isa_built(MHA_ISA_AVX512);
    bool avx2 = (features & MHA_CPU_AVX2) && mha_isa_built(MHA_ISA_AVX2);
    mha_isa best = avx512 ? MHA_ISA_AVX512 : avx2 ? MHA_ISA_AVX2 : MHA_ISA_SCALAR;
    ck_assert_int_eq(mha_dispatch(MHA_ISA_AUTO, features)->isa, best);
    ck_assert_ptr_eq(mha_dispatch_table(0, features), mha_dispatch(MHA_ISA_AUTO, features));
    ck_assert_int_eq(mha_dispatch(MHA_ISA_AVX512, features) != NULL, avx512);
    ck_assert_int_eq(mha_dispatch(MHA_ISA_AVX2, features) != NULL, avx2);
    ck_assert_ptr_null(mha_dispatch(MHA_ISA_NEON, features));
    const struct mha_kernels *scalar = mha_dispatch(MHA_ISA_SCALAR, features);
    ck_assert_int_eq(scalar->isa, MHA_ISA_SCALAR);
#if defined(__x86_64__)
    ck_assert_str_eq(table_name(scalar), features & MHA_CPU_FMA ? "scalar_fma" : "scalar");
#endif
}
END_TEST

/* The compiler's own detection, which asks the operating system too. */
START_TEST(this_cpu) {
    __builtin_cpu_init();
    bool fma = __builtin_cpu_supports("fma");
    bool avx2 = fma && __builtin_cpu_supports("avx2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    unsigned expected = avx512 ? AVX512 : avx2 ? AVX2 : fma ? FMA : NONE;
    ck_assert_uint_eq(mha_cpu_features(), expected);
}
END_TEST

#endif

/* AT_HWCAP of boards; any machine can test the decoding. AArch64: fp 0x1, asimd 0x2. 32-bit ARM:
 * vfp 0x40, neon 0x1000, vfpv3 0x2000, vfpv4 0x10000. */
static const struct {
    const char *name;
    enum mha_cpu_architecture architecture;
    uint64_t hwcap;
    unsigned features;
} boards[] = {
    {"Raspberry Pi 4 (Cortex-A72)", MHA_ARCH_AARCH64, 0x887, MHA_CPU_NEON},
    {"Raspberry Pi 5 (Cortex-A76)", MHA_ARCH_AARCH64, 0x119fff, MHA_CPU_NEON},
    {"AArch64, kernel without FP", MHA_ARCH_AARCH64, 0, 0},
    {"AArch64, FP alone", MHA_ARCH_AARCH64, 0x1, 0},
    {"AArch64, all but asimd", MHA_ARCH_AARCH64, ~UINT64_C(0x2), 0},
    {"Raspberry Pi 1 (ARM1176, VFPv2)", MHA_ARCH_ARM, 0x81d6, 0},
    {"BeagleBone (Cortex-A8, VFPv3)", MHA_ARCH_ARM, 0x8b8d6, 0},
    {"Cortex-A9, VFPv3", MHA_ARCH_ARM, 0x8b0d6, 0},
    {"Raspberry Pi 2 (Cortex-A7, VFPv4)", MHA_ARCH_ARM, 0x3fb0d6, MHA_CPU_FMA},
    {"ARM, VFPv4 without NEON (Cortex-A5)", MHA_ARCH_ARM, 0x1e0d6, MHA_CPU_FMA},
    {"ARM, all but VFPv4", MHA_ARCH_ARM, ~UINT64_C(0x10000), 0},
    {"another architecture", MHA_ARCH_OTHER, ~UINT64_C(0), 0},
    {"x86", MHA_ARCH_X86, ~UINT64_C(0), 0},
};
enum { BOARDS = sizeof boards / sizeof *boards };

START_TEST(recorded_boards) {
    begin_case("%s", boards[_i].name);
    unsigned features = mha_cpu_decode(
        &(struct mha_cpu_raw){.architecture = boards[_i].architecture, .hwcap = boards[_i].hwcap});
    ck_assert_msg(features == boards[_i].features, "%s: features %u", case_name(), features);
}
END_TEST

#if defined(__linux__) && (defined(__aarch64__) || defined(__arm__))

/* The system's own names for the bits. */
START_TEST(this_board) {
#if defined(__aarch64__)
    unsigned expected = getauxval(AT_HWCAP) & HWCAP_ASIMD ? MHA_CPU_NEON : 0;
    ck_assert_int_eq(mha_isa_supported(MHA_ISA_NEON), expected != 0);
#else
    unsigned expected = getauxval(AT_HWCAP) & HWCAP_ARM_VFPv4 ? MHA_CPU_FMA : 0;
    const char *scalar = table_name(mha_dispatch(MHA_ISA_SCALAR, mha_cpu_features()));
    ck_assert_str_eq(scalar, expected ? "scalar_fma" : "scalar");
#endif
    ck_assert_uint_eq(mha_cpu_features(), expected);
}
END_TEST

#endif

/* ---- This machine ---------------------------------------------------------- */

/* "scalar, avx2": what the messages must end with. */
static const char *supported_here(void) {
    static char list[100];
    list[0] = '\0';
    for (int isa = MHA_ISA_SCALAR; isa < ISAS; isa++) {
        if (mha_isa_supported((mha_isa)isa)) {
            strcat(list, list[0] ? ", " : "");
            strcat(list, mha_isa_name((mha_isa)isa));
        }
    }
    return list;
}

/* Creating a context fails with this status and message, and leaves the pointer alone. */
static void check_refused(mha_isa isa, mha_status expected, const char *message) {
    mha_context *untouched = (mha_context *)&untouched, *context = untouched;
    mha_status status = mha_context_create(&(mha_options){.isa = isa}, &context);
    ck_assert_int_eq(status, expected);
    ck_assert_ptr_eq(context, untouched);
    ck_assert_str_eq(mha_error_message(), message);
}

static mha_isa chosen(mha_isa isa) {
    mha_context *context;
    mha_status status = mha_context_create(&(mha_options){.isa = isa}, &context);
    ck_assert_msg(status == MHA_OK, "%s", mha_error_message());
    mha_isa result = mha_context_isa(context);
    mha_context_destroy(&context);
    return result;
}

static const char *refusal(const char *source, mha_isa isa) {
    static char text[200];
    snprintf(text, sizeof text, "%s%s is not supported by this %s; supported here: %s", source,
             mha_isa_name(isa), mha_isa_built(isa) ? "CPU" : "build", supported_here());
    return text;
}

/* Test i: the ISA i, by option, and by $MHA_ISA, which an option overrides. */
START_TEST(by_name) {
    mha_isa isa = (mha_isa)_i, found = (mha_isa)ISAS;
    const char *name = mha_isa_name(isa);
    begin_case("%s", name);
    ck_assert_int_eq(mha_isa_from_name(name, &found), MHA_OK);
    ck_assert_int_eq(found, isa);

    unsetenv("MHA_ISA");
    if (mha_isa_supported(isa)) {
        ck_assert(mha_isa_built(isa));
        ck_assert_int_eq(chosen(isa), isa);
        setenv("MHA_ISA", "no such thing", 1); /* an option overrides it */
        ck_assert_int_eq(chosen(isa), isa);
        setenv("MHA_ISA", name, 1);
        ck_assert_int_eq(chosen(MHA_ISA_AUTO), isa);
        ck_assert_int_eq(chosen(MHA_ISA_SCALAR), MHA_ISA_SCALAR);
    } else {
        check_refused(isa, MHA_ERROR_UNSUPPORTED, refusal("", isa));
        setenv("MHA_ISA", name, 1);
        check_refused(MHA_ISA_AUTO, MHA_ERROR_UNSUPPORTED, refusal("MHA_ISA: ", isa));
        ck_assert_int_eq(chosen(MHA_ISA_SCALAR), MHA_ISA_SCALAR);
    }
}
END_TEST

START_TEST(automatic) {
    static const char *const values[] = {NULL, "", "auto"};
    if (values[_i]) {
        setenv("MHA_ISA", values[_i], 1);
    } else {
        unsetenv("MHA_ISA");
    }
    mha_isa best = mha_dispatch(MHA_ISA_AUTO, mha_cpu_features())->isa;
    ck_assert_int_eq(chosen(MHA_ISA_AUTO), best);
    mha_context *context;
    ck_assert_int_eq(mha_context_create(NULL, &context), MHA_OK);
    ck_assert_int_eq(mha_context_isa(context), best);
    mha_context_destroy(&context);
}
END_TEST

START_TEST(unknown_names) {
    static const char *const unknown[] = {"sse2",
                                          "AVX2",
                                          "avx2 ",
                                          "avx",
                                          "scalar,avx2",
                                          "0",
                                          "a name that is far longer than any that there is"};
    char expected[300];
    mha_isa isa = MHA_ISA_NEON;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(expected, sizeof expected, "unknown ISA \"%.40s\"; supported here: auto, %s",
                 unknown[i], supported_here());
        ck_assert_int_eq(mha_isa_from_name(unknown[i], &isa), MHA_ERROR_UNSUPPORTED);
        ck_assert_int_eq(isa, MHA_ISA_NEON);
        ck_assert_str_eq(mha_error_message(), expected);
        snprintf(expected, sizeof expected,
                 "MHA_ISA: unknown ISA \"%.40s\"; supported here: auto, %s", unknown[i],
                 supported_here());
        setenv("MHA_ISA", unknown[i], 1);
        check_refused(MHA_ISA_AUTO, MHA_ERROR_UNSUPPORTED, expected);
    }
    ck_assert_int_eq(mha_isa_from_name(NULL, &isa), MHA_ERROR_ARGUMENT);
    ck_assert_int_eq(mha_isa_from_name("avx2", NULL), MHA_ERROR_ARGUMENT);
}
END_TEST

START_TEST(numbers_outside) {
    unsetenv("MHA_ISA");
    check_refused((mha_isa)ISAS, MHA_ERROR_ARGUMENT, "isa (5) is not a member of mha_isa");
    check_refused((mha_isa)77, MHA_ERROR_ARGUMENT, "isa (77) is not a member of mha_isa");
    ck_assert_ptr_null(mha_isa_name((mha_isa)ISAS));
    ck_assert_ptr_null(mha_isa_name((mha_isa)77));
    ck_assert_int_eq(mha_isa_built((mha_isa)77), 0);
    ck_assert_int_eq(mha_isa_supported((mha_isa)77), 0);
    ck_assert_int_eq(mha_isa_supported(MHA_ISA_AUTO), 0);
    ck_assert_int_eq(mha_isa_supported(MHA_ISA_SCALAR), 1);
}
END_TEST

/* Packed weights are the same for all ISAs, so making a layer doesn't read $MHA_ISA. */
START_TEST(layers) {
    float one = 1.0f;
    mha_config config = {.d_model = 1, .n_heads = 1};
    mha_weights weights = {.q = &one, .k = &one, .v = &one, .o = &one};
    mha_layer *layer = NULL;
    setenv("MHA_ISA", "mmx", 1);
    ck_assert_int_eq(mha_layer_create(&config, &weights, &layer), MHA_OK);
    mha_layer_destroy(&layer);
    unsetenv("MHA_ISA");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cpu");
    TCase *test = tcase_create("choice");
#if defined(__x86_64__) || defined(__i386__)
    tcase_add_loop_test(test, recorded, 0, CPUS);
    tcase_add_test(test, this_cpu);
#endif
    tcase_add_loop_test(test, recorded_boards, 0, BOARDS);
#if defined(__linux__) && (defined(__aarch64__) || defined(__arm__))
    tcase_add_test(test, this_board);
#endif
    tcase_add_loop_test(test, by_name, MHA_ISA_SCALAR, ISAS);
    tcase_add_loop_test(test, automatic, 0, 3);
    tcase_add_test(test, unknown_names);
    tcase_add_test(test, numbers_outside);
    tcase_add_test(test, layers);
    suite_add_tcase(suite, test);
    printf("chosen: %s\n", table_name(mha_dispatch(MHA_ISA_AUTO, mha_cpu_features())));
    return run_suite(suite);
}
