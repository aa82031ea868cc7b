/* SPDX-License-Identifier: MIT
 *
 * The dispatcher. Adding an ISA is a line in the list below. It holds no state: a choice is
 * made when a context or a layer is created.
 */
#include "dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "error.h"

extern const struct mha_kernels mha_kernels_scalar, mha_kernels_scalar_fma, mha_kernels_avx2,
    mha_kernels_avx512, mha_kernels_neon;

/* Best first. Scalar comes last and asks for nothing. */
static const struct entry {
    const struct mha_kernels *kernels;
    unsigned features; /* all of them needed */
} entries[] = {
#ifdef MHA_HAVE_AVX512
    {&mha_kernels_avx512, MHA_CPU_AVX512},
#endif
#ifdef MHA_HAVE_AVX2
    {&mha_kernels_avx2, MHA_CPU_AVX2},
#endif
#ifdef MHA_HAVE_NEON
    {&mha_kernels_neon, MHA_CPU_NEON},
#endif
#ifdef MHA_HAVE_SCALAR_FMA
    {&mha_kernels_scalar_fma, MHA_CPU_FMA},
#endif
    {&mha_kernels_scalar, 0},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

enum { ISA_COUNT = MHA_ISA_NEON + 1 };
static const char *const names[ISA_COUNT] = {
    [MHA_ISA_AUTO] = "auto",     [MHA_ISA_SCALAR] = "scalar", [MHA_ISA_AVX2] = "avx2",
    [MHA_ISA_AVX512] = "avx512", [MHA_ISA_NEON] = "neon",
};

const struct mha_kernels *mha_dispatch(mha_isa isa, unsigned features) {
    for (size_t i = 0; i < ENTRIES; i++) {
        if ((isa == MHA_ISA_AUTO || isa == entries[i].kernels->isa) &&
            (entries[i].features & features) == entries[i].features) {
            return entries[i].kernels;
        }
    }
    return NULL;
}

const struct mha_kernels *mha_dispatch_table(size_t i, unsigned features) {
    for (size_t n = 0; n < ENTRIES; n++) {
        if ((entries[n].features & features) == entries[n].features && i-- == 0) {
            return entries[n].kernels;
        }
    }
    return NULL;
}

/* "scalar, avx2" into text: the names for which the predicate holds. */
static const char *list_isas(char *text, size_t size, int (*holds)(mha_isa)) {
    size_t used = 0;
    text[0] = '\0';
    for (int isa = MHA_ISA_AUTO + 1; isa < ISA_COUNT; isa++) {
        if (holds((mha_isa)isa) && used < size) {
            int n = snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", names[isa]);
            used += (size_t)n;
        }
    }
    return text;
}

/* source: what stands before the message, "" or where the name comes from. */
static mha_status find_isa(const char *source, const char *name, mha_isa *isa) {
    for (int i = 0; i < ISA_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *isa = (mha_isa)i;
            return MHA_OK;
        }
    }
    char list[64];
    return mha_fail(MHA_ERROR_UNSUPPORTED, "%sunknown ISA \"%.40s\"; supported here: auto, %s",
                    source, name, list_isas(list, sizeof list, mha_isa_supported));
}

mha_status mha_dispatch_select(mha_isa isa, const struct mha_kernels **kernels) {
    const char *source = "";
    if (isa == MHA_ISA_AUTO) {
        const char *wanted = getenv("MHA_ISA");
        if (wanted && *wanted) {
            source = "MHA_ISA: ";
            mha_status status = find_isa(source, wanted, &isa);
            if (status != MHA_OK) {
                return status;
            }
        }
    }
    if (!mha_isa_name(isa)) {
        return mha_fail(MHA_ERROR_ARGUMENT, "isa (%d) is not a member of mha_isa", (int)isa);
    }
    const struct mha_kernels *found = mha_dispatch(isa, mha_cpu_features());
    if (!found) {
        char list[64];
        return mha_fail(MHA_ERROR_UNSUPPORTED, "%s%s is not supported %s; supported here: %s",
                        source, names[isa], mha_isa_built(isa) ? "by this CPU" : "by this build",
                        list_isas(list, sizeof list, mha_isa_supported));
    }
    *kernels = found;
    return MHA_OK;
}

const char *mha_isa_name(mha_isa isa) {
    return (unsigned)isa < ISA_COUNT ? names[isa] : NULL;
}

mha_status mha_isa_from_name(const char *name, mha_isa *isa) {
    if (!name || !isa) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", name ? "isa" : "name");
    }
    return find_isa("", name, isa);
}

int mha_isa_built(mha_isa isa) {
    return isa != MHA_ISA_AUTO && mha_dispatch(isa, ~0u) != NULL;
}

int mha_isa_supported(mha_isa isa) {
    return isa != MHA_ISA_AUTO && mha_dispatch(isa, mha_cpu_features()) != NULL;
}
