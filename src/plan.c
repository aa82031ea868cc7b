/* SPDX-License-Identifier: MIT
 *
 * Plans, and the public functions that are about memory alone.
 */
#include "plan.h"

#include "checks.h"
#include "context.h"
#include "dispatch.h"
#include "error.h"
#include "fpenv.h"

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static struct mha_attend_sizes attend_sizes(size_t head_dim, size_t v_head_dim, size_t kv_len,
                                            const mha_result *result) {
    return (struct mha_attend_sizes){
        .head_dim = head_dim,
        .v_head_dim = v_head_dim,
        .kv_len = kv_len,
        .weights = result && *result <= MHA_RESULT_MEAN_WEIGHTS,
        .mean = result && *result == MHA_RESULT_MEAN_WEIGHTS,
    };
}

static bool place_forward(const struct mha_kernels *kernels, const struct mha_layer *layer,
                          size_t batch, size_t q_len, size_t kv_len, const mha_result *result,
                          struct mha_arena *arena, struct mha_forward_plan *p) {
    const mha_config *c = &layer->config;
    size_t head = mha_padded(c->head_dim), v_head = mha_padded(c->v_head_dim);
    size_t query, keys, values, concat, rows, staged;
    size_t deepest =
        larger(larger(c->d_model, c->n_heads * c->v_head_dim), larger(c->k_dim, c->v_dim));
    size_t widest =
        larger(larger(c->n_heads * head, c->n_kv_heads * v_head), layer->o.panels ? c->d_model : 0);
    p->kv_panels = mha_divide_up(kv_len, MHA_PANEL);
    if (!MHA_PRODUCT(&query, batch, c->n_heads, q_len, head) ||
        !MHA_PRODUCT(&keys, batch, c->n_kv_heads, p->kv_panels, c->head_dim, MHA_PANEL) ||
        !MHA_PRODUCT(&values, batch, c->n_kv_heads, kv_len, v_head) ||
        !MHA_PRODUCT(&concat, batch, q_len, c->n_heads, c->v_head_dim) ||
        !MHA_PRODUCT(&rows, kernels->tile_rows, deepest) ||
        !MHA_PRODUCT(&staged, kernels->tile_rows, widest)) {
        return false;
    }
    p->query = mha_arena_take(arena, query, sizeof(float));
    p->keys = mha_arena_take(arena, keys, sizeof(float));
    p->values = mha_arena_take(arena, values, sizeof(float));
    p->concat = mha_arena_take(arena, layer->o.panels ? concat : 0, sizeof(float));
    p->project.rows = mha_arena_take(arena, rows, sizeof(float));
    p->project.staged = mha_arena_take(arena, staged, sizeof(float));
    const struct mha_attend_sizes sizes = attend_sizes(0, c->v_head_dim, kv_len, result);
    mha_attend_place(arena, kernels, &sizes, &p->attend);
    return !arena->overflow;
}

mha_status mha_plan_forward(const struct mha_kernels *kernels, const struct mha_layer *layer,
                            size_t batch, size_t q_len, size_t kv_len, const mha_result *result,
                            char *base, struct mha_forward_plan *plan, size_t *size) {
    struct mha_arena arena = {.base = base};
    if (!place_forward(kernels, layer, batch, q_len, kv_len, result, &arena, plan)) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "the workspace for batch %zu, q_len %zu, kv_len %zu is larger than memory "
                        "can be",
                        batch, q_len, kv_len);
    }
    *size = arena.used;
    return MHA_OK;
}

