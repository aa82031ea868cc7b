/* SPDX-License-Identifier: MIT
 *
 * Layers: checking the configuration, packing the weights, copying.
 */
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "dispatch.h"
#include "error.h"
#include "fpenv.h"
#include "workspace.h"

static mha_status complete_config(const mha_config *given, mha_config *config) {
    mha_config c = *given;
    if (c.d_model == 0 || c.n_heads == 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is 0", c.d_model ? "n_heads" : "d_model");
    }
    if (c.n_kv_heads == 0) {
        c.n_kv_heads = c.n_heads;
    }
    if (c.n_heads % c.n_kv_heads != 0) {
        return mha_fail(MHA_ERROR_ARGUMENT, "n_kv_heads (%zu) does not divide n_heads (%zu)",
                        c.n_kv_heads, c.n_heads);
    }
    if (c.head_dim == 0) {
        if (c.d_model % c.n_heads != 0) {
            return mha_fail(MHA_ERROR_ARGUMENT, "n_heads (%zu) does not divide d_model (%zu)",
                            c.n_heads, c.d_model);
        }
        c.head_dim = c.d_model / c.n_heads;
    }
    c.v_head_dim = c.v_head_dim ? c.v_head_dim : c.head_dim;
    c.k_dim = c.k_dim ? c.k_dim : c.d_model;
    c.v_dim = c.v_dim ? c.v_dim : c.d_model;
    if (!isfinite(c.scale)) {
        return mha_fail(MHA_ERROR_ARGUMENT, "scale (%g) is not finite", (double)c.scale);
    }
    if (c.scale == 0.0f) {
        c.scale = mha_default_scale(c.head_dim);
    }
    if (c.masked_rows != MHA_MASKED_ROWS_ZERO && c.masked_rows != MHA_MASKED_ROWS_UNIFORM) {
        return mha_fail(MHA_ERROR_ARGUMENT, "masked_rows (%d) is not a member of mha_masked_rows",
                        (int)c.masked_rows);
    }
    *config = c;
    return MHA_OK;
}

static mha_status check_weights(const mha_weights *weights) {
    const char *missing = !weights->q   ? "q"
                          : !weights->k ? "k"
                          : !weights->v ? "v"
                          : !weights->o ? "o"
                                        : NULL;
    if (missing) {
        return mha_fail(MHA_ERROR_ARGUMENT, "weights->%s is NULL", missing);
    }
    return MHA_OK;
}

/* Fails if the matrix, padded, doesn't fit memory. */
static bool place_linear(struct mha_arena *arena, struct mha_linear *linear, size_t groups,
                         size_t width, size_t depth, bool bias) {
    size_t columns, padded, size;
    if (__builtin_add_overflow(width, MHA_PANEL - 1, &padded)) {
        return false;
    }
    padded = padded / MHA_PANEL * MHA_PANEL;
    if (!MHA_PRODUCT(&size, groups, padded, depth) || !MHA_PRODUCT(&columns, groups, width)) {
        return false;
    }
    linear->groups = groups;
    linear->width = width;
    linear->depth = depth;
    linear->panels = mha_arena_take(arena, size, sizeof(float));
    linear->bias = bias ? mha_arena_take(arena, columns, sizeof(float)) : NULL;
    return !arena->overflow;
}

/* The layout of a layer in one block; the first array is the struct itself. */
static bool place_layer(struct mha_arena *arena, struct mha_layer *layer, const mha_config *c,
                        const mha_weights *w) {
    size_t depth, most = SIZE_MAX - MHA_PANEL;
    if (c->head_dim > most || c->v_head_dim > most ||
        !MHA_PRODUCT(&depth, c->n_heads, c->v_head_dim)) {
        return false;
    }
    mha_arena_take(arena, 1, sizeof *layer);
    return place_linear(arena, &layer->q, c->n_heads, mha_padded(c->head_dim), c->d_model,
                        w->q_bias) &&
           place_linear(arena, &layer->k, c->n_kv_heads, mha_padded(c->head_dim), c->k_dim,
                        w->k_bias) &&
           place_linear(arena, &layer->v, c->n_kv_heads, mha_padded(c->v_head_dim), c->v_dim,
                        w->v_bias) &&
           place_linear(arena, &layer->o, 1, c->d_model, depth, w->o_bias);
}

