/* SPDX-License-Identifier: MIT
 *
 * What the program does with wrong command lines and wrong files: one line in words on
 * standard error, nothing on standard output, exit status 1 or 2, and no file left.
 * test_output.c has what the system refuses.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"

/* ---- Files to be wrong about ------------------------------------------------------------ */

/* A layer of d_model 6. */
static void write_layer(const char *name, size_t k_dim, size_t v_dim) {
    static const char *const names[4] = {"W_q", "W_k", "W_v", "W_o"};
    const size_t columns[4] = {6, k_dim, v_dim, 6};
    const float zeros[72] = {0};
    struct tensors tensors = {0};
    for (size_t i = 0; i < 4; i++) {
        char shape[32];
        snprintf(shape, sizeof shape, "[6,%zu]", columns[i]);
        add_tensor(&tensors, names[i], "F32", shape, zeros, 6 * columns[i]);
    }
    write_tensors(name, &tensors);
}

/* Two numbers of 4 bytes. */
static void write_pair(const char *name, const char *type, uint64_t first, uint64_t second) {
    struct bytes bytes = {0};
    put_npy_type(&bytes, type, "(2,)");
    put_number(&bytes, first, 4, false);
    put_number(&bytes, second, 4, false);
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
}

static void setup(void) {
    scratch_setup();
    write_layer("w", 6, 6);
    write_npy_zeros("q", "<f4", "(2, 3, 6)", 144);
    write_npy_zeros("k", "<f4", "(2, 4, 6)", 192);
    write_layer("w_cross", 5, 4);
    write_layer("w_v", 6, 4);
    write_safetensors("w_nl", "{\"a\\nb\":" F32_AT(0, 4) "}", 4);
    write_npy_zeros("q_2d", "<f4", "(3, 6)", 72);
    write_npy_zeros("q_1d", "<f4", "(6,)", 24);
    write_npy_zeros("q_4d", "<f4", "(1, 2, 3, 6)", 144);
    write_npy_zeros("q_wide", "<f4", "(2, 3, 7)", 168);
    write_npy_zeros("q_int", "<i4", "(2, 3, 6)", 144);
    write_npy_zeros("q_cut", "<f4", "(2, 3, 6)", 143);
    write_npy_zeros("k_batch", "<f4", "(3, 3, 6)", 216);
    write_npy_zeros("k_5", "<f4", "(2, 4, 5)", 160);
    write_npy_zeros("m", "|b1", "(3, 3)", 9);
    write_npy_zeros("m_f", "<f4", "(3, 3)", 36);
    write_npy_zeros("m_i8", "|i1", "(3, 3)", 9);
    write_npy_zeros("m_shape", "|b1", "(2, 3)", 6);
    write_npy_zeros("m_5d", "|b1", "(1, 1, 1, 3, 3)", 9);
    write_npy_zeros("m_0", "|b1", "(0, 3)", 0);
    write_npy_zeros("l_3", "<i8", "(3,)", 24);
    write_npy_zeros("l_2d", "<i8", "(1, 2)", 16);
    write_npy_zeros("l_float", "<f4", "(2,)", 8);
    write_npy_zeros("l_bool", "|b1", "(2,)", 2);
    write_npy_zeros("s_3", "<f4", "(3,)", 12);
    write_npy_zeros("s_int", "<i4", "(2,)", 8);
    write_pair("l_minus", "<i4", 3, (uint64_t)-1);
    write_pair("l_4", "<i4", 3, 4);
    write_pair("s_inf", "<f4", 0x7f800000, 0);
}

/* ---- Command lines ------------------------------------------------------------------------ */

#define RUN_OF(weights, heads, query, output)                                                      \
    "run", "--weights", weights, "--heads", heads, "--query", query, "--output", output
#define RUN RUN_OF("@w", "2", "@q", "@y")

