/* SPDX-License-Identifier: MIT
 *
 * Masks. Positions are int64_t; mha_mask_check bounds them so that no sum overflows.
 */
#include "mask.h"

#include <math.h>

#include "error.h"
#include "workspace.h"

/* Sizes and offsets stay below this, so that three of them add up without overflow. */
#define POSITION_LIMIT (INT64_MAX / 4)

/* Elements from the first to the last + 1 of a [batch][head][query][key] view. No keys, no
 * elements. */
static bool mask_elements(const struct mha_mask_shape *s, size_t batch_stride, size_t head_stride,
                          size_t query_stride, size_t *elements) {
    size_t b, h, q;
    *elements = 0;
    return s->kv_len == 0 ||
           (MHA_PRODUCT(&b, s->batch - 1, batch_stride) &&
            MHA_PRODUCT(&h, s->n_heads - 1, head_stride) &&
            MHA_PRODUCT(&q, s->q_len - 1, query_stride) && !__builtin_add_overflow(b, h, &h) &&
            !__builtin_add_overflow(h, q, &q) && !__builtin_add_overflow(q, s->kv_len, elements));
}

static mha_status check_strides(const char *name, size_t item, const struct mha_mask_shape *s,
                                size_t batch_stride, size_t head_stride, size_t query_stride) {
    const size_t strides[3] = {batch_stride, head_stride, query_stride};
    static const char *const of[3] = {"batch", "head", "query"};
    for (int i = 0; i < 3; i++) {
        if (strides[i] != 0 && strides[i] < s->kv_len) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "mask->%s_%s_stride (%zu) is neither 0 nor at least kv_len (%zu)", name,
                            of[i], strides[i], s->kv_len);
        }
    }
    size_t elements, bytes;
    if (!mask_elements(s, batch_stride, head_stride, query_stride, &elements) ||
        !MHA_PRODUCT(&bytes, elements, item)) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "mask->%s with strides %zu, %zu, %zu is larger than memory can be", name,
                        batch_stride, head_stride, query_stride);
    }
    return MHA_OK;
}

mha_status mha_mask_check(const mha_mask *mask, const struct mha_mask_shape *s) {
    if (!mask || s->batch == 0 || s->q_len == 0) {
        return MHA_OK;
    }
    mha_status status = MHA_OK;
    if (mask->keep) {
        status = check_strides("keep", 1, s, mask->keep_batch_stride, mask->keep_head_stride,
                               mask->keep_query_stride);
    }
    if (status == MHA_OK && mask->bias) {
        status = check_strides("bias", sizeof(float), s, mask->bias_batch_stride,
                               mask->bias_head_stride, mask->bias_query_stride);
    }
    if (status != MHA_OK) {
        return status;
    }
    if (mask->causal != MHA_CAUSAL_NONE && mask->causal != MHA_CAUSAL_TOP_LEFT &&
        mask->causal != MHA_CAUSAL_BOTTOM_RIGHT) {
        return mha_fail(MHA_ERROR_ARGUMENT, "mask->causal (%d) is not a member of mha_causal",
                        (int)mask->causal);
    }
    int64_t offset = mask->query_offset;
    uint64_t longest = s->q_len > s->kv_len ? s->q_len : s->kv_len;
    if (offset > POSITION_LIMIT || offset < -POSITION_LIMIT || longest > (uint64_t)POSITION_LIMIT) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "positions beyond 2^61: query_offset %lld, q_len %zu, kv_len %zu",
                        (long long)mask->query_offset, s->q_len, s->kv_len);
    }
    for (size_t b = 0; mask->kv_lengths && b < s->batch; b++) {
        if (mask->kv_lengths[b] > s->kv_len) {
            return mha_fail(MHA_ERROR_ARGUMENT, "mask->kv_lengths[%zu] (%zu) is above kv_len (%zu)",
                            b, mask->kv_lengths[b], s->kv_len);
        }
    }
    for (size_t h = 0; mask->alibi_slopes && h < s->n_heads; h++) {
        if (!isfinite(mask->alibi_slopes[h])) {
            return mha_fail(MHA_ERROR_ARGUMENT, "mask->alibi_slopes[%zu] (%g) is not finite", h,
                            (double)mask->alibi_slopes[h]);
        }
    }
    return MHA_OK;
}

