/* SPDX-License-Identifier: MIT
 *
 * Reads the arrays of one attention call and checks that they fit the layer and one
 * another, naming the file and both numbers where they don't.
 */
#include "inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "npy.h"

/* ---- Query, key, value ---------------------------------------------------- */

static bool floats_wanted(const char *path, const struct npy *npy) {
    return npy->element.kind == ELEMENT_FLOAT ||
           failure("%s: %s values, where float16, float32 or float64 are needed", path,
                   npy_type_text(npy).text);
}

/* One (batch, length, width) or (length, width) array, which is batch 1. */
static bool load_sequence(const char *path, size_t width, const char *width_name, size_t *batch,
                          size_t *length, bool *batched, float **out) {
    struct npy npy;
    if (!npy_load(path, &npy)) {
        return false;
    }
    const struct shape *shape = &npy.shape;
    bool good = floats_wanted(path, &npy);
    if (good && shape->rank != 2 && shape->rank != 3) {
        good = failure("%s: shape %s is neither (batch, length, width) nor (length, width)", path,
                       shape_text(shape).text);
    }
    if (good && shape->dim[shape->rank - 1] != width) {
        good = failure("%s: width %zu of shape %s is not the layer's %s %zu", path,
                       shape->dim[shape->rank - 1], shape_text(shape).text, width_name, width);
    }
    if (good) {
        *batched = shape->rank == 3;
        *batch = *batched ? shape->dim[0] : 1;
        *length = shape->dim[shape->rank - 2];
        *out = npy_floats(&npy);
        good = *out != NULL;
    }
    npy_free(&npy);
    return good;
}

static bool load_sequences(const struct input_paths *paths, const mha_config *config,
                           struct inputs *inputs) {
    mha_forward_args *args = &inputs->args;
    size_t batch, length;
    bool batched;
    if (!load_sequence(paths->query, config->d_model, "d_model", &args->batch, &args->q_len,
                       &inputs->batched, &inputs->query)) {
        return false;
    }
    args->query = inputs->query;
    args->kv_len = args->q_len;
    if (paths->key != NULL) {
        if (!load_sequence(paths->key, config->k_dim, "k_dim", &batch, &args->kv_len, &batched,
                           &inputs->key)) {
            return false;
        }
        if (batch != args->batch) {
            return failure("%s: batch %zu is not the query's %zu", paths->key, batch, args->batch);
        }
        args->key = inputs->key;
    } else if (config->k_dim != config->d_model) {
        return failure("--key is needed: the layer's k_dim %zu is not its d_model %zu",
                       config->k_dim, config->d_model);
    }
    if (paths->value != NULL) {
        if (!load_sequence(paths->value, config->v_dim, "v_dim", &batch, &length, &batched,
                           &inputs->value)) {
            return false;
        }
        if (batch != args->batch || length != args->kv_len) {
            return failure("%s: batch %zu and length %zu are not the %s's %zu and %zu",
                           paths->value, batch, length, paths->key != NULL ? "key" : "query",
                           args->batch, args->kv_len);
        }
        args->value = inputs->value;
    } else if (config->v_dim != config->k_dim) {
        return failure("--value is needed: the layer's v_dim %zu is not its k_dim %zu",
                       config->v_dim, config->k_dim);
    }
    return true;
}

/* ---- Masks ---------------------------------------------------------------- */

/* Strides of a C-order array whose shape broadcasts from the right to full[4]: 0 for
 * dimensions of 1, which repeat. False if it doesn't broadcast. */
static bool broadcast(const struct shape *shape, const size_t full[4], size_t strides[4]) {
    size_t stride = 1;
    for (size_t i = 0; i < 4; i++) {
        strides[i] = 0;
    }
    if (shape->rank > 4) {
        return false;
    }
    for (size_t i = 0; i < shape->rank; i++) {
        size_t from_right = shape->rank - 1 - i;
        size_t dim = shape->dim[from_right];
        if (dim != 1 && dim != full[3 - i]) {
            return false;
        }
        strides[3 - i] = dim == 1 ? 0 : stride;
        stride *= dim;
    }
    return true;
}