static bool place_attention(const struct mha_kernels *kernels, const mha_attention_args *a,
                            const mha_result *result, struct mha_arena *arena,
                            struct mha_attention_plan *p) {
    size_t group = a->n_heads / a->n_kv_heads, rows, keys, values;
    const struct mha_attend_sizes sizes =
        attend_sizes(a->head_dim, a->v_head_dim, a->kv_len, result);
    size_t most = SIZE_MAX - MHA_PANEL;
    if (a->head_dim > most || a->v_head_dim > most || !MHA_PRODUCT(&rows, a->q_len, group)) {
        return false;
    }
    p->whole = rows > kernels->tile_rows;
    size_t length = p->whole ? a->kv_len : mha_min(a->kv_len, MHA_KEY_BLOCK);
    if (!MHA_PRODUCT(&keys, mha_divide_up(length, MHA_PANEL), MHA_PANEL, a->head_dim) ||
        !MHA_PRODUCT(&values, length, mha_padded(a->v_head_dim))) {
        return false;
    }
    p->keys = mha_arena_take(arena, keys, sizeof(float));
    p->values = mha_arena_take(arena, values, sizeof(float));
    mha_attend_place(arena, kernels, &sizes, &p->attend);
    return !arena->overflow;
}

mha_status mha_plan_attention(const struct mha_kernels *kernels, const mha_attention_args *args,
                              const mha_result *result, char *base, struct mha_attention_plan *plan,
                              size_t *size) {
    struct mha_arena arena = {.base = base};
    if (!place_attention(kernels, args, result, &arena, plan)) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "the workspace for kv_len %zu, head_dim %zu, v_head_dim %zu is larger "
                        "than memory can be",
                        args->kv_len, args->head_dim, args->v_head_dim);
    }
    *size = arena.used;
    return MHA_OK;
}

/* ---- Public: memory ------------------------------------------------------ */

static const mha_result most = MHA_RESULT_MEAN_WEIGHTS;

static mha_status size_forward(const struct mha_kernels *kernels, const mha_layer *layer,
                               size_t batch, size_t q_len, size_t kv_len, size_t *size) {
    struct mha_forward_plan plan;
    return mha_plan_forward(kernels, layer, batch, q_len, kv_len, &most, NULL, &plan, size);
}

static mha_status size_attention(const struct mha_kernels *kernels, const mha_attention_args *args,
                                 size_t *size) {
    mha_attention_args sizes = *args;
    mha_fpenv saved = mha_fpenv_enter();
    mha_status status = mha_complete_attention(&sizes);
    mha_fpenv_leave(saved);
    struct mha_attention_plan plan;
    return status ? status : mha_plan_attention(kernels, &sizes, &most, NULL, &plan, size);
}

mha_status mha_reserve(mha_context *context, const mha_layer *layer, size_t batch, size_t q_len,
                       size_t kv_len) {
    if (!context || !layer) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", context ? "layer" : "context");
    }
    size_t size = 0;
    mha_status status = size_forward(context->kernels, layer, batch, q_len, kv_len, &size);
    return status ? status : mha_context_reserve(context, size);
}

mha_status mha_reserve_attention(mha_context *context, const mha_attention_args *args) {
    if (!context || !args) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", context ? "args" : "context");
    }
    size_t size = 0;
    mha_status status = size_attention(context->kernels, args, &size);
    return status ? status : mha_context_reserve(context, size);
}

mha_status mha_workspace_size(const mha_options *options, const mha_layer *layer, size_t batch,
                              size_t q_len, size_t kv_len, size_t *size) {
    if (!layer || !size) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", layer ? "size" : "layer");
    }
    const struct mha_kernels *kernels;
    mha_status status = mha_dispatch_select(options ? options->isa : MHA_ISA_AUTO, &kernels);
    return status ? status : size_forward(kernels, layer, batch, q_len, kv_len, size);
}

mha_status mha_workspace_size_attention(const mha_options *options, const mha_attention_args *args,
                                        size_t *size) {
    if (!args || !size) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", args ? "size" : "args");
    }
    const struct mha_kernels *kernels;
    mha_status status = mha_dispatch_select(options ? options->isa : MHA_ISA_AUTO, &kernels);
    return status ? status : size_attention(kernels, args, size);
}
