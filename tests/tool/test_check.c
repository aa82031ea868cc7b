/* SPDX-License-Identifier: MIT
 *
 * mha check finds a wrong bit wherever it is. The library's mha_forward() is wrapped by one
 * that spoils a result (-Wl,--wrap), so this also shows that the check can fail.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "fixture.h"

/* ---- The wrapped library -------------------------------------------------------------- */

enum spoil { NOTHING, ONE_BIT_OF_OUTPUT, ONE_BIT_OF_ATTENTION, NAN_PAYLOADS, NOT_WRITTEN, ERROR };

static struct {
    enum spoil how;
    size_t at;    /* spoil the first suitable call from this one on */
    size_t calls; /* so far */
    size_t spoiled;
} plan;

mha_status __real_mha_forward(mha_context *context, const mha_layer *layer,
                              const mha_forward_args *args);
mha_status __wrap_mha_forward(mha_context *context, const mha_layer *layer,
                              const mha_forward_args *args);

static void flip(float *values, size_t index) {
    uint32_t bits;
    memcpy(&bits, &values[index], sizeof bits);
    bits ^= 1;
    memcpy(&values[index], &bits, sizeof bits);
}

/* The first value that stays a number when its last bit changes; SIZE_MAX if there is none. */
static size_t first_number(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            return i;
        }
    }
    return SIZE_MAX;
}

mha_status __wrap_mha_forward(mha_context *context, const mha_layer *layer,
                              const mha_forward_args *args) {
    const mha_config *config = mha_layer_config(layer);
    size_t outputs = args->batch * args->q_len * config->d_model;
    size_t weights = args->batch * config->n_heads * args->q_len * args->kv_len;
    bool now = plan.calls++ >= plan.at && plan.spoiled == 0;
    if (now && plan.how == ERROR) {
        plan.spoiled++;
        return mha_layer_clone(NULL, 1, NULL); /* an error with a message */
    }
    if (now && plan.how == NOT_WRITTEN && outputs > 0) {
        plan.spoiled++;
        return MHA_OK;
    }
    mha_status status = __real_mha_forward(context, layer, args);
    float *values = plan.how == ONE_BIT_OF_ATTENTION ? args->attention : args->output;
    size_t count = plan.how == ONE_BIT_OF_ATTENTION ? weights : outputs;
    size_t index = values != NULL ? first_number(values, count) : SIZE_MAX;
    if (now && (plan.how == ONE_BIT_OF_OUTPUT || plan.how == ONE_BIT_OF_ATTENTION) &&
        index != SIZE_MAX) {
        flip(values, index);
        plan.spoiled++;
    }
    for (size_t i = 0; plan.how == NAN_PAYLOADS && i < outputs; i++) {
        if (isnan(args->output[i])) {
            uint32_t bits = UINT32_C(0x7f800001) + (uint32_t)(plan.calls * 31 & 0xffff);
            memcpy(&args->output[i], &bits, sizeof bits);
            plan.spoiled++;
        }
    }
    return status;
}

/* Runs the check in this process; what it prints goes to a file. */
static bool run_check(enum spoil how, size_t at, struct bytes *printed) {
    char *arguments[] = {"--quick", NULL};
    plan.how = how;
    plan.at = at;
    plan.calls = plan.spoiled = 0;
    require(freopen(in_scratch("out"), "w", stdout) != NULL, "cannot redirect");
    bool good = command_check(arguments);
    fflush(stdout);
    *printed = read_bytes(in_scratch("out"));
    return good;
}

START_TEST(nothing_wrong) {
    struct bytes printed;
    require(run_check(NOTHING, 0, &printed), "%s", failure_message());
    ck_assert_ptr_nonnull(strstr((char *)printed.data, "\nPASSED: all "));
    ck_assert_ptr_null(strstr((char *)printed.data, "FAILED"));
    for (mha_isa isa = MHA_ISA_SCALAR; mha_isa_name(isa) != NULL; isa++) {
        char row[32];
        snprintf(row, sizeof row, "\n%-8s ", mha_isa_name(isa));
        require((strstr((char *)printed.data, row) != NULL) == (mha_isa_supported(isa) != 0),
                "a row for %s", mha_isa_name(isa));
    }
    bytes_free(&printed);
}
END_TEST

START_TEST(one_bit_anywhere) {
    struct bytes printed;
    run_check(NOTHING, 0, &printed);
    bytes_free(&printed);
    size_t calls = plan.calls;
    for (enum spoil how = ONE_BIT_OF_OUTPUT; how <= NOT_WRITTEN; how++) {
        for (size_t k = 0; k < 3 && how != NAN_PAYLOADS; k++) {
            /* Not the last calls, which may return no weights. */
            size_t at = k * (calls - calls / 10) / 2;
            begin_case("spoiled in way %d from call %zu of %zu on", (int)how, at, calls);
            if (skip_case()) {
                continue;
            }
            bool good = run_check(how, at, &printed);
            require(plan.spoiled == 1, "%s: nothing was", case_name());
            require(!good, "%s: not found", case_name());
            const char *message = failure_message();
            require(strstr(message, " differs (") != NULL &&
                        strstr(message, ", scalar has ") != NULL,
                    "%s: %s", case_name(), message);
            require(how != ONE_BIT_OF_ATTENTION || strstr(message, "attention[") != NULL, "%s: %s",
                    case_name(), message);
            require(strstr((char *)printed.data, "\nFAILED: ") != NULL, "%s: no verdict",
                    case_name());
            bytes_free(&printed);
        }
    }
}
END_TEST

