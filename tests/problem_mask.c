/* SPDX-License-Identifier: MIT
 *
 * Building the masks of the tables' problems.
 */
#include "problem.h"

#include <math.h>
#include <string.h>

size_t length_of_letter(char letter, size_t all) {
    switch (letter) {
    case 'f':
        return all;
    case 'h':
        return all / 2;
    case 'm':
        return all > 0 ? all - 1 : 0;
    case '1':
        return all > 0 ? 1 : 0;
    default:
        ck_assert_int_eq(letter, '0');
        return 0;
    }
}

size_t longest_length(const size_t *lengths, size_t batch, size_t all) {
    size_t longest = 0;
    for (size_t b = 0; lengths && b < batch; b++) {
        longest = lengths[b] > longest ? lengths[b] : longest;
    }
    return lengths ? longest : all;
}

static const size_t *make_lengths(const char *letters, size_t batch, size_t all,
                                  enum guard_side side) {
    if (!letters) {
        return NULL;
    }
    /* size_t needs its own alignment, whatever the shift of the other arrays. */
    size_t *lengths = guarded_alloc(batch * sizeof *lengths, 0, side);
    for (size_t b = 0; b < batch; b++) {
        lengths[b] = length_of_letter(letters[b % strlen(letters)], all);
    }
    return lengths;
}

/* A part of a mask: [batch][head][query][key] with strides, of the rows that are read. */
struct part {
    const char *letters;
    size_t batch, n_heads, queries, keys;
    size_t strides[3];
    size_t elements; /* of the whole */
};

/* Strides for the letters of a part, with a gap of 3 behind each row. */
static struct part make_part(const char *letters, const mha_attention_args *a, const mha_mask *m) {
    struct part p = {
        .letters = letters,
        .batch = a->batch,
        .n_heads = a->n_heads,
        .queries = longest_length(m->q_lengths, a->batch, a->q_len),
        .keys = longest_length(m->kv_lengths, a->batch, a->kv_len),
    };
    size_t extent = p.keys + 3, last = 0;
    for (size_t i = strlen(letters); i > 0; i--) {
        char letter = letters[i - 1];
        size_t count = letter == 'b' ? p.batch : letter == 'h' ? p.n_heads : p.queries;
        size_t stride = letter == 'r' ? 1 : extent;
        p.strides[letter == 'b' ? 0 : letter == 'h' ? 1 : 2] = stride;
        last += count > 0 ? (count - 1) * stride : 0;
        extent = letter == 'r' ? extent + count : extent * count;
    }
    p.elements = last + p.keys;
    return p;
}

/* Calls fill for the rows of a part that are not the same as another. */
static void each_row(struct generator *g, const struct mask_case *c, const struct part *p,
                     void (*fill)(struct generator *, size_t at, size_t keys, unsigned masked,
                                  bool nonzero_masks, void *data),
                     void *data) {
    size_t batch = strchr(p->letters, 'b') ? p->batch : 1;
    size_t heads = strchr(p->letters, 'h') ? p->n_heads : 1;
    size_t rows = strpbrk(p->letters, "qr") ? p->queries : 1;
    for (size_t b = 0; b < batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < rows; i++) {
                unsigned masked = next_below(g, 16) < c->dead ? 16 : c->masked;
                fill(g, b * p->strides[0] + h * p->strides[1] + i * p->strides[2], p->keys, masked,
                     c->nonzero_masks, data);
            }
        }
    }
}

static void fill_keep(struct generator *g, size_t at, size_t keys, unsigned masked,
                      bool nonzero_masks, void *data) {
    uint8_t *row = (uint8_t *)data + at;
    for (size_t j = 0; j < keys; j++) {
        bool nonzero = (next_below(g, 16) < masked) == nonzero_masks;
        row[j] = nonzero ? (uint8_t)(1 + next_below(g, 255)) : 0;
    }
}

static void fill_bias(struct generator *g, size_t at, size_t keys, unsigned masked,
                      bool nonzero_masks, void *data) {
    (void)nonzero_masks;
    float *row = (float *)data + at;
    for (size_t j = 0; j < keys; j++) {
        row[j] = next_below(g, 16) < masked ? -INFINITY : 3.0f * next_float(g);
    }
}

static const uint8_t *make_keep(struct generator *g, const struct mask_case *c,
                                const struct part *p, struct place place) {
    uint8_t *keep = guarded_alloc(p->elements, place.shift, place.side);
    each_row(g, c, p, fill_keep, keep);
    return keep;
}

void make_mask(struct generator *g, const struct mask_case *c, const mha_attention_args *a,
               struct place place, mha_mask *mask) {
    *mask = (mha_mask){
        .nonzero_masks = c->nonzero_masks,
        .q_lengths = make_lengths(c->q_lengths, a->batch, a->q_len, place.side),
        .kv_lengths = make_lengths(c->lengths, a->batch, a->kv_len, place.side),
        .causal = c->causal,
        .window_left = c->window_left,
        .window_right = c->window_right,
        .query_offset = c->offset,
    };
    if (c->keep) {
        struct part p = make_part(c->keep, a, mask);
        mask->keep = make_keep(g, c, &p, place);
        mask->keep_batch_stride = p.strides[0];
        mask->keep_head_stride = p.strides[1];
        mask->keep_query_stride = p.strides[2];
    }
    if (c->key_keep) {
        struct part p = make_part(c->key_keep, a, mask);
        mask->key_keep = make_keep(g, c, &p, place);
        mask->key_keep_batch_stride = p.strides[0];
    }
    if (c->bias) {
        struct part p = make_part(c->bias, a, mask);
        float *bias = guarded_floats(p.elements, place.shift, place.side);
        mask->bias = bias;
        mask->bias_batch_stride = p.strides[0];
        mask->bias_head_stride = p.strides[1];
        mask->bias_query_stride = p.strides[2];
        each_row(g, c, &p, fill_bias, bias);
    }
    if (c->slope != 0.0f) {
        float *slopes = guarded_floats(a->n_heads, place.shift, place.side);
        for (size_t h = 0; h < a->n_heads; h++) {
            slopes[h] = ldexpf(c->slope, -(int)h);
        }
        mask->alibi_slopes = slopes;
    }
    if (c->offsets) {
        int64_t *offsets = guarded_alloc(a->batch * sizeof *offsets, 0, place.side);
        for (size_t b = 0; b < a->batch; b++) {
            offsets[b] = c->offsets[b % 3];
        }
        mask->query_offsets = offsets;
    }
}
