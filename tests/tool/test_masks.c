/* SPDX-License-Identifier: MIT
 *
 * mha run with masks, lengths and slopes from files, of every type and every shape that
 * broadcasts, against the library with the same masks spelled out.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "run_fixture.h"

static const struct {
    const char *text;
    size_t rank;
    size_t dim[4];
} mask_shapes[] = {
    {"()", 0, {0}},
    {"(7,)", 1, {7}},
    {"(1,)", 1, {1}},
    {"(5, 7)", 2, {5, 7}},
    {"(1, 7)", 2, {1, 7}},
    {"(5, 1)", 2, {5, 1}},
    {"(3, 5, 7)", 3, {3, 5, 7}},
    {"(3, 1, 7)", 3, {3, 1, 7}},
    {"(2, 1, 1, 7)", 4, {2, 1, 1, 7}},
    {"(2, 1, 5, 7)", 4, {2, 1, 5, 7}},
    {"(1, 3, 1, 1)", 4, {1, 3, 1, 1}},
    {"(2, 3, 5, 7)", 4, {2, 3, 5, 7}},
    {"(2, 3, 5, 1)", 4, {2, 3, 5, 1}},
};

/* Element of a mask at (b, h, i, j), by NumPy's rule for broadcasting. */
static size_t broadcast_index(size_t shape, const size_t at[4]) {
    size_t index = 0, rank = mask_shapes[shape].rank;
    for (size_t i = 0; i < rank; i++) {
        size_t dim = mask_shapes[shape].dim[i];
        index = index * dim + (dim == 1 ? 0 : at[4 - rank + i]);
    }
    return index;
}

/* A mask's file, and the same mask dense for the library. */
static void make_mask(const char *name, size_t shape, const char *type, struct generator *g,
                      uint8_t *keep, float *add) {
    size_t count = 1;
    for (size_t i = 0; i < mask_shapes[shape].rank; i++) {
        count *= mask_shapes[shape].dim[i];
    }
    struct bytes bytes = {0};
    put_npy_type(&bytes, type, mask_shapes[shape].text);
    float values[N_ATTENTION];
    for (size_t i = 0; i < count; i++) {
        bool masked = next_below(g, 4) == 0;
        if (strchr(type, 'f') != NULL) {
            /* Exact in binary16, too. */
            values[i] = masked ? -INFINITY : (float)(int)next_below(g, 64) / 16.0f - 2.0f;
            double wide = (double)values[i];
            uint64_t bits;
            uint32_t narrow;
            memcpy(&bits, &wide, sizeof bits);
            memcpy(&narrow, &values[i], sizeof narrow);
            bool half = type[2] == '2', single = type[2] == '4';
            bits = half ? (masked ? 0xfc00 : half_bits(values[i])) : single ? narrow : bits;
            put_number(&bytes, bits, (size_t)(type[2] - '0'), type[0] == '>');
        } else {
            values[i] = masked ? 0 : strcmp(type, "|b1") == 0 ? 1 : (float)(1 + next_below(g, 255));
            put_number(&bytes, (uint64_t)values[i], 1, false);
        }
    }
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
    for (size_t i = 0; i < N_ATTENTION; i++) {
        const size_t at[4] = {i / (HEADS * Q_LEN * KV_LEN), i / (Q_LEN * KV_LEN) % HEADS,
                              i / KV_LEN % Q_LEN, i % KV_LEN};
        float v = values[broadcast_index(shape, at)];
        if (keep != NULL) {
            keep[i] = v != 0;
        } else {
            add[i] = v;
        }
    }
}