static const struct {
    int status;
    const char *message;
    const char *arguments[20];
} cases[] = {
    {2, "no command given", {NULL}},
    {2, "unknown command 'walk'", {"walk"}},
    /* Options. */
    {2, "--weights is needed", {"run"}},
    {2, "--heads is needed", {"run", "--weights", "@w", "--query", "@q", "--output", "@y"}},
    {2, "--query is needed", {"run", "--weights", "@w", "--heads", "2", "--output", "@y"}},
    {2, "--output is needed", {"run", "--weights", "@w", "--heads", "2", "--query", "@q"}},
    {2, "unknown option '--wieghts'", {"run", "--wieghts", "@w"}},
    {2, "unknown option '--weight'", {"run", "--weight=w"}},
    {2, "unexpected argument 'extra'", {RUN, "extra"}},
    {2, "unexpected argument '-q'", {"run", "-q", "@q"}},
    {2, "--heads is given twice", {RUN, "--heads", "2"}},
    {2, "--causal is given twice", {RUN, "--causal", "--causal"}},
    {2, "--mask is given more than twice", {RUN, "--mask=a", "--mask=b", "--mask=c"}},
    {2, "--key needs a value", {RUN, "--key"}},
    {2, "--key needs a value", {RUN, "--key", "--causal"}},
    {2, "--key needs a value", {RUN, "--key", ""}},
    {2, "--help takes no value", {"run", "--help=me"}},
    {2, "--causal 'both' is neither", {RUN, "--causal=both"}},
    {2, "--causal '' is neither", {RUN, "--causal="}},
    {2, "unexpected argument 'top-left'", {RUN, "--causal", "top-left"}},
    {2, "--masked-rows 'nan' is neither", {RUN, "--masked-rows", "nan"}},
    {2, "--isa: ", {RUN, "--isa", "sse2"}},
    {2, "--tolerance needs --expect", {RUN, "--tolerance", "1"}},
    {2, "--tolerance '-1' is negative", {RUN, "--expect", "@q", "--tolerance", "-1"}},
    /* Numbers. */
    {2, "--heads '0' is not a whole number from 1", {RUN_OF("@w", "0", "@q", "@y")}},
    {2, "--kv-heads '0' is not", {RUN, "--kv-heads", "0"}},
    {2, "--kv-heads '-1' is not", {RUN, "--kv-heads", "-1"}},
    {2, "--kv-heads '1.0' is not", {RUN, "--kv-heads", "1.0"}},
    {2, "--kv-heads '1x' is not", {RUN, "--kv-heads", "1x"}},
    {2, "--kv-heads '18446744073709551616' is not", {RUN, "--kv-heads", "18446744073709551616"}},
    {2, "--window '0' is not a whole number from 1", {RUN, "--window", "0"}},
    {2, "--window-left '0' is not", {RUN, "--window-left", "0"}},
    {2, "--threads '0' is not", {RUN, "--threads", "0"}},
    {2, "--query-offset '1.5' is not", {RUN, "--query-offset", "1.5"}},
    {2, "--query-offset '-' is not", {RUN, "--query-offset", "-"}},
    {2,
     "--query-offset '9223372036854775808' is not",
     {RUN, "--query-offset", "9223372036854775808"}},
    {2, "--scale 'large' is not a finite number", {RUN, "--scale", "large"}},
    {2, "--scale 'nan' is not a finite number", {RUN, "--scale", "nan"}},
    {2, "--scale 'inf' is not a finite number", {RUN, "--scale", "inf"}},
    {2, "--scale '1e999' is not a finite number", {RUN, "--scale", "1e999"}},
    {2, "--scale '1e99' is inf as a float", {RUN, "--scale", "1e99"}},
    {2, "--scale '0' is 0 as a float", {RUN, "--scale", "0"}},
    {2, "--scale '1e-99' is 0 as a float", {RUN, "--scale", "1e-99"}},
    /* What the library refuses. */
    {1, "threads (2)", {RUN, "--threads", "2"}},
    {1, "6 rows", {RUN_OF("@w", "4", "@q", "@y")}},
    {1, "alibi", {RUN, "--alibi", "@s_inf"}},
    /* Weights; test_safetensors.c and test_weights.c have more of them. */
    {1, "none: No such file", {RUN_OF("@none", "2", "@q", "@y")}},
    {1, "q: not a safetensors file", {RUN_OF("@q", "2", "@q", "@y")}},
    {1, "not a regular file", {RUN_OF("/dev/null", "2", "@q", "@y")}},
    {1, "no attention layer found at --prefix 'x'", {RUN, "--prefix", "x"}},
    {1, "is not 1 key/value heads", {RUN, "--kv-heads", "1"}},
    /* Inputs. */
    {1, "none: No such file", {RUN_OF("@w", "2", "@none", "@y")}},
    {1, "w: not a .npy file", {RUN_OF("@w", "2", "@w", "@y")}},
    {1, "q_cut: truncated", {RUN_OF("@w", "2", "@q_cut", "@y")}},
    {1, "q_1d: shape (6,) is neither", {RUN_OF("@w", "2", "@q_1d", "@y")}},
    {1, "q_4d: shape (1, 2, 3, 6) is neither", {RUN_OF("@w", "2", "@q_4d", "@y")}},
    {1,
     "q_wide: width 7 of shape (2, 3, 7) is not the layer's d_model 6",
     {RUN_OF("@w", "2", "@q_wide", "@y")}},
    {1,
     "q_int: int32 values, where float16, float32 or float64 are needed",
     {RUN_OF("@w", "2", "@q_int", "@y")}},
    {1, "k_batch: batch 3 is not the query's 2", {RUN, "--key", "@k_batch"}},
    {1, "k_5: width 5 of shape (2, 4, 5) is not the layer's k_dim 6", {RUN, "--key", "@k_5"}},
    {1, "k: batch 2 and length 4 are not the query's 2 and 3", {RUN, "--value", "@k"}},
    {1, "q: batch 2 and length 3 are not the key's 2 and 4", {RUN, "--key", "@k", "--value", "@q"}},
    {1,
     "--key is needed: the layer's k_dim 5 is not its d_model 6",
     {RUN_OF("@w_cross", "2", "@q", "@y")}},
    {1,
     "--value is needed: the layer's v_dim 4 is not its k_dim 6",
     {RUN_OF("@w_v", "2", "@q", "@y")}},
    /* Masks, lengths, slopes. */
    {1, "m_i8: int8 values make no mask", {RUN, "--mask", "@m_i8"}},
    {1,
     "m_shape: shape (2, 3) does not broadcast to (batch, heads, q_len, kv_len) = (2, 2, 3, 3)",
     {RUN, "--mask", "@m_shape"}},
    {1, "m_5d: shape (1, 1, 1, 3, 3) does not broadcast", {RUN, "--mask", "@m_5d"}},
    {1, "m_0: shape (0, 3) does not broadcast", {RUN, "--mask", "@m_0"}},
    {1, "m: a second mask that keeps", {RUN, "--mask", "@m", "--mask", "@m"}},
    {1, "m_f: a second mask that is added", {RUN, "--mask", "@m_f", "--mask", "@m_f"}},
    {1, "l_3: shape (3,) is not (batch,) = (2,)", {RUN, "--kv-lengths", "@l_3"}},
    {1, "l_2d: shape (1, 2) is not (batch,) = (2,)", {RUN, "--kv-lengths", "@l_2d"}},
    {1, "l_float: float32 values, where integers are needed", {RUN, "--kv-lengths", "@l_float"}},
    {1, "l_bool: bool values, where integers are needed", {RUN, "--kv-lengths", "@l_bool"}},
    {1, "l_minus: length 1 is negative (-1)", {RUN, "--kv-lengths", "@l_minus"}},
    {1, "l_4: length 1 is 4, beyond the 3 keys there are", {RUN, "--kv-lengths", "@l_4"}},
    {1, "s_3: shape (3,) is not (heads,) = (2,)", {RUN, "--alibi", "@s_3"}},
    {1, "s_int: int32 values", {RUN, "--alibi", "@s_int"}},
    /* Expectations. */
    {1, "q_wide: shape (2, 3, 7) is not the output's (2, 3, 6)", {RUN, "--expect", "@q_wide"}},
    {1, "q_2d: shape (3, 6) is not the output's (2, 3, 6)", {RUN, "--expect", "@q_2d"}},
    {1, "q_int: int32 values, where floats are needed", {RUN, "--expect", "@q_int"}},
    {1, "none: No such file", {RUN, "--expect", "@none"}},
    /* Names with control characters: the message stays one line. */
    {1, "no?ne?[31m: No such file", {RUN_OF("@no\nne\x1b[31m", "2", "@q", "@y")}},
    {1, "the file has: a?b", {RUN_OF("@w_nl", "2", "@q", "@y")}},
    /* Places to write to. */
    {1, "none/y: No such file", {RUN_OF("@w", "2", "@q", "@none/y")}},
    {1, "q/y: Not a directory", {RUN_OF("@w", "2", "@q", "@q/y")}},
    {1, "Is a directory", {RUN_OF("@w", "2", "@q", "@")}},
    {1, "none/a: No such file", {RUN, "--attention", "@none/a"}},
    {1, "asked to hold two outputs", {RUN, "--attention", "@y"}},
    /* The other commands. */
    {2, "unknown option '--jsn'", {"info", "--jsn"}},
    {2, "unexpected argument 'json'", {"info", "json"}},
    {2, "--json takes no value", {"info", "--json=1"}},
    {2, "unknown option '--fast'", {"check", "--fast"}},
    {2, "--seed 'x' is not", {"check", "--seed", "x"}},
    {2, "--isa: ", {"check", "--isa", "mmx"}},
};

