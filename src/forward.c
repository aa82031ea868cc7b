/* SPDX-License-Identifier: MIT
 *
 * mha_forward: check, plan, project, attend, project. No ISA in here, and no arithmetic: that is
 * the kernels'. Memory is linear in batch * (q_len + kv_len).
 */
#include <string.h>

#include "attend.h"
#include "checks.h"
#include "context.h"
#include "error.h"
#include "fpenv.h"
#include "layer.h"
#include "plan.h"
#include "project.h"

struct forward {
    const struct mha_kernels *kernels;
    const struct mha_layer *layer;
    const mha_forward_args *args;
    struct mha_forward_plan plan;
};

static struct mha_projection projection(const struct forward *f, const struct mha_linear *linear,
                                        size_t rows, const size_t *lengths) {
    return (struct mha_projection){
        .kernels = f->kernels,
        .scratch = &f->plan.project,
        .linear = linear,
        .batch = f->args->batch,
        .rows = rows,
        .lengths = lengths,
        .inputs = true,
    };
}

static void project_inputs(const struct forward *f) {
    const mha_forward_args *a = f->args;
    const mha_config *c = &f->layer->config;
    const size_t *kv_lengths = a->mask ? a->mask->kv_lengths : NULL;
    size_t kv_heads = c->n_kv_heads;

    struct mha_projection q =
        projection(f, &f->layer->q, a->q_len, a->mask ? a->mask->q_lengths : NULL);
    q.input = a->query;
    q.input_batch_stride = a->query_strides.batch;
    q.input_row_stride = a->query_strides.row;
    q.output = f->plan.query;
    q.output_row_stride = f->layer->q.width;
    q.output_group_stride = a->q_len * q.output_row_stride;
    q.output_batch_stride = kv_heads * q.output_group_stride;
    mha_project(&q);

    struct mha_projection k = projection(f, &f->layer->k, a->kv_len, kv_lengths);
    k.input = a->key;
    k.input_batch_stride = a->key_strides.batch;
    k.input_row_stride = a->key_strides.row;
    k.output = f->plan.keys;
    k.panel_dim = c->head_dim;
    k.output_group_stride = f->plan.kv_panels * c->head_dim * MHA_PANEL;
    k.output_batch_stride = kv_heads * k.output_group_stride;
    mha_project(&k);

    struct mha_projection v = projection(f, &f->layer->v, a->kv_len, kv_lengths);
    v.input = a->value;
    v.input_batch_stride = a->value_strides.batch;
    v.input_row_stride = a->value_strides.row;
    v.output = f->plan.values;
    v.output_row_stride = f->layer->v.width;
    v.output_group_stride = a->kv_len * v.output_row_stride;
    v.output_batch_stride = kv_heads * v.output_group_stride;
    mha_project(&v);
}

/* heads: where the heads of a row go side by side. */
static void attend_heads(const struct forward *f, float *heads, size_t batch_stride,
                         size_t row_stride) {
    const mha_forward_args *args = f->args;
    const mha_config *c = &f->layer->config;
    const struct mha_mask_shape shape = {args->batch, c->n_heads, args->q_len, args->kv_len};
    size_t group = c->n_heads / c->n_kv_heads, width = mha_padded(c->head_dim);
    size_t v_width = mha_padded(c->v_head_dim);
    for (size_t b = 0; b < args->batch; b++) {
        for (size_t g = 0; g < c->n_kv_heads; g++) {
            size_t at = b * c->n_kv_heads + g;
            struct mha_attend attend = {
                .kernels = f->kernels,
                .scratch = &f->plan.attend,
                .group = group,
                .first_head = g * group,
                .n_heads = c->n_heads,
                .q_len = args->q_len,
                .kv_len = args->kv_len,
                .scale = c->scale,
                .softcap = c->softcap,
                .sinks = f->layer->sinks,
                .uniform = c->masked_rows == MHA_MASKED_ROWS_UNIFORM,
                .mask = mha_mask_at(args->mask, &shape, b),
                .kv = {.head_dim = c->head_dim,
                       .v_head_dim = c->v_head_dim,
                       .keys = f->plan.keys + at * f->plan.kv_panels * c->head_dim * MHA_PANEL,
                       .values = f->plan.values + at * args->kv_len * v_width,
                       .value_stride = v_width},
                .query = f->plan.query + at * args->q_len * group * width,
                .query_stride = width,
                .output = heads + b * batch_stride + g * group * c->v_head_dim,
                .output_stride = row_stride,
                .output_head_stride = c->v_head_dim,
                .result = args->result,
            };
            if (args->attention) {
                size_t heads_each = args->result == MHA_RESULT_MEAN_WEIGHTS ? 1 : c->n_heads;
                attend.attention = args->attention + b * heads_each * args->q_len * args->kv_len;
            }
            mha_attend(&attend);
        }
    }
}

static void project_heads(const struct forward *f) {
    const mha_forward_args *a = f->args;
    const size_t *lengths = a->mask ? a->mask->q_lengths : NULL;
    struct mha_projection o = projection(f, &f->layer->o, a->q_len, lengths);
    o.inputs = false;
    o.input = f->plan.concat;
    o.input_row_stride = f->layer->o.depth;
    o.input_batch_stride = a->q_len * f->layer->o.depth;
    o.output = a->output;
    o.output_row_stride = a->output_strides.row;
    o.output_group_stride = f->layer->o.width;
    o.output_batch_stride = a->output_strides.batch;
    mha_project(&o);
    for (size_t b = 0; lengths && b < a->batch; b++) {
        for (size_t i = lengths[b]; i < a->q_len; i++) {
            memset(a->output + b * a->output_strides.batch + i * a->output_strides.row, 0,
                   f->layer->o.width * sizeof *a->output);
        }
    }
}

mha_status mha_forward(mha_context *context, const mha_layer *layer, const mha_forward_args *args) {
    if (!context || !layer || !args) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL",
                        !context ? "context"
                        : !layer ? "layer"
                                 : "args");
    }
    mha_forward_args checked = *args;
    struct forward f = {.kernels = context->kernels, .layer = layer, .args = &checked};
    mha_fpenv saved = mha_fpenv_enter(); /* checks compare numbers, too */
    mha_status status = mha_check_forward(&layer->config, layer->o.panels != NULL, &checked);
    if (status == MHA_OK && checked.batch > 0 && checked.q_len > 0) {
        const mha_result *result = checked.attention ? &checked.result : NULL;
        size_t size = 0;
        status = mha_plan_forward(f.kernels, layer, checked.batch, checked.q_len, checked.kv_len,
                                  result, NULL, &f.plan, &size);
        status = status ? status : mha_context_grow(context, size);
        if (status == MHA_OK) {
            mha_plan_forward(f.kernels, layer, checked.batch, checked.q_len, checked.kv_len, result,
                             context->memory, &f.plan, &size);
            project_inputs(&f);
            if (layer->o.panels) {
                size_t row = layer->o.depth;
                attend_heads(&f, f.plan.concat, checked.q_len * row, row);
                project_heads(&f);
            } else {
                attend_heads(&f, checked.output, checked.output_strides.batch,
                             checked.output_strides.row);
            }
        }
    }
    mha_fpenv_leave(saved);
    return status;
}
