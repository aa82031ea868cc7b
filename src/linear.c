/* SPDX-License-Identifier: MIT
 *
 * Loops around the GEMM kernel: all panels stream past a tile of rows, which is copied
 * together first where it is no matrix yet or holds inputs. No ISA in here: the table's tuning
 * values say how large the pieces are. How the work is cut never shows in the result, since a
 * chain over depth goes on where the piece before left it in C.
 */
#include "linear.h"

#include <assert.h>
#include <string.h>

#include "workspace.h"

/* Pieces of almost equal size, none above limit: the size of the largest. */
static size_t even_piece(size_t total, size_t limit) {
    return mha_divide_up(total, mha_divide_up(total, limit));
}

/* Whether the rows are those of a matrix, and its stride. */
static bool is_matrix(const float *const *x, size_t rows, size_t depth, size_t *stride) {
    *stride = rows > 1 && x[1] > x[0] ? (size_t)(x[1] - x[0]) : depth;
    for (size_t i = 1; i < rows; i++) {
        if (x[i] != x[0] + i * *stride) {
            return false;
        }
    }
    return true;
}

void mha_linear_rows(const struct mha_kernels *kernels, const struct mha_linear *linear,
                     size_t rows, const float *const *x, bool inputs, float *scratch, float *out,
                     size_t row_stride, size_t group_stride) {
    assert(rows <= kernels->tile_rows);
    size_t groups = linear->groups;
    size_t width = linear->width;
    if (rows == 1 && group_stride == width && width % MHA_PANEL == 0) {
        width *= groups; /* one row of adjacent groups is one long row */
        groups = 1;
    }
    size_t tile_rows = even_piece(rows, kernels->gemm_rows);
    /* As deep as a tile's rows of A fit their share of L1. */
    size_t depth_limit = kernels->tile_depth * kernels->gemm_rows / tile_rows;
    size_t slab = linear->depth > 0 ? even_piece(linear->depth, depth_limit) : 0;
    /* With one tile of rows nothing is used twice: let the kernel have all columns. */
    size_t strip = rows > tile_rows ? kernels->gemm_columns : width;
    size_t panel_size = MHA_PANEL * linear->depth;
    /* While a strip's panels meet the tiles after the first, each of these fetches a part of
     * the next strip: its first tile would wait for memory. A single tile after the first would
     * wait for all of it instead. */
    size_t tiles = mha_divide_up(rows, tile_rows);
    size_t prefetch_step = mha_divide_up(MHA_PANEL * sizeof(float), tiles > 1 ? tiles - 1 : 1);
    size_t group_size = mha_panels_size(width, linear->depth);

    /* A slab of a matrix is copied too: at a stride of whole pages it would compete for few
     * sets of the cache. */
    size_t x_stride;
    bool copy = !is_matrix(x, rows, linear->depth, &x_stride) || inputs || slab < linear->depth;

    size_t from = 0;
    do {
        size_t depth = mha_min(slab, linear->depth - from);
        for (size_t i = 0; copy && i < rows; i++) {
            float *to = scratch + i * depth;
            if (inputs) {
                kernels->copy_inputs(1, depth, x[i] + from, 0, to, 0);
            } else {
                memcpy(to, x[i] + from, depth * sizeof *to);
            }
        }
        for (size_t g = 0; g < groups; g++) {
            for (size_t column = 0; column < width; column += strip) {
                size_t columns = mha_min(strip, width - column);
                const float *bias = linear->bias ? linear->bias + g * width + column : NULL;
                const float *panels = linear->panels + g * group_size +
                                      column / MHA_PANEL * panel_size + from * MHA_PANEL;
                uintptr_t next = (uintptr_t)panels +
                                 mha_divide_up(columns, MHA_PANEL) * panel_size * sizeof *panels;
                for (size_t row = 0; row < rows; row += tile_rows) {
                    float *c = out + g * group_stride + row * row_stride + column;
                    kernels->gemm(&(struct mha_gemm){
                        .rows = mha_min(tile_rows, rows - row),
                        .columns = columns,
                        .depth = depth,
                        .a = copy ? scratch + row * depth : x[row],
                        .a_stride = copy ? depth : x_stride,
                        .b = {.data = panels, .step = MHA_PANEL, .panel_step = panel_size},
                        .start = from > 0 ? c : bias,
                        .start_stride = from > 0 ? row_stride : 0,
                        .c = c,
                        .c_stride = row_stride,
                        .prefetch = row > 0 && tiles > 2
                                        ? next + (row / tile_rows - 1) * depth * prefetch_step
                                        : 0,
                        .prefetch_step = prefetch_step,
                    });
                }
            }
        }
        from += depth;
    } while (from < linear->depth);
}