/* NaN payloads and signs are outside the contract. */
START_TEST(any_nan_equals_any_other) {
    struct bytes printed;
    require(run_check(NAN_PAYLOADS, 0, &printed), "%s", failure_message());
    ck_assert_uint_gt(plan.spoiled, 0);
    bytes_free(&printed);
}
END_TEST

START_TEST(an_error_of_the_library) {
    struct bytes printed;
    ck_assert(!run_check(ERROR, 20, &printed));
    ck_assert_str_eq((char *)printed.data, "");
    require(strcmp(failure_message(), mha_error_message()) == 0 && failure_message()[0] != '\0',
            "%s", failure_message());
    bytes_free(&printed);
}
END_TEST

/* ---- The program -------------------------------------------------------------------------- */

/* The word after `label`. */
static void word_after(const char *text, const char *label, char *out, size_t capacity) {
    const char *at = strstr(text, label);
    require(at != NULL, "no '%s' in: %s", label, text);
    at += strlen(label);
    snprintf(out, capacity, "%.*s", (int)strcspn(at, " \n"), at);
}

/* docs/boards.md shows the output of `mha check --quick` on a good board, last. */
static void check_documented(const char *digest) {
    struct bytes page = read_bytes("../../docs/boards.md");
    ck_assert_ptr_nonnull(page.data);
    const char *quick = strstr((char *)page.data, "\nand of `mha check --quick`");
    ck_assert_ptr_nonnull(quick);
    char shown[32];
    word_after(quick, "digest of the scalar results: ", shown, sizeof shown);
    ck_assert_str_eq(digest, shown);
    bytes_free(&page);
}

START_TEST(program) {
    char first[32], other[32];
    setenv("MHA_ISA", "mmx", 1); /* --isa overrides it */
    struct outcome outcome = run_tool("check", "--quick", "--isa", "scalar", NULL);
    require(outcome.status == 0 && outcome.err[0] == '\0', "%s%s", outcome.out, outcome.err);
    ck_assert_ptr_nonnull(strstr(outcome.out, "scalar alone was checked, against itself"));
    word_after(outcome.out, "digest of the scalar results: ", first, sizeof first);
    check_documented(first);
    ck_assert_ptr_nonnull(strstr(outcome.out, " (known of this version)\nscalar alone"));
    outcome = run_tool("check", "--quick", "--seed", "2", "--isa=scalar", NULL);
    require(outcome.status == 0, "%s", outcome.err);
    word_after(outcome.out, "digest of the scalar results: ", other, sizeof other);
    ck_assert_str_ne(first, other);
}
END_TEST

START_TEST(info) {
    static const struct {
        const char *isa; /* $MHA_ISA */
        const char *text, *json, *err;
    } cases[] = {
        {"", " (the best that this machine supports)\n", "\"chosen_by\": \"default\"}\n", ""},
        {"scalar", "\nchosen     scalar ($MHA_ISA asks for it)\n",
         "\"chosen\": \"scalar\", \"chosen_by\": \"MHA_ISA\"}\n", ""},
        {"mmx", "", "", "mha: MHA_ISA: unknown ISA \"mmx\""},
    };
    char line[96];
    snprintf(line, sizeof line, "version    %s\ncpu        ", mha_version());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool good = cases[i].err[0] == '\0';
        begin_case("MHA_ISA=%s", cases[i].isa);
        setenv("MHA_ISA", cases[i].isa, 1);
        for (int json = 0; json < 2; json++) {
            struct outcome outcome = run_tool("info", json ? "--json" : NULL, NULL);
            const char *start = json ? "{\"version\": \"" : line;
            require(outcome.status == (good ? 0 : 1) &&
                        strstr(outcome.out, json ? cases[i].json : cases[i].text) != NULL &&
                        strncmp(outcome.out, start, good ? strlen(start) : 0) == 0 &&
                        strncmp(outcome.err, cases[i].err, strlen(cases[i].err)) == 0 &&
                        good == (outcome.err[0] == '\0') && good == (outcome.out[0] != '\0'),
                    "%s: %d %s%s", case_name(), outcome.status, outcome.out, outcome.err);
        }
    }
}
END_TEST

START_TEST(help) {
    static const char *const commands[] = {"run", "check", "info"};
    struct outcome outcome = run_tool("--help", NULL);
    require(outcome.status == 0 && strstr(outcome.out, "mha check") != NULL, "%s", outcome.err);
    for (size_t i = 0; i < 3; i++) {
        char start[32];
        snprintf(start, sizeof start, "mha %s ", commands[i]);
        outcome = run_tool(commands[i], "--help", NULL);
        require(outcome.status == 0 && strncmp(outcome.out, start, strlen(start)) == 0, "%s",
                outcome.out);
    }
    outcome = run_tool("run", "--help", NULL);
    ck_assert_ptr_nonnull(strstr(outcome.out, "  --threads N          must be 1"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-check");
    TCase *tcase = tcase_create("check");
    require_tool();
    tcase_set_timeout(tcase, 1800);
    tcase_add_checked_fixture(tcase, scratch_setup, scratch_teardown);
    tcase_add_test(tcase, nothing_wrong);
    tcase_add_test(tcase, one_bit_anywhere);
    tcase_add_test(tcase, any_nan_equals_any_other);
    tcase_add_test(tcase, an_error_of_the_library);
    tcase_add_test(tcase, program);
    tcase_add_test(tcase, info);
    tcase_add_test(tcase, help);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
