/* SPDX-License-Identifier: MIT
 *
 * Argument checks of mha_forward and mha_attention.
 */
#include "checks.h"

#include <math.h>
#include <stdint.h>

#include "error.h"
#include "mask.h"
#include "workspace.h"

/* A sink must stay finite when it is multiplied by log2(e). */
#define SINK_LIMIT 0x1p126f

float mha_default_scale(size_t head_dim) {
    return (float)(1.0 / sqrt((double)head_dim));
}

static mha_status fail_null(const char *what) {
    return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", what);
}

static mha_status fail_size(const char *what) {
    return mha_fail(MHA_ERROR_ARGUMENT, "%s is larger than memory can be", what);
}

mha_status mha_check_softmax(float scale, float softcap, mha_masked_rows masked_rows) {
    if (!isfinite(scale)) {
        return mha_fail(MHA_ERROR_ARGUMENT, "scale (%g) is not finite", (double)scale);
    }
    if (softcap != 0.0f && !(softcap > 0.0f && isfinite(softcap))) {
        return mha_fail(MHA_ERROR_ARGUMENT, "softcap (%g) is neither 0 nor positive and finite",
                        (double)softcap);
    }
    if (masked_rows != MHA_MASKED_ROWS_ZERO && masked_rows != MHA_MASKED_ROWS_UNIFORM) {
        return mha_fail(MHA_ERROR_ARGUMENT, "masked_rows (%d) is not a member of mha_masked_rows",
                        (int)masked_rows);
    }
    return MHA_OK;
}

mha_status mha_check_sinks(const char *name, const float *sinks, size_t n_heads) {
    for (size_t h = 0; sinks && h < n_heads; h++) {
        if (!(sinks[h] < SINK_LIMIT)) {
            return mha_fail(MHA_ERROR_ARGUMENT, "%s[%zu] (%g) is not below 2^126", name, h,
                            (double)sinks[h]);
        }
    }
    return MHA_OK;
}

/* ---- Overlap ------------------------------------------------------------- */

static bool overlap(const struct mha_extent *a, const struct mha_extent *b) {
    uintptr_t a_start = (uintptr_t)a->start, b_start = (uintptr_t)b->start;
    return a->bytes > 0 && b->bytes > 0 && a_start < b_start + b->bytes &&
           b_start < a_start + a->bytes;
}

/* The first n_outputs extents against all others and each other. */
static mha_status check_overlap(const struct mha_extent *extents, size_t n_outputs, size_t n) {
    for (size_t i = 0; i < n_outputs; i++) {
        for (size_t j = i + 1; j < n; j++) {
            if (overlap(&extents[i], &extents[j])) {
                return mha_fail(MHA_ERROR_ARGUMENT, "%s overlaps %s", extents[i].name,
                                extents[j].name);
            }
        }
    }
    return MHA_OK;
}

/* ---- Strides ------------------------------------------------------------- */

/* A [batch][head][row][dim] array. */
struct view {
    const char *name;
    const mha_strides *strides;
    size_t batch, heads, rows, dim;
};

/* Fills in the dense layout. */
static mha_status complete_strides(const struct view *v, mha_strides *strides) {
    if (strides->batch == 0 && strides->head == 0 && strides->row == 0) {
        strides->row = v->dim;
        if (!MHA_PRODUCT(&strides->head, v->rows, strides->row) ||
            !MHA_PRODUCT(&strides->batch, v->heads, strides->head)) {
            return fail_size(v->name);
        }
    }
    return MHA_OK;
}

/* Axes with one element may have any stride: one that no address overflows with takes its place,
 * for a loop may step once past the last element. Single rows of a batch are the rows of a
 * matrix. */
static void settle_strides(const struct view *v, mha_strides *strides) {
    strides->batch = v->batch > 1 ? strides->batch : 0;
    strides->head = v->heads > 1 ? strides->head : 0;
    if (v->rows <= 1) {
        strides->row = v->heads <= 1 && v->batch > 1 ? strides->batch : v->dim;
    }
}

/* The bytes from the first to the last element + 1; 0 if there are no elements. */
static mha_status view_bytes(const struct view *v, size_t *bytes) {
    size_t last[3], total = v->dim;
    *bytes = 0;
    if (v->batch == 0 || v->heads == 0 || v->rows == 0 || v->dim == 0) {
        return MHA_OK;
    }
    if (!MHA_PRODUCT(&last[0], v->batch - 1, v->strides->batch) ||
        !MHA_PRODUCT(&last[1], v->heads - 1, v->strides->head) ||
        !MHA_PRODUCT(&last[2], v->rows - 1, v->strides->row)) {
        return fail_size(v->name);
    }
    for (int i = 0; i < 3; i++) {
        if (__builtin_add_overflow(total, last[i], &total)) {
            return fail_size(v->name);
        }
    }
    return MHA_PRODUCT(bytes, total, sizeof(float)) ? MHA_OK : fail_size(v->name);
}

