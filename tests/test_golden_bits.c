/* SPDX-License-Identifier: MIT
 *
 * Whole runs whose results have the same bits on every ISA, by every compiler, on every machine:
 * golden_bits.txt holds hashes of them. Each is also within its bound of the oracle. Run in the
 * tests' folder. MHA_GOLDEN_WRITE=1 rewrites the file.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits_case.h"
#include "context.h"
#include "oracle.h"

static const char path[] = "golden_bits.txt";

struct hashes {
    uint64_t output, attention;
};

#define ck_assert_succeeds(call)                                                                   \
    do {                                                                                           \
        mha_status status_ = (call);                                                               \
        require(status_ == MHA_OK, "%s: %s", case_name(), mha_error_message());                    \
    } while (0)

/* Runs with the given table of kernels, twice: without returning weights, then with them. */
static void run(const struct bits_case *c, const struct mha_kernels *table,
                struct bits_problem *p) {
    mha_context *context;
    ck_assert_succeeds(mha_context_create(NULL, &context));
    context->kernels = table; /* the software fma can't be chosen otherwise */
    uint64_t hash = 0;
    for (int weights = 0; weights < 2; weights++) {
        p->attention.attention = p->forward.attention = weights ? p->probabilities : NULL;
        memset(p->output, 0xff, p->outputs * sizeof(float));
        if (c->bare) {
            ck_assert_succeeds(mha_attention(context, &p->attention));
        } else {
            mha_layer *layer;
            ck_assert_succeeds(mha_layer_create(&p->config, &p->weights, &layer));
            ck_assert_succeeds(mha_forward(context, layer, &p->forward));
            mha_layer_destroy(&layer);
        }
        require(!weights || hash == hash_floats(p->output, p->outputs),
                "%s: returning weights changes the output", case_name());
        hash = hash_floats(p->output, p->outputs);
    }
    mha_context_destroy(&context);
}

/* Fails the test unless the numbers are within the oracle's bounds, which are wide because they
 * hold for every correct result, and within this share of the largest number, which the library
 * reaches. */
static void check_numbers(const char *what, const struct oracle_number *expected,
                          const float *actual, size_t count, double share) {
    double largest = 0.0, error = 0.0;
    require(oracle_agrees(what, expected, actual, 1, count), "%s: %s", case_name(), what);
    for (size_t i = 0; i < count; i++) {
        if (isfinite(expected[i].value)) {
            largest = fmax(largest, fabs(expected[i].value));
            error = fmax(error, fabs((double)actual[i] - expected[i].value));
        }
    }
    require(error <= share * largest, "%s: %s is off by %g of %g", case_name(), what, error,
            largest);
}

/* Not in thinned runs: the contents of the file were checked when it was written. */
static void check_oracle(const struct bits_case *c, const struct bits_problem *p) {
    struct oracle oracle;
    if (env_number("MHA_TEST_STRIDE", 1) > 1) {
        return;
    }
    double share = c->exponent > 4 ? 3e-5 : 3e-6; /* steep: errors of scores grow by exp */
    if (c->bare) {
        oracle_attention(&p->attention, &oracle);
    } else {
        oracle_forward(&p->config, &p->weights, &p->forward, &oracle);
    }
    check_numbers("output", oracle.output, p->output, p->outputs, share);
    check_numbers("attention", oracle.attention, p->probabilities, p->probability_count, share);
    oracle_free(&oracle);
}

static struct hashes try_case(const struct bits_case *c, const struct mha_kernels *table) {
    struct bits_problem p;
    begin_case("%s, %s", c->name, table_name(table));
    make_bits_problem(c, &p);
    run(c, table, &p);
    check_oracle(c, &p);
    struct hashes hashes = {hash_floats(p.output, p.outputs),
                            hash_floats(p.probabilities, p.probability_count)};
    free_bits_problem(&p);
    return hashes;
}

/* ---- The file -------------------------------------------------------------- */

static FILE *open_golden(const char *mode) {
    FILE *file = fopen(path, mode);
    require(file, "%s: can't open it; the working directory must be the tests' folder", path);
    return file;
}

/* The next line that isn't a comment: false at the end. */
static bool read_line(FILE *file, char name[64], struct hashes *hashes) {
    char line[200];
    while (fgets(line, sizeof line, file)) {
        if (line[0] != '#') {
            int n = sscanf(line, "%63s %" SCNx64 " %" SCNx64, name, &hashes->output,
                           &hashes->attention);
            require(n == 3, "%s: not a case: %s", path, line);
            return true;
        }
    }
    return false;
}

START_TEST(golden) {
    const struct bits_case *c = &bits_cases[(size_t)_i % n_bits_cases];
    const struct mha_kernels *table = tested_table((size_t)_i / n_bits_cases);
    struct hashes actual = try_case(c, table), expected;
    char name[64];
    FILE *file = open_golden("r");
    bool found = false;
    while (!found && read_line(file, name, &expected)) {
        found = strcmp(name, c->name) == 0;
    }
    fclose(file);
    require(found, "%s: not in %s", c->name, path);
    require(actual.output == expected.output && actual.attention == expected.attention,
            "%s: output %016" PRIx64 " (golden %016" PRIx64 "), attention %016" PRIx64
            " (golden %016" PRIx64 ")",
            case_name(), actual.output, expected.output, actual.attention, expected.attention);
}
END_TEST

/* The lines of the file are the cases, in their order. */
START_TEST(complete) {
    FILE *file = open_golden("r");
    char name[64];
    struct hashes hashes;
    size_t n = 0;
    for (; read_line(file, name, &hashes); n++) {
        require(n < n_bits_cases && strcmp(name, bits_cases[n].name) == 0, "%s: line %zu is %s",
                path, n + 1, name);
    }
    fclose(file);
    ck_assert_uint_eq(n, n_bits_cases);
}
END_TEST

/* Only what the oracle agrees with is written, all of it or nothing. */
START_TEST(rewrite) {
    struct hashes *hashes = malloc(n_bits_cases * sizeof *hashes);
    ck_assert_ptr_nonnull(hashes);
    for (size_t i = 0; i < n_bits_cases; i++) {
        hashes[i] = try_case(&bits_cases[i], reference_table());
    }
    FILE *file = open_golden("w");
    fprintf(file,
            "# Hashes of the output and the weights of the cases in bits_case.c: FNV-1a, 64\n"
            "# bits, over the floats' bytes, least significant first, NaN as 0x7fc00000.\n"
            "# Every ISA, compiler and machine gives these. test_golden_bits.c wrote them.\n");
    for (size_t i = 0; i < n_bits_cases; i++) {
        fprintf(file, "%-28s %016" PRIx64 " %016" PRIx64 "\n", bits_cases[i].name, hashes[i].output,
                hashes[i].attention);
    }
    ck_assert_int_eq(fclose(file), 0);
    free(hashes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("golden bits");
    TCase *test = tcase_create("bits");
    tcase_set_timeout(test, 0);
    if (env_number("MHA_GOLDEN_WRITE", 0)) {
        tcase_add_test(test, rewrite);
    } else {
        tcase_add_loop_test(test, golden, 0, tested_tables() * (int)n_bits_cases);
        tcase_add_test(test, complete);
    }
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
