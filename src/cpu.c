/* SPDX-License-Identifier: MIT
 *
 * Detection of what the CPU and the operating system support. It knows nothing of kernels.
 * A CPU may have registers that the operating system doesn't save (old kernels, hypervisors
 * that mask bits); using them then faults or corrupts, so both are asked.
 */
#include "cpu.h"

#include <stddef.h>

/* Bits of AT_HWCAP (Linux, Documentation/arch/arm64/elf_hwcaps.rst; arch/arm, hwcap.h). A C
 * library's own names for them depend on the architecture, and decoding doesn't. */
enum { AARCH64_ASIMD = 1 << 1, ARM_VFPV4 = 1 << 16 };

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

void mha_cpu_read(struct mha_cpu_raw *raw) {
    uint32_t eax, ebx, ecx, edx;
    *raw = (struct mha_cpu_raw){0};
    raw->max_leaf = (uint32_t)__get_cpuid_max(0, NULL);
    if (raw->max_leaf >= 1) {
        __cpuid(1, eax, ebx, ecx, edx);
        raw->leaf1_ecx = ecx;
    }
    if (raw->max_leaf >= 7) {
        __cpuid_count(7, 0, eax, ebx, ecx, edx);
        raw->leaf7_ebx = ebx;
    }
    if (raw->leaf1_ecx & (1u << 27)) {
        __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
        raw->xcr0 = (uint64_t)edx << 32 | eax;
    }
}

#elif defined(__aarch64__) || defined(__arm__)

#if defined(__linux__)
#include <sys/auxv.h>
#endif

void mha_cpu_read(struct mha_cpu_raw *raw) {
    *raw = (struct mha_cpu_raw){0};
#if defined(__aarch64__)
    raw->architecture = MHA_ARCH_AARCH64;
#else
    raw->architecture = MHA_ARCH_ARM;
#endif
#if defined(__linux__)
    raw->hwcap = getauxval(AT_HWCAP);
#elif defined(__aarch64__)
    raw->hwcap = AARCH64_ASIMD; /* macOS, Windows and the BSDs require it */
#endif
}

#else

void mha_cpu_read(struct mha_cpu_raw *raw) {
    *raw = (struct mha_cpu_raw){.architecture = MHA_ARCH_OTHER};
}

#endif

static unsigned decode_x86(const struct mha_cpu_raw *raw) {
    /* Intel SDM vol. 2, CPUID; vol. 1, 13.3 (XCR0). */
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28;
    const uint32_t avx2 = 1u << 5, avx512f = 1u << 16, avx512dq = 1u << 17;
    const uint32_t avx512bw = 1u << 30, avx512vl = 1u << 31;
    const uint64_t ymm_state = 0x06; /* SSE, AVX */
    const uint64_t zmm_state = 0xe6; /* and opmask, upper zmm0-15, zmm16-31 */

    unsigned features = 0;
    if (raw->max_leaf < 1 || !(raw->leaf1_ecx & osxsave) || !(raw->leaf1_ecx & avx) ||
        (raw->xcr0 & ymm_state) != ymm_state || !(raw->leaf1_ecx & fma)) {
        return features;
    }
    features |= MHA_CPU_FMA;
    if (raw->max_leaf < 7 || !(raw->leaf7_ebx & avx2)) {
        return features;
    }
    features |= MHA_CPU_AVX2;
    const uint32_t avx512 = avx512f | avx512dq | avx512bw | avx512vl;
    if ((raw->leaf7_ebx & avx512) == avx512 && (raw->xcr0 & zmm_state) == zmm_state) {
        features |= MHA_CPU_AVX512;
    }
    return features;
}

unsigned mha_cpu_decode(const struct mha_cpu_raw *raw) {
    switch (raw->architecture) {
    case MHA_ARCH_X86:
        return decode_x86(raw);
    case MHA_ARCH_AARCH64:
        return raw->hwcap & AARCH64_ASIMD ? MHA_CPU_NEON : 0;
    case MHA_ARCH_ARM:
        return raw->hwcap & ARM_VFPV4 ? MHA_CPU_FMA : 0;
    default:
        return 0;
    }
}

unsigned mha_cpu_features(void) {
    struct mha_cpu_raw raw;
    mha_cpu_read(&raw);
    return mha_cpu_decode(&raw);
}