START_TEST(wrong_arguments) {
    size_t files = scratch_count();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *arguments[24] = {NULL};
        for (size_t n = 0; cases[i].arguments[n] != NULL; n++) {
            const char *argument = cases[i].arguments[n];
            arguments[n] = argument[0] == '@' ? in_scratch(argument + 1) : argument;
        }
        begin_case("arguments, case %zu (%s)", i, cases[i].message);
        if (skip_case()) {
            continue;
        }
        expect_error(run_tool_list(arguments), cases[i].status, cases[i].message);
        require(scratch_count() == files, "%s: a file was left", case_name());
    }
}
END_TEST

/* An ISA that this machine lacks. */
START_TEST(unsupported_isa) {
    for (mha_isa isa = MHA_ISA_SCALAR; mha_isa_name(isa) != NULL; isa++) {
        if (mha_isa_supported(isa)) {
            continue;
        }
        const char *name = mha_isa_name(isa);
        begin_case("ISA %s", name);
        expect_error(run_tool("run", "--weights", in_scratch("w"), "--heads", "2", "--query",
                              in_scratch("q"), "--output", in_scratch("y"), "--isa", name, NULL),
                     1, "not supported by this");
        expect_error(run_tool("check", "--quick", "--isa", name, NULL), 1, "not supported by this");
        setenv("MHA_ISA", name, 1);
        expect_error(run_tool("info", NULL), 1, "MHA_ISA: ");
        unsetenv("MHA_ISA");
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-errors");
    TCase *tcase = tcase_create("errors");
    require_tool();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, setup, scratch_teardown);
    tcase_add_test(tcase, wrong_arguments);
    tcase_add_test(tcase, unsupported_isa);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