/* Repeats each of `rows` elements of `size` bytes `keys` times. NULL if out of memory. */
static void *repeat_keys(const void *column, size_t rows, size_t keys, size_t size) {
    const unsigned char *in = column;
    unsigned char *out =
        keys != 0 && rows > (SIZE_MAX - 1) / size / keys ? NULL : malloc(rows * keys * size + 1);
    if (out == NULL) {
        failure_memory();
        return NULL;
    }
    for (size_t i = 0; i < rows * keys; i++) {
        memcpy(out + i * size, in + i / keys * size, size);
    }
    return out;
}

/* The mask's values as bytes or floats; the keys of a row are contiguous. */
static void *mask_values(const struct npy *npy, bool keeps, size_t keys, bool *expanded) {
    size_t size = keeps ? sizeof(uint8_t) : sizeof(float);
    void *values = NULL;
    if (!keeps) {
        values = npy_floats(npy);
    } else if ((values = malloc(npy->count + 1)) == NULL) {
        failure_memory();
    }
    for (size_t i = 0; values != NULL && keeps && i < npy->count; i++) {
        ((uint8_t *)values)[i] = *npy_element(npy, i);
    }
    size_t rank = npy->shape.rank;
    *expanded = keys != 1 && (rank == 0 || npy->shape.dim[rank - 1] == 1);
    if (values != NULL && *expanded) {
        void *column = values;
        values = repeat_keys(column, npy->count, keys, size);
        free(column);
    }
    return values;
}

static bool use_mask(const char *path, const struct npy *npy, const mha_config *config,
                     struct inputs *inputs) {
    const size_t full[4] = {inputs->args.batch, config->n_heads, inputs->args.q_len,
                            inputs->args.kv_len};
    size_t strides[4];
    bool keeps = npy->element.kind == ELEMENT_BOOL ||
                 (npy->element.kind == ELEMENT_UNSIGNED && npy->element.size == 1);
    if (!keeps && npy->element.kind != ELEMENT_FLOAT) {
        return failure("%s: %s values make no mask: bool or uint8 keeps where nonzero, a float is "
                       "added",
                       path, npy_type_text(npy).text);
    }
    if (!broadcast(&npy->shape, full, strides)) {
        return failure("%s: shape %s does not broadcast to (batch, heads, q_len, kv_len) = %s",
                       path, shape_text(&npy->shape).text,
                       shape_text(&(struct shape){4, {full[0], full[1], full[2], full[3]}}).text);
    }
    if (keeps ? inputs->keep != NULL : inputs->bias != NULL) {
        return failure("%s: a second mask that %s: give one of bool or uint8 and one of floats",
                       path, keeps ? "keeps" : "is added");
    }
    bool expanded;
    void *values = mask_values(npy, keeps, full[3], &expanded);
    if (values == NULL) {
        return false;
    }
    size_t widen = expanded ? full[3] : 1;
    if (keeps) {
        inputs->keep = values;
        inputs->mask.keep = inputs->keep;
        inputs->mask.keep_batch_stride = strides[0] * widen;
        inputs->mask.keep_head_stride = strides[1] * widen;
        inputs->mask.keep_query_stride = strides[2] * widen;
    } else {
        inputs->bias = values;
        inputs->mask.bias = inputs->bias;
        inputs->mask.bias_batch_stride = strides[0] * widen;
        inputs->mask.bias_head_stride = strides[1] * widen;
        inputs->mask.bias_query_stride = strides[2] * widen;
    }
    return true;
}

/* ---- Lengths and slopes --------------------------------------------------- */

