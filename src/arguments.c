/* SPDX-License-Identifier: MIT
 *
 * Argument checks of mha_forward and mha_attention.
 */
#include "arguments.h"

#include <math.h>
#include <stdint.h>

#include "error.h"
#include "mask.h"
#include "workspace.h"

float mha_default_scale(size_t head_dim) {
    return (float)(1.0 / sqrt((double)head_dim));
}

static mha_status fail_null(const char *what) {
    return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", what);
}

static mha_status fail_size(const char *what) {
    return mha_fail(MHA_ERROR_ARGUMENT, "%s is larger than memory can be", what);
}

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

mha_status mha_check_forward(const mha_config *c, mha_forward_args *args) {
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
        args->kv_len = args->q_len;
    }
    if (!args->value) {
        if (c->v_dim != c->k_dim) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "value is NULL, but v_dim (%zu) differs from k_dim (%zu)", c->v_dim,
                            c->k_dim);
        }
        args->value = args->key;
    }
    size_t q, k, v, a;
    if (!MHA_PRODUCT(&q, args->batch, args->q_len, c->d_model, sizeof(float))) {
        return fail_size("query");
    }
    if (!MHA_PRODUCT(&k, args->batch, args->kv_len, c->k_dim, sizeof(float)) ||
        !MHA_PRODUCT(&v, args->batch, args->kv_len, c->v_dim, sizeof(float))) {
        return fail_size("key or value");
    }
    if (!MHA_PRODUCT(&a, args->batch, c->n_heads, args->q_len, args->kv_len, sizeof(float)) &&
        args->attention) {
        return fail_size("attention");
    }
    if (q > 0 && (!args->query || !args->output)) {
        return fail_null(args->query ? "output" : "query");
    }
    if ((k > 0 && !args->key) || (v > 0 && !args->value)) {
        return fail_null("key or value"); /* only reachable with query NULL and no queries */
    }
    struct mha_mask_shape shape = {args->batch, c->n_heads, args->q_len, args->kv_len};
    mha_status status = mha_mask_check(args->mask, &shape);
    if (status != MHA_OK) {
        return status;
    }
    struct mha_extent extents[9] = {
        {"output", args->output, q}, {"attention", args->attention, args->attention ? a : 0},
        {"query", args->query, q},   {"key", args->key, k},
        {"value", args->value, v},
    };
    size_t n = 5 + mha_mask_extents(args->mask, &shape, extents + 5);
    return check_overlap(extents, 2, n);
}

/* Fills in the dense layout and gives the bytes from the first to the last element + 1 of
 * [batch][heads][rows][dim]; 0 if there are no elements. */
static mha_status complete_strides(const char *name, mha_strides *strides, size_t batch,
                                   size_t heads, size_t rows, size_t dim, size_t *bytes) {
    size_t last[3], total = dim;
    strides->row = strides->row ? strides->row : dim;
    if (strides->row < dim) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s_strides.row (%zu) is below the row's length (%zu)",
                        name, strides->row, dim);
    }
    if ((!strides->head && !MHA_PRODUCT(&strides->head, rows, strides->row)) ||
        (!strides->batch && !MHA_PRODUCT(&strides->batch, heads, strides->head))) {
        return fail_size(name);
    }
    *bytes = 0;
    if (batch == 0 || heads == 0 || rows == 0 || dim == 0) {
        return MHA_OK;
    }
    if (!MHA_PRODUCT(&last[0], batch - 1, strides->batch) ||
        !MHA_PRODUCT(&last[1], heads - 1, strides->head) ||
        !MHA_PRODUCT(&last[2], rows - 1, strides->row)) {
        return fail_size(name);
    }
    for (int i = 0; i < 3; i++) {
        if (__builtin_add_overflow(total, last[i], &total)) {
            return fail_size(name);
        }
    }
    return MHA_PRODUCT(bytes, total, sizeof(float)) ? MHA_OK : fail_size(name);
}

/* Output rows may not share a place: sorted by stride, each dimension must step over all
 * that lies within the smaller ones. */
