/* SPDX-License-Identifier: MIT
 *
 * The same mask spelled another way changes no bit of the result: ranges of keys as a keep
 * mask, and the end of the keys by every means there is.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>

static const struct place at_end = {AT_END, 0};

/* Whether nonzero is what `keep` at this place says about a key. */
static bool kept(const mha_mask *m, const uint8_t *keep) {
    return !keep || (*keep != 0) == !m->nonzero_masks;
}

/* Whether distance is within a window, 0 being none; to the other side it always is. */
static bool within(int64_t distance, size_t window) {
    return window == 0 || distance <= 0 || (uint64_t)distance < window;
}

/* All of a mask that says which keys are attended to as one full keep array. */
static uint8_t *spell_out(const mha_attention_args *a, const mha_mask *m) {
    uint8_t *keep = malloc(a->batch * a->n_heads * a->q_len * a->kv_len + 1), *to = keep;
    ck_assert_ptr_nonnull(keep);
    for (size_t b = 0; b < a->batch; b++) {
        size_t length = m->kv_lengths ? m->kv_lengths[b] : a->kv_len;
        size_t queries = m->q_lengths ? m->q_lengths[b] : a->q_len;
        int64_t first = m->query_offset + (m->query_offsets ? m->query_offsets[b] : 0);
        if (m->causal == MHA_CAUSAL_BOTTOM_RIGHT) {
            first += (int64_t)length - (int64_t)queries;
        }
        for (size_t h = 0; h < a->n_heads; h++) {
            for (size_t i = 0; i < a->q_len; i++) {
                int64_t position = (int64_t)i + first;
                const uint8_t *row = m->keep
                                         ? m->keep + b * m->keep_batch_stride +
                                               h * m->keep_head_stride + i * m->keep_query_stride
                                         : NULL;
                const uint8_t *keys =
                    m->key_keep ? m->key_keep + b * m->key_keep_batch_stride : NULL;
                for (size_t j = 0; j < a->kv_len; j++) {
                    int64_t back = position - (int64_t)j;
                    *to++ = i < queries && j < length && kept(m, row ? row + j : NULL) &&
                            kept(m, keys ? keys + j : NULL) && (!m->causal || back >= 0) &&
                            within(back, m->window_left) && within(-back, m->window_right);
                }
            }
        }
    }
    return keep;
}

/* The library skips blocks and panels outside a range, but computes them if the same keys are
 * masked one by one. */
START_TEST(masks_spelled_out) {
    struct shape_case shape = view_cases[_i];
    if (shape.result >= MHA_RESULT_SCORES) {
        return; /* of masked keys too */
    }
    shape.masked_rows = MHA_MASKED_ROWS_ZERO; /* uniform rows average what is within a length */
    mha_context *context = new_context();
    for (size_t m = (size_t)_i % mask_step(); m < n_mask_cases; m += mask_step()) {
        const struct mask_case *mask = &mask_cases[m];
        if (mask->slope != 0.0f || (mask->bias && mask->lengths)) {
            continue; /* positions matter to it, or the bias ends with the lengths */
        }
        struct generator g = begin_case("view \"%s\", mask \"%s\"", shape.name, mask->name);
        struct attention_problem p;
        make_attention(&g, &shape, mask, at_end, &p);
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *expected = gather_output(&p);
        float *attention = copy_floats(p.args.attention, p.attentions);

        uint8_t *keep = spell_out(&p.args, &p.mask);
        mha_mask spelled = {.keep = keep,
                            .bias = p.mask.bias,
                            .bias_batch_stride = p.mask.bias_batch_stride,
                            .bias_head_stride = p.mask.bias_head_stride,
                            .bias_query_stride = p.mask.bias_query_stride,
                            .q_lengths = p.mask.q_lengths};
        spelled.keep_query_stride = shape.kv_len;
        spelled.keep_head_stride = shape.q_len * spelled.keep_query_stride;
        spelled.keep_batch_stride = shape.n_heads * spelled.keep_head_stride;
        p.args.mask = &spelled;
        ck_assert_succeeds(mha_attention(context, &p.args));
        float *actual = gather_output(&p);
        size_t rows = shape.batch * shape.n_heads * shape.q_len;
        size_t width = shape.v_head_dim ? shape.v_head_dim : shape.head_dim;
        ck_assert_same("output", expected, width, actual, width, rows, width);
        ck_assert_same("attention", attention, shape.kv_len, p.args.attention, shape.kv_len,
                       p.attentions / shape.kv_len, shape.kv_len);
        free(expected);
        free(actual);
        free(attention);
        free(keep);
        guarded_free_all();
    }
    mha_context_destroy(&context);
}
END_TEST

/* kv_len itself, a length and a keep mask, each of which ends the keys; with a bias, a bias of -inf
 * too. */
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
        bias[j] = j < end ? next_float(&g) : -INFINITY;
    }
    const mha_mask masks[] = {
        {.kv_lengths = &end},
        {.keep = keep},
        {.bias = bias, .kv_lengths = &end},
        {.bias = bias},
        {.causal = MHA_CAUSAL_TOP_LEFT, .query_offset = (int64_t)end - 1},
    };
    mha_context *context = new_context();
    float expected[QUERIES * DIM];
    mha_attention_args args = p.args;
    args.kv_len = end;
    args.output = expected;
    ck_assert_succeeds(mha_attention(context, &args));
    float biased[QUERIES * DIM];
    args.mask = &(mha_mask){.bias = bias};
    args.output = biased;
    ck_assert_succeeds(mha_attention(context, &args));
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        args = p.args;
        args.mask = &masks[i];
        /* Causality lets each query see one key more than the last: ask for the first alone. */
        args.q_len = masks[i].causal ? 1 : QUERIES;
        ck_assert_succeeds(mha_attention(context, &args));
        ck_assert_same("output", masks[i].bias ? biased : expected, DIM, p.args.output, DIM,
                       args.q_len, DIM);
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