size_t mha_mask_extents(const mha_mask *mask, const struct mha_mask_shape *s,
                        struct mha_extent extents[4]) {
    size_t n = 0;
    if (!mask || s->batch == 0 || s->q_len == 0) {
        return n;
    }
    size_t elements = 0;
    if (mask->keep) {
        mask_elements(s, mask->keep_batch_stride, mask->keep_head_stride, mask->keep_query_stride,
                      &elements);
        extents[n++] = (struct mha_extent){"mask->keep", mask->keep, elements};
    }
    if (mask->bias) {
        mask_elements(s, mask->bias_batch_stride, mask->bias_head_stride, mask->bias_query_stride,
                      &elements);
        extents[n++] = (struct mha_extent){"mask->bias", mask->bias, elements * sizeof(float)};
    }
    if (mask->kv_lengths) {
        extents[n++] =
            (struct mha_extent){"mask->kv_lengths", mask->kv_lengths, s->batch * sizeof(size_t)};
    }
    if (mask->alibi_slopes) {
        extents[n++] = (struct mha_extent){"mask->alibi_slopes", mask->alibi_slopes,
                                           s->n_heads * sizeof(float)};
    }
    return n;
}

struct mha_mask_view mha_mask_at(const mha_mask *mask, const struct mha_mask_shape *shape,
                                 size_t batch, size_t head) {
    struct mha_mask_view view = {.kv_length = shape->kv_len};
    if (!mask) {
        return view;
    }
    if (mask->kv_lengths) {
        view.kv_length = mask->kv_lengths[batch];
    }
    if (mask->keep && shape->kv_len > 0) { /* without keys the strides are unchecked */
        view.keep = mask->keep + batch * mask->keep_batch_stride + head * mask->keep_head_stride;
        view.keep_stride = mask->keep_query_stride;
    }
    if (mask->bias && shape->kv_len > 0) {
        view.bias = mask->bias + batch * mask->bias_batch_stride + head * mask->bias_head_stride;
        view.bias_stride = mask->bias_query_stride;
    }
    view.causal = mask->causal != MHA_CAUSAL_NONE;
    view.offset = mask->query_offset;
    if (mask->causal == MHA_CAUSAL_BOTTOM_RIGHT) {
        view.offset += (int64_t)view.kv_length - (int64_t)shape->q_len;
    }
    view.window = mask->window;
    view.alibi = mask->alibi_slopes != NULL;
    view.slope = view.alibi ? mask->alibi_slopes[head] : 0.0f;
    return view;
}

/* The lesser of position + distance and limit, at least 0. The sum is formed where it fits: a
 * window may be any size_t. */
static size_t moved_up(int64_t position, uint64_t distance, size_t limit) {
    if (position < 0) {
        uint64_t below = (uint64_t)-position;
        uint64_t rest = distance > below ? distance - below : 0;
        return rest < limit ? (size_t)rest : limit;
    }
    uint64_t at = (uint64_t)position;
    return at < limit && distance < limit - at ? (size_t)(at + distance) : limit;
}

void mha_mask_range(const struct mha_mask_view *view, size_t first, size_t count, size_t *begin,
                    size_t *end) {
    int64_t position = (int64_t)first + view->offset;
    int64_t last = position + (int64_t)count - 1;
    *begin = 0;
    *end = view->kv_length;
    if (view->window > 0) {
        if (position > 0 && (uint64_t)position >= view->window) {
            uint64_t low = (uint64_t)position - view->window + 1;
            *begin = low < view->kv_length ? (size_t)low : view->kv_length;
        }
        *end = moved_up(last, view->window, *end);
    }
    if (view->causal) {
        *end = moved_up(last, 1, *end);
    }
}

/* What is added to the scaled score of key j. */
static float term_at(const struct mha_mask_view *view, const float *bias, int64_t position,
                     size_t j) {
    if (!view->alibi) {
        return bias ? bias[j] : 0.0f;
    }
    int64_t distance = position - (int64_t)j;
    float alibi = -(view->slope * (float)(distance < 0 ? -distance : distance));
    return bias ? alibi + bias[j] : alibi;
}

void mha_mask_term(const struct mha_mask_view *view, size_t query, size_t first, size_t end,
                   float *term) {
    int64_t position = (int64_t)query + view->offset;
    const float *bias = view->bias ? view->bias + query * view->bias_stride : NULL;
    for (size_t j = first; j < end; j++) {
        term[j - first] = term_at(view, bias, position, j);
    }
}

size_t mha_mask_find(const struct mha_mask_view *view, size_t query, size_t from, size_t end,
                     bool attended) {
    int64_t position = (int64_t)query + view->offset;
    const uint8_t *keep = view->keep ? view->keep + query * view->keep_stride : NULL;
    const float *bias = view->bias ? view->bias + query * view->bias_stride : NULL;
    size_t low, high;
    mha_mask_range(view, query, 1, &low, &high);
    while (from < end) {
        bool attends = from >= low && from < high && (!keep || keep[from] != 0) &&
                       term_at(view, bias, position, from) != -INFINITY;
        if (attends == attended) {
            break;
        }
        from++;
    }
    return from;
}