/* Output rows may not share a place: sorted by stride, each dimension must step over all
 * that lies within the smaller ones. */
static mha_status check_disjoint(const struct view *v) {
    const mha_strides *s = v->strides;
    struct axis {
        size_t stride, count;
    } axes[3] = {{s->batch, v->batch}, {s->head, v->heads}, {s->row, v->rows}};
    for (int i = 1; i < 3; i++) {
        for (int j = i; j > 0 && axes[j].stride < axes[j - 1].stride; j--) {
            struct axis swap = axes[j];
            axes[j] = axes[j - 1];
            axes[j - 1] = swap;
        }
    }
    size_t extent = v->dim;
    bool any = v->batch > 0 && v->heads > 0 && v->rows > 0; /* dense strides may be 0 if not */
    for (int i = 0; i < 3 && any; i++) {
        if (axes[i].count > 1) {
            if (axes[i].stride < extent && v->heads == 1) {
                return mha_fail(MHA_ERROR_ARGUMENT,
                                "%s_strides (batch %zu, row %zu) make rows of %zu overlap", v->name,
                                s->batch, s->row, v->dim);
            }
            if (axes[i].stride < extent) {
                return mha_fail(
                    MHA_ERROR_ARGUMENT,
                    "%s_strides (batch %zu, head %zu, row %zu) make rows of %zu overlap", v->name,
                    s->batch, s->head, s->row, v->dim);
            }
            extent += (axes[i].count - 1) * axes[i].stride;
        }
    }
    return MHA_OK;
}

/* ---- What both calls have ------------------------------------------------ */

enum { QUERY, KEY, VALUE, OUTPUT, ARRAYS };

struct call {
    struct view views[ARRAYS];
    const float *data[ARRAYS];
    const mha_mask *mask;
    struct mha_mask_shape shape;
    const float *sinks;
    const float *attention;
    mha_result result;
    bool in_place; /* the output may be the query */
};

/* Rows of one stride for all heads as a view of one head. */
static mha_status complete_row_strides(const struct view *v, mha_row_strides *strides,
                                       mha_strides *complete) {
    *complete = (mha_strides){.batch = strides->batch, .row = strides->row};
    mha_status status = complete_strides(v, complete);
    *strides = (mha_row_strides){.batch = complete->batch, .row = complete->row};
    return status;
}

static mha_status attention_bytes(const struct call *c, size_t *bytes) {
    if ((unsigned)c->result > MHA_RESULT_MASKED_SCORES) {
        return mha_fail(MHA_ERROR_ARGUMENT, "result (%d) is not a member of mha_result",
                        (int)c->result);
    }
    size_t heads = c->result == MHA_RESULT_MEAN_WEIGHTS ? 1 : c->shape.n_heads;
    *bytes = 0;
    if (c->attention && !MHA_PRODUCT(bytes, c->shape.batch, heads, c->shape.q_len, c->shape.kv_len,
                                     sizeof(float))) {
        return fail_size("attention");
    }
    return MHA_OK;
}

/* Whether the output is exactly the query's memory. */
static bool is_in_place(const struct call *c) {
    const struct view *q = &c->views[QUERY], *o = &c->views[OUTPUT];
    return c->in_place && c->data[QUERY] == c->data[OUTPUT] && q->dim == o->dim &&
           (q->batch == 1 || q->strides->batch == o->strides->batch) &&
           (q->rows == 1 || q->strides->row == o->strides->row);
}

static mha_status check_call(const struct call *c) {
    size_t bytes[ARRAYS] = {0}, attention = 0;
    mha_status status = MHA_OK;
    for (int i = 0; i < ARRAYS && status == MHA_OK; i++) {
        status = view_bytes(&c->views[i], &bytes[i]);
    }
    status = status ? status : attention_bytes(c, &attention);
    for (int i = 0; i < ARRAYS && status == MHA_OK; i++) {
        if (bytes[i] > 0 && !c->data[i]) {
            status = fail_null(c->views[i].name);
        }
    }
    status = status ? status : mha_mask_check(c->mask, &c->shape);
    status = status ? status : check_disjoint(&c->views[OUTPUT]);
    if (status != MHA_OK) {
        return status;
    }
    struct mha_extent extents[6 + MHA_MASK_EXTENTS] = {
        {"output", c->data[OUTPUT], bytes[OUTPUT]},
        {"attention", c->attention, attention},
        {"query", c->data[QUERY], is_in_place(c) ? 0 : bytes[QUERY]},
        {"key", c->data[KEY], is_in_place(c) && c->data[KEY] == c->data[QUERY] ? 0 : bytes[KEY]},
        {"value", c->data[VALUE],
         is_in_place(c) && c->data[VALUE] == c->data[QUERY] ? 0 : bytes[VALUE]},
        {"sinks", c->sinks, c->sinks ? c->shape.n_heads * sizeof *c->sinks : 0},
    };
    size_t n = 6 + mha_mask_extents(c->mask, &c->shape, extents + 6);
    return check_overlap(extents, 2, n);
}

