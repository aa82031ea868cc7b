/* SPDX-License-Identifier: MIT
 *
 * Reads an attention layer's weights from a safetensors file. Shapes are checked, with both
 * numbers in words, before any data is read.
 */
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

/* Rows of the four projections; columns of each weight. */
struct sizes {
    size_t rows[ROLES];
    size_t columns[ROLES];
};

struct loader {
    const struct safetensors *file;
    const struct layer_names *names;
    struct sizes sizes;
};

/* ---- Shapes --------------------------------------------------------------- */

/* (out, in) of a weight, however it is stored. */
static bool weight_shape(const struct loader *l, const struct tensor *tensor, size_t *rows,
                         size_t *columns) {
    const struct shape *shape = &tensor->shape;
    if (shape->rank != 2 || shape->dim[0] == 0 || shape->dim[1] == 0) {
        return failure("%s: tensor '%s' has shape %s; a weight has two dimensions, not 0",
                       l->file->path, tensor->name, shape_text(shape).text);
    }
    *rows = shape->dim[l->names->transposed ? 1 : 0];
    *columns = shape->dim[l->names->transposed ? 0 : 1];
    return true;
}

/* One tensor with the rows of q, k and v. All heads have the same width. */
static bool split_packed(struct loader *l, size_t n_heads, size_t n_kv_heads) {
    const struct tensor *tensor = l->names->weight[ROLE_Q];
    size_t rows = 0, columns = 0;
    if (!weight_shape(l, tensor, &rows, &columns)) {
        return false;
    }
    if (n_heads == n_kv_heads && rows % 3 == 0 && rows / 3 % n_heads != 0) {
        return failure(
            "%s: %zu heads do not divide the %zu rows of each of q, k and v in tensor '%s' "
            "of shape %s",
            l->file->path, n_heads, rows / 3, tensor->name, shape_text(&tensor->shape).text);
    }
    /* The sum of the heads is at most `rows`, so it does not overflow. */
    bool divides = n_heads <= rows && n_kv_heads <= (rows - n_heads) / 2 &&
                   rows % (n_heads + 2 * n_kv_heads) == 0;
    if (!divides) {
        return failure(
            "%s: tensor '%s' of shape %s can't be cut into %zu query, %zu key and %zu value "
            "heads of one width",
            l->file->path, tensor->name, shape_text(&tensor->shape).text, n_heads, n_kv_heads,
            n_kv_heads);
    }
    size_t width = rows / (n_heads + 2 * n_kv_heads);
    for (size_t i = ROLE_Q; i <= ROLE_V; i++) {
        l->sizes.rows[i] = width * (i == ROLE_Q ? n_heads : n_kv_heads);
        l->sizes.columns[i] = columns;
    }
    return true;
}

static bool read_sizes(struct loader *l, size_t n_heads, size_t n_kv_heads) {
    const struct layer_names *names = l->names;
    struct sizes *s = &l->sizes;
    if (names->weight[ROLE_K] == NULL) {
        if (!split_packed(l, n_heads, n_kv_heads)) {
            return false;
        }
    } else {
        for (size_t i = ROLE_Q; i <= ROLE_V; i++) {
            if (!weight_shape(l, names->weight[i], &s->rows[i], &s->columns[i])) {
                return false;
            }
        }
    }
    return weight_shape(l, names->weight[ROLE_O], &s->rows[ROLE_O], &s->columns[ROLE_O]);
}

/* Derives the configuration from the shapes and checks that they agree. */
static bool read_config(struct loader *l, size_t n_heads, size_t n_kv_heads, mha_config *config) {
    const struct sizes *s = &l->sizes;
    const char *path = l->file->path;
    if (s->rows[ROLE_Q] % n_heads != 0) {
        return failure("%s: %zu heads do not divide the %zu rows of tensor '%s' of shape %s", path,
                       n_heads, s->rows[ROLE_Q], l->names->weight[ROLE_Q]->name,
                       shape_text(&l->names->weight[ROLE_Q]->shape).text);
    }
    size_t head_dim = s->rows[ROLE_Q] / n_heads;
    if (s->rows[ROLE_K] % head_dim != 0 || s->rows[ROLE_K] / head_dim != n_kv_heads) {
        const struct tensor *k = l->names->weight[ROLE_K];
        char hint[64] = "";
        if (s->rows[ROLE_K] % head_dim == 0) {
            snprintf(hint, sizeof hint, " (--kv-heads %zu fits)", s->rows[ROLE_K] / head_dim);
        }
        return failure("%s: tensor '%s' of shape %s is not %zu key/value heads of width %zu%s",
                       path, k->name, shape_text(&k->shape).text, n_kv_heads, head_dim, hint);
    }
    if (s->rows[ROLE_V] % n_kv_heads != 0) {
        const struct tensor *v = l->names->weight[ROLE_V];
        return failure("%s: tensor '%s' of shape %s is not %zu key/value heads of any width", path,
                       v->name, shape_text(&v->shape).text, n_kv_heads);
    }
    const struct tensor *o = l->names->weight[ROLE_O];
    size_t v_head_dim = s->rows[ROLE_V] / n_kv_heads;
    if (s->columns[ROLE_O] % n_heads != 0 || s->columns[ROLE_O] / n_heads != v_head_dim) {
        return failure(
            "%s: tensor '%s' of shape %s has an input width of %zu, not %zu heads of %zu", path,
            o->name, shape_text(&o->shape).text, s->columns[ROLE_O], n_heads, v_head_dim);
    }
    if (s->rows[ROLE_O] != s->columns[ROLE_Q]) {
        return failure("%s: tensor '%s' of shape %s has an output width of %zu, not %zu", path,
                       o->name, shape_text(&o->shape).text, s->rows[ROLE_O], s->columns[ROLE_Q]);
    }
    *config = (mha_config){.d_model = s->columns[ROLE_Q],
                           .n_heads = n_heads,
                           .n_kv_heads = n_kv_heads,
                           .head_dim = head_dim,
                           .v_head_dim = v_head_dim,
                           .k_dim = s->columns[ROLE_K],
                           .v_dim = s->columns[ROLE_V]};
    return true;
}

