/* SPDX-License-Identifier: MIT
 *
 * The tuning values of a table change no bit, whatever they are.
 */
#include "cases.h"
#include "context.h"

#include <stdlib.h>

static const struct place at_end = {AT_END, 0};

/* A table with values drawn at random, within what kernels.h allows. */
static struct mha_kernels tuned(struct generator *g, const struct mha_kernels *table) {
    struct mha_kernels kernels = *table;
    kernels.gemm_rows = 1 + next_below(g, table->gemm_rows);
    kernels.gemm_columns = MHA_PANEL * (1 + next_below(g, 9));
    kernels.tile_rows = MHA_PANEL * (1 + next_below(g, MHA_MAX_TILE_ROWS / MHA_PANEL));
    kernels.tile_depth = 1 + next_below(g, 700);
    return kernels;
}

static void try_forward(struct generator *g, mha_context *context, const struct shape_case *shape,
                        const struct mask_case *mask) {
    const struct mha_kernels *table = context->kernels;
    struct forward_problem p;
    make_forward(g, shape, mask, at_end, &p);
    mha_layer *layer = new_layer(&p);
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    float *output = copy_floats(p.args.output, p.outputs);
    float *attention = copy_floats(p.args.attention, p.attentions);
    struct mha_kernels kernels = tuned(g, table);
    context->kernels = &kernels;
    ck_assert_succeeds(mha_forward(context, layer, &p.args));
    context->kernels = table;
    ck_assert_same("output", output, 1, p.args.output, 1, p.outputs, 1);
    ck_assert_same("attention", attention, 1, p.args.attention, 1, p.attentions, 1);
    free(output);
    free(attention);
    mha_layer_destroy(&layer);
    guarded_free_all();
}

static void try_attention(struct generator *g, mha_context *context, const struct shape_case *shape,
                          const struct mask_case *mask) {
    const struct mha_kernels *table = context->kernels;
    struct attention_problem p;
    make_attention(g, shape, mask, at_end, &p);
    ck_assert_succeeds(mha_attention(context, &p.args));
    float *output = copy_floats(p.args.output, p.outputs);
    float *attention = copy_floats(p.args.attention, p.attentions);
    struct mha_kernels kernels = tuned(g, table);
    context->kernels = &kernels;
    ck_assert_succeeds(mha_attention(context, &p.args));
    context->kernels = table;
    ck_assert_same("output", output, 1, p.args.output, 1, p.outputs, 1);
    ck_assert_same("attention", attention, 1, p.args.attention, 1, p.attentions, 1);
    free(output);
    free(attention);
    guarded_free_all();
}

START_TEST(tuning_values) {
    const struct mask_case *mask = &mask_cases[_i];
    mha_context *context = new_context();
    for (size_t s = (size_t)_i % 3; s < n_layer_cases; s += 3 * mask_step()) {
        struct generator g =
            begin_case("layer \"%s\", mask \"%s\"", layer_cases[s].name, mask->name);
        try_forward(&g, context, &layer_cases[s], mask);
    }
    for (size_t s = (size_t)_i % 3; s < n_view_cases; s += 3 * mask_step()) {
        struct generator g = begin_case("view \"%s\", mask \"%s\"", view_cases[s].name, mask->name);
        try_attention(&g, context, &view_cases[s], mask);
    }
    mha_context_destroy(&context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tuning");
    TCase *tests = tcase_create("tuning");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, tuning_values, 0, (int)n_mask_cases);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
