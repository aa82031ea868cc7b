/* SPDX-License-Identifier: MIT
 *
 * The same mask spelled another way changes no bit of the result: ranges of keys as a keep
 * mask, and the end of the keys by every means there is.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

static const struct place at_end = {AT_END, 0};

/* Lengths, causality and window of a mask as one full keep array. */
static uint8_t *spell_out(const mha_attention_args *a, const struct mask_case *c) {
    const mha_mask *m = a->mask;
    uint8_t *keep = malloc(a->batch * a->n_heads * a->q_len * a->kv_len + 1), *to = keep;
    ck_assert_ptr_nonnull(keep);
    for (size_t b = 0; b < a->batch; b++) {
        int64_t length = (int64_t)(m->kv_lengths ? m->kv_lengths[b] : a->kv_len);
        int64_t shift = c->causal == MHA_CAUSAL_BOTTOM_RIGHT ? length - (int64_t)a->q_len : 0;
        for (size_t h = 0; h < a->n_heads; h++) {
            for (size_t i = 0; i < a->q_len; i++) {
                int64_t position = (int64_t)i + c->offset + shift;
                for (int64_t j = 0; j < (int64_t)a->kv_len; j++) {
                    uint64_t distance = (uint64_t)(j < position ? position - j : j - position);
                    bool kept =
                        !m->keep || m->keep[b * m->keep_batch_stride + h * m->keep_head_stride +
                                            i * m->keep_query_stride + (size_t)j];
                    *to++ = kept && j < length && (!c->causal || j <= position) &&
                            (c->window == 0 || distance < c->window);
                }
            }
        }
    }
    return keep;
}

/* The blocks and panels that a range lets the library skip are there to be computed when the
 * same keys are masked one by one. */
START_TEST(masks_spelled_out) {
    struct shape_case shape = view_cases[_i];
    shape.masked_rows = MHA_MASKED_ROWS_ZERO; /* uniform rows average what is within a length */
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        const struct mask_case *mask = &mask_cases[m];
        if (mask->slope != 0.0f) {
            continue; /* positions matter to it */
        }
        struct generator g = begin_case("view \"%s\", mask \"%s\"", shape.name, mask->name);
        struct attention_problem p;
        make_attention(&g, &shape, mask, at_end, &p);
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *expected = gather_output(&p);
        float *attention = copy_floats(p.args.attention, p.attentions);

        uint8_t *keep = spell_out(&p.args, mask);
        mha_mask spelled = p.mask;
        spelled.keep = keep;
        spelled.keep_query_stride = shape.kv_len;
        spelled.keep_head_stride = shape.q_len * spelled.keep_query_stride;
        spelled.keep_batch_stride = shape.n_heads * spelled.keep_head_stride;
        spelled.kv_lengths = NULL;
        spelled.causal = MHA_CAUSAL_NONE;
        spelled.window = 0;
        p.args.mask = &spelled;
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *actual = gather_output(&p);
        size_t rows = shape.batch * shape.n_heads * shape.q_len;
        size_t width = shape.v_head_dim ? shape.v_head_dim : shape.head_dim;
        ck_assert_same("output", expected, width, actual, width, rows, width);
        ck_assert_same("attention", attention, shape.kv_len, p.args.attention, shape.kv_len, rows,
                       shape.kv_len);
        free(expected);
        free(actual);
        free(attention);
        free(keep);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* kv_len itself, a length, a keep mask and a bias of -inf, each of which ends the keys. */
START_TEST(ends_of_keys) {
    static const size_t ends[] = {1,   15,  16,  17,  255,  256,  257,  511,
                                  512, 513, 527, 528, 1023, 1024, 1025, 1099};
    enum { MOST = 1100, QUERIES = 5, DIM = 6 };
    size_t end = ends[_i];
    struct generator g = begin_case("%zu keys", end);
    const struct shape_case shape = {"ends", 1, QUERIES, MOST, 0, 1, 0, DIM, .layouts = "...."};
    struct attention_problem p;
    make_attention(&g, &shape, &mask_cases[0], at_end, &p);
    p.args.attention = NULL;
    uint8_t keep[MOST];
    float bias[MOST];
    for (size_t j = 0; j < MOST; j++) {
        keep[j] = j < end;
        bias[j] = j < end ? 0.0f : -INFINITY;
    }
    const mha_mask masks[] = {
        {.kv_lengths = &end},
        {.keep = keep},
        {.bias = bias},
        {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = (int64_t)end - 1},
    };
    mha_context *context = new_context();
    float expected[QUERIES * DIM];
    mha_attention_args args = p.args;
    args.kv_len = end;
    args.output = expected;
    ck_assert_succeeds(mha_attention(context, &args));
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        args = p.args;
        args.mask = &masks[i];
        /* Causality lets each query see one key more than the last: ask for the first alone. */
        args.q_len = masks[i].causal ? 1 : QUERIES;
        ck_assert_succeeds(mha_attention(context, &args));
        ck_assert_same("output", expected, DIM, p.args.output, DIM, args.q_len, DIM);
    }
    mha_context_destroy(&context);
    guarded_free_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spelling");
    TCase *tests = tcase_create("spelling");
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, masks_spelled_out, 0, (int)n_view_cases);
    tcase_add_loop_test(tests, ends_of_keys, 0, 16);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
