/* SPDX-License-Identifier: MIT
 *
 * Masks. Positions are int64_t; mha_mask_check bounds them so that no sum overflows.
 */
#include "mask.h"

#include <math.h>

#include "error.h"
#include "workspace.h"

/* Sizes and positions stay below this, so that three of them add up without overflow. */
#define POSITION_LIMIT (INT64_MAX / 4)

/* With ALiBi: distances are exact in binary32. */
#define ALIBI_LIMIT ((int64_t)1 << 23)

/* ---- Checks -------------------------------------------------------------- */

static size_t longest(const size_t *lengths, size_t batch, size_t all) {
    size_t most = 0;
    for (size_t b = 0; lengths && b < batch; b++) {
        most = lengths[b] > most ? lengths[b] : most;
    }
    return lengths ? most : all;
}

/* Elements from the first to the last + 1 of a [batch][head][query][key] view. No keys, no
 * elements. */
static bool mask_elements(const mha_mask *mask, const struct mha_mask_shape *s, size_t batch_stride,
                          size_t head_stride, size_t query_stride, size_t *elements) {
    size_t b, h, q;
    size_t keys = longest(mask->kv_lengths, s->batch, s->kv_len);
    size_t queries = longest(mask->q_lengths, s->batch, s->q_len);
    *elements = 0;
    return keys == 0 || queries == 0 ||
           (MHA_PRODUCT(&b, s->batch - 1, batch_stride) &&
            MHA_PRODUCT(&h, s->n_heads - 1, head_stride) &&
            MHA_PRODUCT(&q, queries - 1, query_stride) && !__builtin_add_overflow(b, h, &h) &&
            !__builtin_add_overflow(h, q, &q) && !__builtin_add_overflow(q, keys, elements));
}

static mha_status check_strides(const mha_mask *mask, const char *name, size_t item,
                                const struct mha_mask_shape *s, size_t batch_stride,
                                size_t head_stride, size_t query_stride) {
    size_t elements, bytes;
    if (!mask_elements(mask, s, batch_stride, head_stride, query_stride, &elements) ||
        !MHA_PRODUCT(&bytes, elements, item)) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "mask->%s with strides %zu, %zu, %zu is larger than memory can be", name,
                        batch_stride, head_stride, query_stride);
    }
    return MHA_OK;
}

static mha_status check_lengths(const char *name, const size_t *lengths, const char *limit_name,
                                size_t limit, size_t batch) {
    for (size_t b = 0; lengths && b < batch; b++) {
        if (lengths[b] > limit) {
            return mha_fail(MHA_ERROR_ARGUMENT, "mask->%s[%zu] (%zu) is above %s (%zu)", name, b,
                            lengths[b], limit_name, limit);
        }
    }
    return MHA_OK;
}

/* The position of query 0 of a sequence; lengths and offsets are known to be small. */
static int64_t first_position(const mha_mask *mask, const struct mha_mask_shape *s, size_t b) {
    int64_t position = mask->query_offset + (mask->query_offsets ? mask->query_offsets[b] : 0);
    if (mask->causal == MHA_CAUSAL_BOTTOM_RIGHT) {
        position +=
            (int64_t)mha_mask_kv_length(mask, s, b) - (int64_t)mha_mask_q_length(mask, s, b);
    }
    return position;
}

static bool within(int64_t x, int64_t limit) {
    return x >= -limit && x <= limit;
}

static mha_status check_positions(const mha_mask *mask, const struct mha_mask_shape *s) {
    uint64_t most = s->q_len > s->kv_len ? s->q_len : s->kv_len;
    if (!within(mask->query_offset, POSITION_LIMIT) || most > (uint64_t)POSITION_LIMIT) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "positions beyond 2^61: query_offset %lld, q_len %zu, kv_len %zu",
                        (long long)mask->query_offset, s->q_len, s->kv_len);
    }
    for (size_t b = 0; b < s->batch; b++) {
        int64_t sum = mask->query_offset;
        if (mask->query_offsets && (__builtin_add_overflow(sum, mask->query_offsets[b], &sum) ||
                                    !within(sum, POSITION_LIMIT))) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "positions beyond 2^61: query_offset %lld, query_offsets[%zu] %lld",
                            (long long)mask->query_offset, b, (long long)mask->query_offsets[b]);
        }
        int64_t first = first_position(mask, s, b);
        int64_t last = first + (int64_t)s->q_len - 1;
        if (mask->alibi_slopes && (!within(first, ALIBI_LIMIT) || !within(last, ALIBI_LIMIT) ||
                                   !within((int64_t)s->kv_len, ALIBI_LIMIT))) {
            return mha_fail(MHA_ERROR_ARGUMENT,
                            "alibi_slopes with positions beyond 2^23: queries %lld to %lld of "
                            "sequence %zu, kv_len %zu",
                            (long long)first, (long long)last, b, s->kv_len);
        }
    }
    return MHA_OK;
}