/* a + b, or if that overflows SIZE_MAX, which is no array's size. */
static size_t sum(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static bool check_biases(const struct loader *l) {
    const size_t *rows = l->sizes.rows;
    for (size_t i = 0; i < ROLES; i++) {
        const struct tensor *bias = l->names->bias[i];
        size_t length = rows[i];
        if (i == ROLE_Q && l->names->bias_packed) {
            length = sum(rows[ROLE_Q], sum(rows[ROLE_K], rows[ROLE_V]));
        }
        if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dim[0] != length)) {
            return failure("%s: tensor '%s' has shape %s, not (%zu,)", l->file->path, bias->name,
                           shape_text(&bias->shape).text, length);
        }
    }
    return true;
}

/* ---- Data ----------------------------------------------------------------- */

/* The weight as (out, in), in new memory. */
static float *read_weight(const struct loader *l, const struct tensor *tensor) {
    float *stored = safetensors_floats(l->file, tensor);
    if (stored == NULL || !l->names->transposed) {
        return stored;
    }
    size_t in = tensor->shape.dim[0], out = tensor->shape.dim[1];
    float *turned = malloc(in * out * sizeof *turned); /* stored has the same size */
    if (turned == NULL) {
        failure_memory();
    }
    for (size_t o = 0; turned != NULL && o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            turned[o * in + i] = stored[i * out + o];
        }
    }
    free(stored);
    return turned;
}

/* array + n, or NULL if there is no array. */
static const float *from(const float *array, size_t n) {
    return array == NULL ? NULL : array + n;
}

static bool read_data(const struct loader *l, struct weights *weights) {
    const struct layer_names *names = l->names;
    float **weight = weights->owned, **bias = weights->owned + ROLES;
    for (size_t i = 0; i < ROLES; i++) {
        if (names->weight[i] != NULL) {
            weight[i] = read_weight(l, names->weight[i]);
        }
        if (names->bias[i] != NULL) {
            bias[i] = safetensors_floats(l->file, names->bias[i]);
        }
        if ((names->weight[i] != NULL && weight[i] == NULL) ||
            (names->bias[i] != NULL && bias[i] == NULL)) {
            return false;
        }
    }
    const size_t *rows = l->sizes.rows;
    size_t k_row = rows[ROLE_Q], v_row = rows[ROLE_Q] + rows[ROLE_K];
    size_t width = l->sizes.columns[ROLE_Q];
    bool packed = names->weight[ROLE_K] == NULL;
    weights->arrays = (mha_weights){
        .q = weight[ROLE_Q],
        .k = packed ? weight[ROLE_Q] + k_row * width : weight[ROLE_K],
        .v = packed ? weight[ROLE_Q] + v_row * width : weight[ROLE_V],
        .o = weight[ROLE_O],
        .q_bias = bias[ROLE_Q],
        .k_bias = names->bias_packed ? from(bias[ROLE_Q], k_row) : bias[ROLE_K],
        .v_bias = names->bias_packed ? from(bias[ROLE_Q], v_row) : bias[ROLE_V],
        .o_bias = bias[ROLE_O],
    };
    return true;
}

bool weights_load(const char *path, const char *prefix, size_t n_heads, size_t n_kv_heads,
                  struct weights *weights) {
    struct safetensors file;
    struct layer_names names;
    *weights = (struct weights){0};
    if (!safetensors_open(path, &file)) {
        return false;
    }
    struct loader loader = {.file = &file, .names = &names};
    n_kv_heads = n_kv_heads != 0 ? n_kv_heads : n_heads;
    bool good = names_find(&file, prefix, &names) && read_sizes(&loader, n_heads, n_kv_heads) &&
                read_config(&loader, n_heads, n_kv_heads, &weights->config) &&
                check_biases(&loader) && read_data(&loader, weights);
    if (good) {
        weights->scheme = names.scheme;
    } else {
        weights_free(weights);
    }
    safetensors_close(&file);
    return good;
}

void weights_free(struct weights *weights) {
    for (size_t i = 0; i < 2 * ROLES; i++) {
        free(weights->owned[i]);
    }
    *weights = (struct weights){0};
}
