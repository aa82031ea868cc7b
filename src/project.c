/* SPDX-License-Identifier: MIT
 *
 * Projections. Rows of several sequences share a tile, so that the weights are read once for many
 * short ones. Rows that don't go straight to their destination are staged: work on projected rows
 * belongs there. No ISA in here.
 */
#include "project.h"

#include <string.h>

#include "workspace.h"

/* Rows of one sequence that go through the projection together. */
struct segment {
    size_t sequence, first, count;
};

/* Rows from one or more sequences. */
struct tile {
    struct segment segments[MHA_MAX_TILE_ROWS];
    const float *inputs[MHA_MAX_TILE_ROWS]; /* of each row */
    size_t n_segments, n_rows;
};

/* The next rows after *at, which it moves on. A sequence is cut at whole panels only. */
static void fill_tile(const struct mha_projection *p, struct segment *at, struct tile *tile) {
    tile->n_segments = 0;
    tile->n_rows = 0;
    while (at->sequence < p->batch) {
        size_t length = p->lengths ? p->lengths[at->sequence] : p->rows;
        size_t left = length - at->first;
        size_t room = p->kernels->tile_rows - tile->n_rows;
        size_t count = left <= room ? left : room / MHA_PANEL * MHA_PANEL;
        if (left > 0 && count == 0) {
            return;
        }
        if (count > 0) {
            tile->segments[tile->n_segments++] = (struct segment){at->sequence, at->first, count};
        }
        for (size_t i = 0; i < count; i++) {
            tile->inputs[tile->n_rows++] = p->input + at->sequence * p->input_batch_stride +
                                           (at->first + i) * p->input_row_stride;
        }
        at->first += count;
        if (at->first == length) {
            *at = (struct segment){.sequence = at->sequence + 1};
        }
    }
}

/* Where a segment's rows of group 0 go. */
static float *destination(const struct mha_projection *p, const struct segment *s) {
    return p->output + s->sequence * p->output_batch_stride +
           s->first * (p->panel_dim > 0 ? p->panel_dim : p->output_row_stride);
}

/* Whether all rows of the tile have places at even distances. */
static bool in_place(const struct mha_projection *p, const struct tile *tile) {
    for (size_t i = 0; i + 1 < tile->n_segments; i++) {
        const struct segment *s = &tile->segments[i];
        if (destination(p, s + 1) != destination(p, s) + s->count * p->output_row_stride) {
            return false;
        }
    }
    return p->panel_dim == 0;
}

/* A segment's staged rows, of which the first is row `row` of the tile, to their places. */
static void store(const struct mha_projection *p, const struct segment *s, size_t row) {
    size_t width = p->linear->width, group_size = p->kernels->tile_rows * width;
    for (size_t g = 0; g < p->linear->groups; g++) {
        const float *from = p->scratch->staged + g * group_size + row * width;
        float *to = destination(p, s) + g * p->output_group_stride;
        if (p->panel_dim > 0) {
            p->kernels->pack(s->count, p->panel_dim, from, width, to, false);
            continue;
        }
        for (size_t i = 0; i < s->count; i++) {
            memcpy(to + i * p->output_row_stride, from + i * width, width * sizeof *to);
        }
    }
}

void mha_project(const struct mha_projection *p) {
    const struct mha_linear *linear = p->linear;
    struct segment at = {0};
    while (at.sequence < p->batch) {
        struct tile tile;
        fill_tile(p, &at, &tile);
        if (tile.n_rows == 0) {
            continue;
        }
        if (in_place(p, &tile)) {
            mha_linear_rows(p->kernels, linear, tile.n_rows, tile.inputs, p->inputs,
                            p->scratch->rows, destination(p, &tile.segments[0]),
                            p->output_row_stride, p->output_group_stride);
            continue;
        }
        mha_linear_rows(p->kernels, linear, tile.n_rows, tile.inputs, p->inputs, p->scratch->rows,
                        p->scratch->staged, linear->width, p->kernels->tile_rows * linear->width);
        for (size_t i = 0, row = 0; i < tile.n_segments; row += tile.segments[i++].count) {
            store(p, &tile.segments[i], row);
        }
    }
}