mha_status mha_mask_check(const mha_mask *mask, const struct mha_mask_shape *s) {
    if (!mask || s->batch == 0 || s->q_len == 0) {
        return MHA_OK;
    }
    mha_status status =
        check_lengths("kv_lengths", mask->kv_lengths, "kv_len", s->kv_len, s->batch);
    if (status == MHA_OK) {
        status = check_lengths("q_lengths", mask->q_lengths, "q_len", s->q_len, s->batch);
    }
    if (status == MHA_OK && mask->keep) {
        status = check_strides(mask, "keep", 1, s, mask->keep_batch_stride, mask->keep_head_stride,
                               mask->keep_query_stride);
    }
    if (status == MHA_OK && mask->key_keep) {
        status = check_strides(mask, "key_keep", 1, s, mask->key_keep_batch_stride, 0, 0);
    }
    if (status == MHA_OK && mask->bias) {
        status = check_strides(mask, "bias", sizeof(float), s, mask->bias_batch_stride,
                               mask->bias_head_stride, mask->bias_query_stride);
    }
    if (status != MHA_OK) {
        return status;
    }
    if (mask->nonzero_masks != 0 && mask->nonzero_masks != 1) {
        return mha_fail(MHA_ERROR_ARGUMENT, "mask->nonzero_masks (%d) is neither 0 nor 1",
                        mask->nonzero_masks);
    }
    if (mask->causal != MHA_CAUSAL_NONE && mask->causal != MHA_CAUSAL_TOP_LEFT &&
        mask->causal != MHA_CAUSAL_BOTTOM_RIGHT) {
        return mha_fail(MHA_ERROR_ARGUMENT, "mask->causal (%d) is not a member of mha_causal",
                        (int)mask->causal);
    }
    for (size_t h = 0; mask->alibi_slopes && h < s->n_heads; h++) {
        if (!isfinite(mask->alibi_slopes[h])) {
            return mha_fail(MHA_ERROR_ARGUMENT, "mask->alibi_slopes[%zu] (%g) is not finite", h,
                            (double)mask->alibi_slopes[h]);
        }
    }
    return check_positions(mask, s);
}

size_t mha_mask_extents(const mha_mask *mask, const struct mha_mask_shape *s,
                        struct mha_extent extents[MHA_MASK_EXTENTS]) {
    size_t n = 0, elements = 0;
    if (!mask || s->batch == 0 || s->q_len == 0) {
        return n;
    }
    if (mask->keep) {
        mask_elements(mask, s, mask->keep_batch_stride, mask->keep_head_stride,
                      mask->keep_query_stride, &elements);
        extents[n++] = (struct mha_extent){"mask->keep", mask->keep, elements};
    }
    if (mask->key_keep) {
        mask_elements(mask, s, mask->key_keep_batch_stride, 0, 0, &elements);
        extents[n++] = (struct mha_extent){"mask->key_keep", mask->key_keep, elements};
    }
    if (mask->bias) {
        mask_elements(mask, s, mask->bias_batch_stride, mask->bias_head_stride,
                      mask->bias_query_stride, &elements);
        extents[n++] = (struct mha_extent){"mask->bias", mask->bias, elements * sizeof(float)};
    }
    const struct mha_extent arrays[] = {
        {"mask->q_lengths", mask->q_lengths, s->batch * sizeof(size_t)},
        {"mask->kv_lengths", mask->kv_lengths, s->batch * sizeof(size_t)},
        {"mask->query_offsets", mask->query_offsets, s->batch * sizeof(int64_t)},
        {"mask->alibi_slopes", mask->alibi_slopes, s->n_heads * sizeof(float)},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (arrays[i].start) {
            extents[n++] = arrays[i];
        }
    }
    return n;
}

/* ---- Views --------------------------------------------------------------- */

size_t mha_mask_q_length(const mha_mask *mask, const struct mha_mask_shape *shape, size_t batch) {
    return mask && mask->q_lengths ? mask->q_lengths[batch] : shape->q_len;
}

size_t mha_mask_kv_length(const mha_mask *mask, const struct mha_mask_shape *shape, size_t batch) {
    return mask && mask->kv_lengths ? mask->kv_lengths[batch] : shape->kv_len;
}

