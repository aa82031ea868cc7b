/* SPDX-License-Identifier: MIT
 *
 * What the CPU and its operating system can run. Reading the machine is behind a seam
 * (mha_cpu_read); deciding what the readings mean is a pure function that tests feed with
 * recorded CPUs.
 */
#ifndef MHA_CPU_H
#define MHA_CPU_H

#include <stdint.h>

enum mha_cpu_architecture {
    MHA_ARCH_X86,
    MHA_ARCH_AARCH64,
    MHA_ARCH_ARM, /* 32-bit */
    MHA_ARCH_OTHER,
};

/* Raw readings. Fields that the architecture doesn't have stay 0. */
struct mha_cpu_raw {
    enum mha_cpu_architecture architecture;
    uint32_t max_leaf;  /* x86: cpuid 0, eax */
    uint32_t leaf1_ecx; /* x86: cpuid 1 */
    uint32_t leaf7_ebx; /* x86: cpuid 7.0; only read if max_leaf >= 7 */
    uint64_t xcr0;      /* x86: xgetbv 0; only read if leaf 1 has OSXSAVE */
    uint64_t hwcap;     /* ARM: AT_HWCAP of Linux; elsewhere what the platform promises */
};

/* One bit per capability that a table of kernels may ask for. */
enum mha_cpu_feature {
    MHA_CPU_FMA = 1 << 0,    /* x86: FMA3, with AVX state saved by the OS; 32-bit ARM: VFPv4 */
    MHA_CPU_AVX2 = 1 << 1,   /* x86: AVX2 too */
    MHA_CPU_AVX512 = 1 << 2, /* x86: F, DQ, BW and VL, with opmask and zmm state saved */
    MHA_CPU_NEON = 1 << 3,   /* AArch64: Advanced SIMD, which there has FMA and subnormals */
};

void mha_cpu_read(struct mha_cpu_raw *raw);
unsigned mha_cpu_decode(const struct mha_cpu_raw *raw);

/* Both. */
unsigned mha_cpu_features(void);

#endif
