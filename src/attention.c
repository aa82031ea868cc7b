/* SPDX-License-Identifier: MIT
 *
 * mha_attention: scaled dot-product attention alone, on the caller's heads and strides. No ISA in
 * here.
 */
#include "attend.h"
#include "checks.h"
#include "context.h"
#include "error.h"
#include "fpenv.h"
#include "plan.h"

static void compute(const struct mha_kernels *kernels, const mha_attention_args *a,
                    const struct mha_attention_plan *plan) {
    const struct mha_mask_shape shape = {a->batch, a->n_heads, a->q_len, a->kv_len};
    size_t group = a->n_heads / a->n_kv_heads;
    for (size_t b = 0; b < a->batch; b++) {
        for (size_t g = 0; g < a->n_kv_heads; g++) {
            struct mha_attend attend = {
                .kernels = kernels,
                .scratch = &plan->attend,
                .group = group,
                .first_head = g * group,
                .n_heads = a->n_heads,
                .q_len = a->q_len,
                .kv_len = a->kv_len,
                .scale = a->scale,
                .softcap = a->softcap,
                .sinks = a->sinks,
                .uniform = a->masked_rows == MHA_MASKED_ROWS_UNIFORM,
                .mask = mha_mask_at(a->mask, &shape, b),
                .kv = {.head_dim = a->head_dim,
                       .v_head_dim = a->v_head_dim,
                       .keys = plan->keys,
                       .values = plan->values,
                       .value_stride = mha_padded(a->v_head_dim),
                       .key_row_stride = a->key_strides.row,
                       .value_row_stride = a->value_strides.row},
                .query = a->query + b * a->query_strides.batch + g * group * a->query_strides.head,
                .query_stride = a->query_strides.row,
                .apart = true,
                .query_head_stride = a->query_strides.head,
                .output =
                    a->output + b * a->output_strides.batch + g * group * a->output_strides.head,
                .output_stride = a->output_strides.row,
                .output_head_stride = a->output_strides.head,
                .result = a->result,
            };
            if (a->attention) {
                size_t heads = a->result == MHA_RESULT_MEAN_WEIGHTS ? 1 : a->n_heads;
                attend.attention = a->attention + b * heads * a->q_len * a->kv_len;
            }
            if (a->kv_len > 0) { /* without keys a pointer may be anything */
                attend.kv.key_rows = a->key + b * a->key_strides.batch + g * a->key_strides.head;
                attend.kv.value_rows =
                    a->value + b * a->value_strides.batch + g * a->value_strides.head;
            }
            if (plan->whole && a->kv_len > 0) {
                mha_kv_pack(kernels, &attend.kv, 0, attend.mask.kv_length);
                attend.kv.key_rows = NULL;
            }
            mha_attend(&attend);
        }
    }
}

mha_status mha_attention(mha_context *context, const mha_attention_args *args) {
    if (!context || !args) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", context ? "args" : "context");
    }
    mha_attention_args checked = *args;
    mha_fpenv saved = mha_fpenv_enter(); /* the default scale is arithmetic too */
    mha_status status = mha_check_attention(&checked);
    if (status == MHA_OK && checked.batch > 0 && checked.q_len > 0) {
        const mha_result *result = checked.attention ? &checked.result : NULL;
        struct mha_attention_plan plan;
        size_t size = 0;
        status = mha_plan_attention(context->kernels, &checked, result, NULL, &plan, &size);
        status = status ? status : mha_context_grow(context, size);
        if (status == MHA_OK) {
            mha_plan_attention(context->kernels, &checked, result, context->memory, &plan, &size);
            compute(context->kernels, &checked, &plan);
        }
    }
    mha_fpenv_leave(saved);
    return status;
}