static bool use_kv_lengths(const char *path, const struct npy *npy, const mha_config *config,
                           struct inputs *inputs) {
    (void)config;
    size_t batch = inputs->args.batch;
    bool is_signed = npy->element.kind == ELEMENT_SIGNED;
    if (!is_signed && npy->element.kind != ELEMENT_UNSIGNED) {
        return failure("%s: %s values, where integers are needed", path, npy_type_text(npy).text);
    }
    if (npy->shape.rank > 1 || npy->count != batch) {
        return failure("%s: shape %s is not (batch,) = (%zu,)", path, shape_text(&npy->shape).text,
                       batch);
    }
    inputs->kv_lengths = calloc(batch + 1, sizeof *inputs->kv_lengths);
    if (inputs->kv_lengths == NULL) {
        return failure_memory();
    }
    for (size_t i = 0; i < batch; i++) {
        uint64_t bits = element_bits(&npy->element, npy_element(npy, i));
        if (is_signed && bits > INT64_MAX) {
            return failure("%s: length %zu is negative (%lld)", path, i, (long long)bits);
        }
        if (bits > inputs->args.kv_len) {
            return failure("%s: length %zu is %llu, beyond the %zu keys there are", path, i,
                           (unsigned long long)bits, inputs->args.kv_len);
        }
        inputs->kv_lengths[i] = (size_t)bits;
    }
    inputs->mask.kv_lengths = inputs->kv_lengths;
    return true;
}

/* Press et al. 2021: 2^(-8 i / n) for i = 1 .. n where n is a power of two; else those of
 * the power of two below, then every second one of the power of two above. */
static float alibi_slope(size_t head, size_t n_heads) {
    size_t power = 1;
    while (power <= n_heads / 2) {
        power *= 2;
    }
    double step = head < power ? 8 * (double)(head + 1) : 4 * (double)(2 * (head - power) + 1);
    return (float)exp2(-step / (double)power);
}

static bool use_slopes(const char *path, const struct npy *npy, const mha_config *config,
                       struct inputs *inputs) {
    if (!floats_wanted(path, npy)) {
        return false;
    }
    if (npy->shape.rank != 1 || npy->count != config->n_heads) {
        return failure("%s: shape %s is not (heads,) = (%zu,)", path, shape_text(&npy->shape).text,
                       config->n_heads);
    }
    inputs->slopes = npy_floats(npy);
    inputs->mask.alibi_slopes = inputs->slopes;
    return inputs->slopes != NULL;
}

static bool make_slopes(size_t n_heads, struct inputs *inputs) {
    inputs->slopes = calloc(n_heads, sizeof *inputs->slopes);
    for (size_t i = 0; inputs->slopes != NULL && i < n_heads; i++) {
        inputs->slopes[i] = alibi_slope(i, n_heads);
    }
    inputs->mask.alibi_slopes = inputs->slopes;
    return inputs->slopes != NULL || failure_memory();
}

/* ---- All of them ---------------------------------------------------------- */

/* Reads a file, if one is given, and calls use(). */
static bool load(const char *path, const mha_config *config, struct inputs *inputs,
                 bool (*use)(const char *path, const struct npy *npy, const mha_config *config,
                             struct inputs *inputs)) {
    struct npy npy;
    if (path == NULL) {
        return true;
    }
    bool good = npy_load(path, &npy) && use(path, &npy, config, inputs);
    npy_free(&npy);
    return good;
}

bool inputs_load(const struct input_paths *paths, const mha_config *config, struct inputs *inputs) {
    *inputs = (struct inputs){0};
    inputs->args.mask = &inputs->mask;
    bool make = paths->alibi != NULL && strcmp(paths->alibi, "auto") == 0;
    bool good = load_sequences(paths, config, inputs) &&
                load(paths->mask[0], config, inputs, use_mask) &&
                load(paths->mask[1], config, inputs, use_mask) &&
                load(paths->kv_lengths, config, inputs, use_kv_lengths) &&
                (make ? make_slopes(config->n_heads, inputs)
                      : load(paths->alibi, config, inputs, use_slopes));
    if (!good) {
        inputs_free(inputs);
    }
    return good;
}

void inputs_free(struct inputs *inputs) {
    free(inputs->query);
    free(inputs->key);
    free(inputs->value);
    free(inputs->bias);
    free(inputs->slopes);
    free(inputs->keep);
    free(inputs->kv_lengths);
    *inputs = (struct inputs){0};
}