/* ---- mha_forward --------------------------------------------------------- */

static mha_status complete_forward(const mha_config *c, mha_forward_args *args) {
    if (!args->key) {
        if (args->kv_len != 0 && args->kv_len != args->q_len) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "key is NULL, so kv_len (%zu) must be 0 or q_len (%zu)", args->kv_len,
                            args->q_len);
        }
        if (c->k_dim != c->d_model) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "key is NULL, but k_dim (%zu) differs from d_model (%zu)", c->k_dim,
                            c->d_model);
        }
        args->key = args->query;
        args->key_strides = args->query_strides;
        args->kv_len = args->q_len;
    }
    if (!args->value) {
        if (c->v_dim != c->k_dim) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "value is NULL, but v_dim (%zu) differs from k_dim (%zu)", c->v_dim,
                            c->k_dim);
        }
        args->value = args->key;
        args->value_strides = args->key_strides;
    }
    return MHA_OK;
}

mha_status mha_check_forward(const mha_config *c, bool projects, mha_forward_args *a) {
    mha_status status = complete_forward(c, a);
    if (status != MHA_OK) {
        return status;
    }
    size_t width = projects ? c->d_model : c->n_heads * c->v_head_dim;
    mha_strides strides[ARRAYS];
    const struct call call = {
        .views = {{"query", &strides[QUERY], a->batch, 1, a->q_len, c->d_model},
                  {"key", &strides[KEY], a->batch, 1, a->kv_len, c->k_dim},
                  {"value", &strides[VALUE], a->batch, 1, a->kv_len, c->v_dim},
                  {"output", &strides[OUTPUT], a->batch, 1, a->q_len, width}},
        .data = {a->query, a->key, a->value, a->output},
        .mask = a->mask,
        .shape = {a->batch, c->n_heads, a->q_len, a->kv_len},
        .attention = a->attention,
        .result = a->result,
        .in_place = true,
    };
    mha_row_strides *const given[ARRAYS] = {&a->query_strides, &a->key_strides, &a->value_strides,
                                            &a->output_strides};
    for (int i = 0; i < ARRAYS && status == MHA_OK; i++) {
        status = complete_row_strides(&call.views[i], given[i], &strides[i]);
    }
    status = status ? status : check_call(&call);
    for (int i = 0; i < ARRAYS && status == MHA_OK; i++) {
        settle_strides(&call.views[i], &strides[i]);
        *given[i] = (mha_row_strides){.batch = strides[i].batch, .row = strides[i].row};
    }
    return status;
}

/* ---- mha_attention ------------------------------------------------------- */

mha_status mha_complete_attention(mha_attention_args *args) {
    if (args->n_heads == 0 || args->head_dim == 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is 0", args->n_heads ? "head_dim" : "n_heads");
    }
    args->n_kv_heads = args->n_kv_heads ? args->n_kv_heads : args->n_heads;
    args->v_head_dim = args->v_head_dim ? args->v_head_dim : args->head_dim;
    if (args->n_heads % args->n_kv_heads != 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "n_kv_heads (%zu) does not divide n_heads (%zu)",
                        args->n_kv_heads, args->n_heads);
    }
    if (args->scale == 0.0f) {
        args->scale = mha_default_scale(args->head_dim);
    }
    return mha_check_softmax(args->scale, args->softcap, args->masked_rows);
}

mha_status mha_check_attention(mha_attention_args *a) {
    mha_status status = mha_complete_attention(a);
    status = status ? status : mha_check_sinks("sinks", a->sinks, a->n_heads);
    if (status != MHA_OK) {
        return status;
    }
    const struct call call = {
        .views = {{"query", &a->query_strides, a->batch, a->n_heads, a->q_len, a->head_dim},
                  {"key", &a->key_strides, a->batch, a->n_kv_heads, a->kv_len, a->head_dim},
                  {"value", &a->value_strides, a->batch, a->n_kv_heads, a->kv_len, a->v_head_dim},
                  {"output", &a->output_strides, a->batch, a->n_heads, a->q_len, a->v_head_dim}},
        .data = {a->query, a->key, a->value, a->output},
        .mask = a->mask,
        .shape = {a->batch, a->n_heads, a->q_len, a->kv_len},
        .sinks = a->sinks,
        .attention = a->attention,
        .result = a->result,
    };
    mha_strides *const given[ARRAYS] = {&a->query_strides, &a->key_strides, &a->value_strides,
                                        &a->output_strides};
    for (int i = 0; i < ARRAYS && status == MHA_OK; i++) {
        status = complete_strides(&call.views[i], given[i]);
    }
    status = status ? status : check_call(&call);
    for (int i = 0; i < ARRAYS && status == MHA_OK; i++) {
        settle_strides(&call.views[i], given[i]);
    }
    return status;
}
