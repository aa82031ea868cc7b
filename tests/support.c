/* SPDX-License-Identifier: MIT
 *
 * Cases, comparison, tables and main() of the test programs. Guarded memory is in guarded.c.
 */
#include "support.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "dispatch.h"
#include "guarded.h"

/* ---- The current case ------------------------------------------------------ */

static char name_of_case[256] = "no case yet";
static uint64_t hash_of_case;

struct generator begin_case(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(name_of_case, sizeof name_of_case, format, args);
    va_end(args);
    size_t length = strlen(name_of_case);
    hash_of_case = fnv1a(FNV_START, name_of_case, length);
    uint64_t seed = env_number("MHA_TEST_SEED", hash_of_case);
    snprintf(name_of_case + length, sizeof name_of_case - length, " (seed 0x%llx)",
             (unsigned long long)seed);
    return (struct generator){seed};
}

const char *case_name(void) {
    return name_of_case;
}

uint64_t next_bits(struct generator *generator) {
    generator->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = generator->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t next_below(struct generator *generator, size_t n) {
    return (size_t)(next_bits(generator) % n);
}

float next_float(struct generator *generator) {
    int32_t integer = (int32_t)(next_bits(generator) >> 40) - (1 << 23);
    return (float)integer * 0x1p-23f;
}

void fill_floats(struct generator *generator, float *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        data[i] = next_float(generator);
    }
}

uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t env_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) {
        return otherwise;
    }
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 0);
    if (errno != 0 || *end != '\0') {
        fprintf(stderr, "%s is not a number: %s\n", name, text);
        exit(2);
    }
    return number;
}

static uint64_t case_stride(void) {
    return env_number("MHA_TEST_STRIDE", 1) / 1024 + 1;
}

bool skip_case(void) {
    static bool begun;
    bool first = !begun;
    begun = true;
    return !first && next_bits(&(struct generator){hash_of_case}) % case_stride() != 0;
}

/* ---- Comparison ------------------------------------------------------------ */

bool bits_equal(float a, float b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

enum { MAP_ROWS = 24, MAP_COLUMNS = 96, PAIRS = 6 };

static size_t map_start(size_t first, size_t count, size_t shown) {
    return count <= shown || first < shown / 2 ? 0 : first - shown / 2;
}

bool same_floats(const char *what, const float *expected, size_t expected_stride,
                 const float *actual, size_t actual_stride, size_t rows, size_t columns) {
    size_t different = 0, first_row = 0, first_column = 0;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            float e = expected[i * expected_stride + j], a = actual[i * actual_stride + j];
            if (bits_equal(e, a)) {
                continue;
            }
            if (different == 0) {
                fprintf(stderr, "%s: %s\n", case_name(), what);
                first_row = i;
                first_column = j;
            }
            if (different < PAIRS) {
                fprintf(stderr, "  [%zu][%zu] expected %a (%g), is %a (%g)\n", i, j, (double)e,
                        (double)e, (double)a, (double)a);
            }
            different++;
        }
    }
    if (different == 0) {
        return true;
    }
    size_t row = map_start(first_row, rows, MAP_ROWS);
    size_t column = map_start(first_column, columns, MAP_COLUMNS);
    fprintf(stderr, "  %zu of %zu differ; rows from %zu, columns from %zu:\n", different,
            rows * columns, row, column);
    for (size_t i = row; i < rows && i < row + MAP_ROWS; i++) {
        fprintf(stderr, "  ");
        for (size_t j = column; j < columns && j < column + MAP_COLUMNS; j++) {
            float e = expected[i * expected_stride + j], a = actual[i * actual_stride + j];
            fputc(bits_equal(e, a) ? '.' : 'x', stderr);
        }
        fputc('\n', stderr);
    }
    return false;
}

bool gaps_untouched(const float *data, size_t stride, size_t rows, size_t columns) {
    for (size_t i = 0; i + 1 < rows; i++) {
        for (size_t j = columns; j < stride; j++) {
            uint32_t bits;
            memcpy(&bits, &data[i * stride + j], sizeof bits);
            if (bits != UINT32_MAX) {
                fprintf(stderr, "%s: written behind row %zu, at column %zu of %zu\n", case_name(),
                        i, j, columns);
                return false;
            }
        }
    }
    return true;
}

/* ---- The tables of kernels ------------------------------------------------- */

const struct mha_kernels *tested_table(size_t i) {
    const char *wanted = getenv("MHA_ISA");
    bool any = !wanted || !*wanted || strcmp(wanted, "auto") == 0;
    const struct mha_kernels *table;
    for (size_t n = 0; (table = mha_dispatch_table(n, mha_cpu_features())); n++) {
        if ((any || strcmp(wanted, mha_isa_name(table->isa)) == 0) && i-- == 0) {
            return table;
        }
    }
    return NULL;
}

int tested_tables(void) {
    int count = 0;
    while (tested_table((size_t)count)) {
        count++;
    }
    return count;
}

const char *table_name(const struct mha_kernels *table) {
    bool plain = table->isa != MHA_ISA_SCALAR || table == mha_dispatch(MHA_ISA_SCALAR, 0);
    return plain ? mha_isa_name(table->isa) : "scalar_fma";
}

const struct mha_kernels *reference_table(void) {
    return mha_dispatch(MHA_ISA_SCALAR, mha_cpu_features());
}

/* ---- main() ---------------------------------------------------------------- */

/* 0 if $MHA_ISA is supported here, else the exit status. */
static int check_isa(void) {
    const char *wanted = getenv("MHA_ISA");
    mha_isa isa;
    if (!wanted || !*wanted) {
        return 0;
    }
    if (mha_isa_from_name(wanted, &isa) != MHA_OK) {
        fprintf(stderr, "MHA_ISA: %s\n", mha_error_message());
        return 1;
    }
    if (isa != MHA_ISA_AUTO && !mha_isa_supported(isa)) {
        printf("SKIP: %s is not supported by this %s\n", wanted,
               mha_isa_built(isa) ? "CPU" : "build");
        return 77;
    }
    return 0;
}

#ifdef MHA_EMULATED
/* Cross builds run under an emulator: by default with a sample of the cases and longer timeouts.
 * Before main(), because Check reads its variable when a test case is created. */
__attribute__((constructor)) static void slow_down(void) {
    setenv("MHA_TEST_STRIDE", "9973", 0);
    setenv("CK_TIMEOUT_MULTIPLIER", "10", 0);
}
#endif

int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    int status = check_isa();
    if (status == 0) {
        uint64_t stride = env_number("MHA_TEST_STRIDE", 1);
        if (stride != 1) {
            printf("SAMPLED: of long proofs one step in %llu, of cases one in %llu\n",
                   (unsigned long long)stride, (unsigned long long)case_stride());
        }
        guarded_explain_faults();
        srunner_run_all(runner, CK_ENV);
        status = srunner_ntests_failed(runner) > 0 || srunner_ntests_run(runner) == 0;
    }
    srunner_free(runner);
    return status;
}