START_TEST(masks_broadcast) {
    static const char *const types[] = {"|b1", "|u1", "<f4", ">f4", "<f8", ">f8", "<f2"};
    const char *more[] = {"--mask", "@m", NULL};
    uint8_t keep[N_ATTENTION];
    float add[N_ATTENTION];
    for (size_t s = 0; s < sizeof mask_shapes / sizeof mask_shapes[0]; s++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            struct generator g = begin_case("mask %s of %s", mask_shapes[s].text, types[t]);
            bool adds = strchr(types[t], 'f') != NULL;
            if (skip_case()) {
                continue;
            }
            make_mask("m", s, types[t], &g, adds ? NULL : keep, add);
            const mha_mask keeping = {.keep = keep, DENSE(keep)};
            const mha_mask adding = {.bias = add, DENSE(bias)};
            expect_run(more, adds ? &adding : &keeping, 0, MHA_MASKED_ROWS_ZERO);
        }
    }
}
END_TEST

START_TEST(all_masks_at_once) {
    static const char *const more[] = {"--mask",       "@m1", "--mask",  "@m2", "--causal",
                                       "--kv-lengths", "@l",  "--alibi", "@s",  NULL};
    uint8_t keep[N_ATTENTION];
    float add[N_ATTENTION];
    struct generator g = begin_case("all masks");
    make_mask("m1", 9, "<f4", &g, NULL, add);
    make_mask("m2", 3, "|b1", &g, keep, NULL);
    static const size_t lengths[2] = {6, 3};
    static const float slopes[3] = {0.5f, -0.25f, 0};
    struct bytes bytes = {0};
    put_npy_header(&bytes, 2, "{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }");
    put_number(&bytes, 6, 4, true);
    put_number(&bytes, 3, 4, true);
    write_bytes("l", &bytes, bytes.size);
    bytes_free(&bytes);
    write_npy_floats("s", "(3,)", slopes, 3);
    const mha_mask mask = {.keep = keep,
                           DENSE(keep),
                           .bias = add,
                           DENSE(bias),
                           .kv_lengths = lengths,
                           .alibi_slopes = slopes,
                           .causal = MHA_CAUSAL_BOTTOM_RIGHT};
    expect_run(more, &mask, 0, MHA_MASKED_ROWS_ZERO);
}
END_TEST

START_TEST(lengths_of_every_integer) {
    static const struct {
        const char *type;
        size_t size;
        bool big;
    } types[] = {{"|u1", 1, false}, {"|i1", 1, false}, {"<u2", 2, false}, {">i2", 2, true},
                 {"<u4", 4, false}, {"<i4", 4, false}, {">u8", 8, true},  {"<i8", 8, false}};
    static const size_t lengths[2] = {0, 7};
    static const char *const more[] = {"--kv-lengths", "@l", "--masked-rows=uniform", NULL};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct bytes bytes = {0};
        char dict[200];
        begin_case("lengths of %s", types[i].type);
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': True, 'shape': (2,)}",
                 types[i].type);
        put_npy_header(&bytes, 1, dict);
        put_number(&bytes, 0, types[i].size, types[i].big);
        put_number(&bytes, 7, types[i].size, types[i].big);
        write_bytes("l", &bytes, bytes.size);
        bytes_free(&bytes);
        expect_run(more, &(mha_mask){.kv_lengths = lengths}, 0, MHA_MASKED_ROWS_UNIFORM);
    }
}
END_TEST

/* The paper's slopes for 3 heads: those of 2 heads, 2^-4 and 2^-8, and the first of 4
 * heads, 2^-2. */
START_TEST(alibi_auto) {
    static const char *const more[] = {"--alibi", "auto", NULL};
    static const float slopes[3] = {0x1p-4f, 0x1p-8f, 0x1p-2f};
    begin_case("alibi auto");
    expect_run(more, &(mha_mask){.alibi_slopes = slopes}, 0, MHA_MASKED_ROWS_ZERO);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool-masks");
    TCase *tcase = tcase_create("masks");
    require_tool();
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, run_setup, scratch_teardown);
    tcase_add_test(tcase, masks_broadcast);
    tcase_add_test(tcase, all_masks_at_once);
    tcase_add_test(tcase, lengths_of_every_integer);
    tcase_add_test(tcase, alibi_auto);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