static mha_status check_disjoint(const mha_strides *strides, size_t batch, size_t heads,
                                 size_t rows, size_t dim) {
    struct axis {
        size_t stride, count;
    } axes[3] = {{strides->batch, batch}, {strides->head, heads}, {strides->row, rows}};
    for (int i = 1; i < 3; i++) {
        for (int j = i; j > 0 && axes[j].stride < axes[j - 1].stride; j--) {
            struct axis swap = axes[j];
            axes[j] = axes[j - 1];
            axes[j - 1] = swap;
        }
    }
    size_t extent = dim;
    bool any = batch > 0 && heads > 0 && rows > 0; /* dense strides may be 0 if not */
    for (int i = 0; i < 3 && any; i++) {
        if (axes[i].count > 1) {
            if (axes[i].stride < extent) {
                return mha_fail(MHA_ERROR_ARGUMENT,
                                "output_strides (batch %zu, head %zu, row %zu) make rows overlap",
                                strides->batch, strides->head, strides->row);
            }
            extent += (axes[i].count - 1) * axes[i].stride;
        }
    }
    return MHA_OK;
}

static mha_status complete_attention(mha_attention_args *args) {
    if (args->n_heads == 0 || args->head_dim == 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is 0", args->n_heads ? "head_dim" : "n_heads");
    }
    args->n_kv_heads = args->n_kv_heads ? args->n_kv_heads : args->n_heads;
    args->v_head_dim = args->v_head_dim ? args->v_head_dim : args->head_dim;
    if (args->n_heads % args->n_kv_heads != 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "n_kv_heads (%zu) does not divide n_heads (%zu)",
                        args->n_kv_heads, args->n_heads);
    }
    if (!isfinite(args->scale)) {
        return mha_fail(MHA_ERROR_ARGUMENT, "scale (%g) is not finite", (double)args->scale);
    }
    if (args->scale == 0.0f) {
        args->scale = mha_default_scale(args->head_dim);
    }
    if (args->masked_rows != MHA_MASKED_ROWS_ZERO && args->masked_rows != MHA_MASKED_ROWS_UNIFORM) {
        return mha_fail(MHA_ERROR_ARGUMENT, "masked_rows (%d) is not a member of mha_masked_rows",
                        (int)args->masked_rows);
    }
    return MHA_OK;
}

mha_status mha_check_attention(mha_attention_args *args) {
    mha_status status = complete_attention(args);
    size_t q = 0, k = 0, v = 0, o = 0, a = 0;
    size_t batch = args->batch, heads = args->n_heads, kv_heads = args->n_kv_heads;
    if (status == MHA_OK) {
        status = complete_strides("query", &args->query_strides, batch, heads, args->q_len,
                                  args->head_dim, &q);
    }
    if (status == MHA_OK) {
        status = complete_strides("key", &args->key_strides, batch, kv_heads, args->kv_len,
                                  args->head_dim, &k);
    }
    if (status == MHA_OK) {
        status = complete_strides("value", &args->value_strides, batch, kv_heads, args->kv_len,
                                  args->v_head_dim, &v);
    }
    if (status == MHA_OK) {
        status = complete_strides("output", &args->output_strides, batch, heads, args->q_len,
                                  args->v_head_dim, &o);
    }
    if (status != MHA_OK) {
        return status;
    }
    if (!MHA_PRODUCT(&a, batch, heads, args->q_len, args->kv_len, sizeof(float)) &&
        args->attention) {
        return fail_size("attention");
    }
    const char *missing = q > 0 && !args->query    ? "query"
                          : k > 0 && !args->key    ? "key"
                          : v > 0 && !args->value  ? "value"
                          : o > 0 && !args->output ? "output"
                                                   : NULL;
    if (missing) {
        return fail_null(missing);
    }
    struct mha_mask_shape shape = {batch, heads, args->q_len, args->kv_len};
    status = mha_mask_check(args->mask, &shape);
    if (status == MHA_OK) {
        status = check_disjoint(&args->output_strides, batch, heads, args->q_len, args->v_head_dim);
    }
    if (status != MHA_OK) {
        return status;
    }
    struct mha_extent extents[9] = {
        {"output", args->output, o}, {"attention", args->attention, args->attention ? a : 0},
        {"query", args->query, q},   {"key", args->key, k},
        {"value", args->value, v},
    };
    size_t n = 5 + mha_mask_extents(args->mask, &shape, extents + 5);
    return check_overlap(extents, 2, n);
}