struct mha_mask_view mha_mask_at(const mha_mask *mask, const struct mha_mask_shape *shape,
                                 size_t batch) {
    struct mha_mask_view view = {
        .q_length = mha_mask_q_length(mask, shape, batch),
        .kv_length = mha_mask_kv_length(mask, shape, batch),
    };
    if (!mask) {
        view.plain = true;
        return view;
    }
    if (mask->keep && view.kv_length > 0) { /* without keys a pointer may be anything */
        view.keep = mask->keep + batch * mask->keep_batch_stride;
        view.keep_head_stride = mask->keep_head_stride;
        view.keep_query_stride = mask->keep_query_stride;
    }
    if (mask->key_keep && view.kv_length > 0) {
        view.key_keep = mask->key_keep + batch * mask->key_keep_batch_stride;
    }
    view.nonzero_masks = mask->nonzero_masks != 0;
    if (mask->bias && view.kv_length > 0) {
        view.bias = mask->bias + batch * mask->bias_batch_stride;
        view.bias_head_stride = mask->bias_head_stride;
        view.bias_query_stride = mask->bias_query_stride;
    }
    view.causal = mask->causal != MHA_CAUSAL_NONE;
    view.window_left = mask->window_left;
    view.window_right = mask->window_right;
    view.offset = first_position(mask, shape, batch);
    view.slopes = mask->alibi_slopes;
    view.plain = !view.keep && !view.key_keep && !view.bias && !view.causal &&
                 view.window_left == 0 && view.window_right == 0 && !view.slopes;
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
    if (view->window_left > 0 && position > 0 && (uint64_t)position >= view->window_left) {
        uint64_t low = (uint64_t)position - view->window_left + 1;
        *begin = low < view->kv_length ? (size_t)low : view->kv_length;
    }
    if (view->window_right > 0) {
        *end = moved_up(last, view->window_right, *end);
    }
    if (view->causal) {
        *end = moved_up(last, 1, *end);
    }
}

static bool kept(const struct mha_mask_view *view, const uint8_t *keep, size_t j) {
    bool zero_masks = !view->nonzero_masks;
    return (!keep || (keep[j] != 0) == zero_masks) &&
           (!view->key_keep || (view->key_keep[j] != 0) == zero_masks);
}

static const uint8_t *keep_row(const struct mha_mask_view *view, size_t head, size_t query) {
    return view->keep ? view->keep + head * view->keep_head_stride + query * view->keep_query_stride
                      : NULL;
}

void mha_mask_describe(const struct mha_mask_view *view, size_t head, size_t query, size_t first,
                       size_t keys, uint8_t *bytes, struct mha_softmax_row *row) {
    size_t begin, end;
    mha_mask_range(view, query, 1, &begin, &end);
    begin = begin > first ? mha_min(begin - first, keys) : 0;
    end = end > first ? mha_min(end - first, keys) : 0;
    *row = (struct mha_softmax_row){.begin = begin, .end = end > begin ? end : begin};
    const uint8_t *keep = keep_row(view, head, query);
    if (keep && !view->key_keep && !view->nonzero_masks) {
        row->keep = keep + first;
    } else if (view->key_keep && !keep && !view->nonzero_masks) {
        row->keep = view->key_keep + first;
    } else if (keep || view->key_keep) {
        for (size_t j = row->begin; j < row->end; j++) {
            bytes[j] = kept(view, keep, first + j);
        }
        row->keep = bytes;
    }
    if (view->bias) {
        row->bias =
            view->bias + head * view->bias_head_stride + query * view->bias_query_stride + first;
    }
    if (view->slopes) {
        row->slope = view->slopes[head];
        row->position = (float)((int32_t)query + (int32_t)view->offset - (int32_t)first);
    }
}

size_t mha_mask_find(const struct mha_mask_view *view, size_t head, size_t query, size_t from,
                     size_t end, bool attended) {
    const uint8_t *keep = keep_row(view, head, query);
    const float *bias =
        view->bias ? view->bias + head * view->bias_head_stride + query * view->bias_query_stride
                   : NULL;
    size_t low, high;
    mha_mask_range(view, query, 1, &low, &high);
    while (from < end) {
        bool attends = from >= low && from < high && kept(view, keep, from);
        if (attends && (bias || view->slopes)) {
            float distance = (float)((int32_t)query + (int32_t)view->offset - (int32_t)from);
            float term = view->slopes ? -(view->slopes[head] * fabsf(distance)) : 0.0f;
            attends = (bias ? term + bias[from] : term) != -INFINITY;
        }
        if (attends == attended) {
            break;
        }
        from++;
    }
    return from;
}