/* Packs [groups][dim][depth]; a group's rows beyond dim become zeros. */
static void pack_linear(const struct mha_kernels *kernels, const struct mha_linear *linear,
                        size_t dim, const float *weights, const float *bias) {
    size_t group_size = mha_panels_size(linear->width, linear->depth);
    for (size_t g = 0; g < linear->groups; g++) {
        kernels->transpose(dim, linear->depth, weights + g * dim * linear->depth, linear->depth,
                           linear->panels + g * group_size);
        if (bias) {
            float *to = linear->bias + g * linear->width;
            memset(to, 0, linear->width * sizeof *to);
            memcpy(to, bias + g * dim, dim * sizeof *to);
        }
    }
}

mha_status mha_layer_create(const mha_config *config, const mha_weights *weights,
                            mha_layer **layer) {
    if (!config || !weights || !layer) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL",
                        !config    ? "config"
                        : !weights ? "weights"
                                   : "layer");
    }
    struct mha_layer made = {0};
    const struct mha_kernels *kernels;
    mha_fpenv saved = mha_fpenv_enter(); /* the default scale is arithmetic too */
    mha_status status = complete_config(config, &made.config);
    mha_fpenv_leave(saved);
    status = status ? status : check_weights(weights);
    status = status ? status : mha_dispatch_select(MHA_ISA_AUTO, &kernels);
    if (status != MHA_OK) {
        return status;
    }
    struct mha_arena arena = {0};
    const mha_config *c = &made.config;
    if (!place_layer(&arena, &made, c, weights)) {
        return mha_fail(MHA_ERROR_ARGUMENT,
                        "the weights of d_model %zu, n_heads %zu, head_dim %zu, v_head_dim %zu, "
                        "k_dim %zu, v_dim %zu are larger than memory can be",
                        c->d_model, c->n_heads, c->head_dim, c->v_head_dim, c->k_dim, c->v_dim);
    }
    made.bytes = arena.used;
    arena = (struct mha_arena){.base = mha_allocate(made.bytes)};
    if (!arena.base) {
        return mha_fail_memory("a layer's packed weights", made.bytes);
    }
    place_layer(&arena, &made, c, weights);
    pack_linear(kernels, &made.q, c->head_dim, weights->q, weights->q_bias);
    pack_linear(kernels, &made.k, c->head_dim, weights->k, weights->k_bias);
    pack_linear(kernels, &made.v, c->v_head_dim, weights->v, weights->v_bias);
    pack_linear(kernels, &made.o, c->d_model, weights->o, weights->o_bias);
    *layer = (struct mha_layer *)(void *)arena.base;
    **layer = made;
    return MHA_OK;
}

/* The same place in another block. */
static void move_linear(struct mha_linear *linear, const char *from, char *to) {
    linear->panels = (float *)(void *)(to + ((const char *)linear->panels - from));
    if (linear->bias) {
        linear->bias = (float *)(void *)(to + ((const char *)linear->bias - from));
    }
}

static struct mha_layer *copy_layer(const struct mha_layer *layer) {
    char *to = mha_allocate(layer->bytes);
    if (!to) {
        return NULL;
    }
    const char *from = (const char *)layer;
    memcpy(to, from, layer->bytes);
    struct mha_layer *copy = (struct mha_layer *)(void *)to;
    move_linear(&copy->q, from, to);
    move_linear(&copy->k, from, to);
    move_linear(&copy->v, from, to);
    move_linear(&copy->o, from, to);
    return copy;
}

mha_status mha_layer_clone(const mha_layer *layer, size_t n, mha_layer **out) {
    if (!layer || (!out && n > 0)) {
        return mha_fail(MHA_ERROR_ARGUMENT, "%s is NULL", layer ? "out" : "layer");
    }
    size_t size;
    if (!MHA_PRODUCT(&size, n, sizeof *out)) {
        return mha_fail(MHA_ERROR_ARGUMENT, "n (%zu) clones are more than memory can hold", n);
    }
    if (n == 0) {
        return MHA_OK;
    }
    /* The caller's array stays as it was unless all copies could be made. */
    mha_layer **made = malloc(size);
    if (!made) {
        return mha_fail_memory("a list of clones", size);
    }
    for (size_t i = 0; i < n; i++) {
        made[i] = copy_layer(layer);
        if (!made[i]) {
            while (i > 0) {
                free(made[--i]);
            }
            free(made);
            return mha_fail_memory("a clone of a layer", layer->bytes);
        }
    }
    memcpy(out, made, size);
    free(made);
    return MHA_OK;
}

const mha_config *mha_layer_config(const mha_layer *layer) {
    return &layer->config;
}

void mha_layer_destroy(mha_layer **layer) {
    if (layer) {
        free(*layer);
        *layer = NULL;
    }
}
