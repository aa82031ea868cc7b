/* SPDX-License-Identifier: MIT
 *
 * Layers: checking the configuration, packing the weights, copying.
 */
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "cpu.h"
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
    if (c.scale == 0.0f) {
        c.scale = mha_default_scale(c.head_dim);
    }
    mha_status status = mha_check_softmax(c.scale, c.softcap, c.masked_rows);
    if (status != MHA_OK) {
        return status;
    }
    *config = c;
    return MHA_OK;
}

static mha_status check_weights(const mha_weights *weights, size_t n_heads) {
    const char *missing = !weights->q ? "q" : !weights->k ? "k" : !weights->v ? "v" : NULL;
    if (missing) {
        return mha_fail(MHA_ERROR_ARGUMENT, "weights->%s is NULL", missing);
    }
    if (!weights->o && weights->o_bias) {
        return mha_fail(MHA_ERROR_ARGUMENT, "weights->o_bias is given, but weights->o is NULL");
    }
    return mha_check_sinks("weights->sinks", weights->sinks, n_heads);
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

/* The layout of a layer in one piece of memory; the first array is the struct itself. */
static bool place_layer(struct mha_arena *arena, struct mha_layer *layer, const mha_config *c,
                        const mha_weights *w) {
    size_t depth, most = SIZE_MAX - MHA_PANEL;
    if (c->head_dim > most || c->v_head_dim > most ||
        !MHA_PRODUCT(&depth, c->n_heads, c->v_head_dim)) {
        return false;
    }
    mha_arena_take(arena, 1, sizeof *layer);
    layer->sinks = w->sinks ? mha_arena_take(arena, c->n_heads, sizeof(float)) : NULL;
    return place_linear(arena, &layer->q, c->n_heads, mha_padded(c->head_dim), c->d_model,
                        w->q_bias) &&
           place_linear(arena, &layer->k, c->n_kv_heads, mha_padded(c->head_dim), c->k_dim,
                        w->k_bias) &&
           place_linear(arena, &layer->v, c->n_kv_heads, mha_padded(c->v_head_dim), c->v_dim,
                        w->v_bias) &&
           (!w->o || place_linear(arena, &layer->o, 1, c->d_model, depth, w->o_bias));
}

/* Packs [groups][dim][depth], subnormals as zeros; a group's rows beyond dim become zeros. */
static void pack_linear(const struct mha_kernels *kernels, const struct mha_linear *linear,
                        size_t dim, const float *weights, const float *bias) {
    size_t group_size = mha_panels_size(linear->width, linear->depth);
    for (size_t g = 0; g < linear->groups; g++) {
        kernels->pack(dim, linear->depth, weights + g * dim * linear->depth, linear->depth,
                      linear->panels + g * group_size, true);
        if (bias) {
            float *to = linear->bias + g * linear->width;
            memset(to, 0, linear->width * sizeof *to);
            kernels->copy_inputs(1, dim, bias + g * dim, 0, to, 0);
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
    mha_fpenv saved = mha_fpenv_enter(); /* the default scale and checks are arithmetic too */
    mha_status status = complete_config(config, &made.config);
    status = status ? status : check_weights(weights, made.config.n_heads);
    mha_fpenv_leave(saved);
    if (status != MHA_OK) {
        return status;
    }
    /* Packing is the same in all ISAs. */
    const struct mha_kernels *kernels = mha_dispatch(MHA_ISA_AUTO, mha_cpu_features());
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
    saved = mha_fpenv_enter(); /* packing compares numbers */
    pack_linear(kernels, &made.q, c->head_dim, weights->q, weights->q_bias);
    pack_linear(kernels, &made.k, c->head_dim, weights->k, weights->k_bias);
    pack_linear(kernels, &made.v, c->v_head_dim, weights->v, weights->v_bias);
    if (weights->o) {
        pack_linear(kernels, &made.o, c->d_model, weights->o, weights->o_bias);
    }
    if (weights->sinks) {
        memcpy(made.sinks, weights->sinks, c->n_heads * sizeof *made.sinks);
    }
    mha_fpenv_leave(saved);
    /* The query heads of a group stand side by side: together they are one group of outputs. */
    made.q.groups = c->n_kv_heads;
    made.q.width *= c->n_heads / c->n_kv_heads;
    *layer = (struct mha_layer *)(void *)arena.base;
    **layer = made;
    return MHA_OK;
}

/* The same place in another layer's memory. */
static void move(float **array, const char *from, char *to) {
    if (*array) {
        *array = (float *)(void *)(to + ((const char *)*array - from));
    }
}

static void move_linear(struct mha_linear *linear, const char *from, char *to) {
    move(&linear->panels, from, to);
    move(&linear->bias, from, to);
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
    move(&copy->sinks, from, to);
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
