/* SPDX-License-Identifier: MIT
 *
 * The floating-point environment of a public call: round to nearest, subnormals kept,
 * whatever the caller has set; the caller's own comes back at the end.
 */
#ifndef MHA_FPENV_H
#define MHA_FPENV_H

#include <stdint.h>

/* What ARM's instructions name as memory is all that floating-point code between them reads and
 * writes: it may not move across. On x86 the intrinsics say the same. */
#if defined(__SSE__)

#include <xmmintrin.h>

typedef unsigned int mha_fpenv;

static inline mha_fpenv mha_fpenv_enter(void) {
    mha_fpenv saved = _mm_getcsr();
    _mm_setcsr(0x1f80); /* all exceptions masked, nearest, neither FTZ nor DAZ */
    return saved;
}

static inline void mha_fpenv_leave(mha_fpenv saved) {
    _mm_setcsr(saved);
}

#elif defined(__aarch64__)

typedef struct mha_fpenv {
    uint64_t control, status;
} mha_fpenv;

static inline mha_fpenv mha_fpenv_enter(void) {
    mha_fpenv saved;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(saved.control), "=r"(saved.status));
    /* FZ, AH, FIZ, DN, RMode and the traps, all 0. */
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return saved;
}

static inline void mha_fpenv_leave(mha_fpenv saved) {
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1"
                     :
                     : "r"(saved.control), "r"(saved.status)
                     : "memory");
}

#elif defined(__arm__) && defined(__ARM_FP)

typedef uint32_t mha_fpenv;

static inline mha_fpenv mha_fpenv_enter(void) {
    mha_fpenv saved;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(saved));
    /* FZ, DN, RMode and the traps, all 0. */
    __asm__ volatile("vmsr fpscr, %0" : : "r"(0) : "memory");
    return saved;
}

static inline void mha_fpenv_leave(mha_fpenv saved) {
    __asm__ volatile("vmsr fpscr, %0" : : "r"(saved) : "memory");
}

#else

#include <fenv.h>

typedef fenv_t mha_fpenv;

static inline mha_fpenv mha_fpenv_enter(void) {
    mha_fpenv saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void mha_fpenv_leave(mha_fpenv saved) {
    fesetenv(&saved);
}

#endif

#endif
