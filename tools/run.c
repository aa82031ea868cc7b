/* SPDX-License-Identifier: MIT
 *
 * mha run: one attention layer from files to files. Everything is checked before anything
 * is computed, and no output appears before all of them are written.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "failure.h"
#include "inputs.h"
#include "npy.h"
#include "output.h"
#include "run_arguments.h"
#include "weights.h"

/* A result: its shape, its values and the file to write it to, if any. */
struct result {
    const char *path;
    struct shape shape;
    float *values;
};

enum { OUTPUT, ATTENTION, N_RESULTS };

struct run {
    struct run_arguments asked;
    struct weights weights;
    struct inputs inputs;
    struct npy expected;
    mha_layer *layer;
    mha_context *context;
    struct result results[N_RESULTS];
    struct output files[N_RESULTS];
    double milliseconds;
};

static bool fail_library(const char *prefix, const char *separator) {
    return failure("%s%s%s", prefix, separator, mha_error_message());
}

static bool load(struct run *run) {
    const struct run_arguments *asked = &run->asked;
    if (mha_context_create(&asked->context, &run->context) != MHA_OK) {
        return fail_library("", "");
    }
    if (!weights_load(asked->weights, asked->prefix, asked->n_heads, asked->n_kv_heads,
                      &run->weights)) {
        return false;
    }
    run->weights.config.scale = (float)asked->scale;
    run->weights.config.masked_rows = asked->masked_rows;
    mha_status status = mha_layer_create(&run->weights.config, &run->weights.arrays, &run->layer);
    if (status != MHA_OK) {
        bool at_fault = status == MHA_ERROR_ARGUMENT; /* the file, not memory */
        return fail_library(at_fault ? asked->weights : "", at_fault ? ": " : "");
    }
    if (!inputs_load(&asked->inputs, mha_layer_config(run->layer), &run->inputs)) {
        return false;
    }
    run->inputs.mask.causal = asked->causal;
    run->inputs.mask.window_left = asked->window_left;
    run->inputs.mask.window_right = asked->window_right;
    run->inputs.mask.query_offset = asked->query_offset;
    return true;
}

static void shape_results(struct run *run) {
    const mha_forward_args *args = &run->inputs.args;
    const mha_config *config = &run->weights.config;
    struct shape output = {3, {args->batch, args->q_len, config->d_model}};
    struct shape attention = {4, {args->batch, config->n_heads, args->q_len, args->kv_len}};
    if (!run->inputs.batched) {
        output = (struct shape){2, {args->q_len, config->d_model}};
        attention = (struct shape){3, {config->n_heads, args->q_len, args->kv_len}};
    }
    run->results[OUTPUT] = (struct result){run->asked.output, output, NULL};
    run->results[ATTENTION] = (struct result){run->asked.attention, attention, NULL};
}

static bool load_expected(struct run *run) {
    const char *path = run->asked.expect;
    if (path == NULL) {
        return true;
    }
    if (!npy_load(path, &run->expected)) {
        return false;
    }
    if (run->expected.element.kind != ELEMENT_FLOAT) {
        return failure("%s: %s values, where floats are needed", path,
                       npy_type_text(&run->expected).text);
    }
    const struct shape *output = &run->results[OUTPUT].shape;
    return shape_equal(&run->expected.shape, output) ||
           failure("%s: shape %s is not the output's %s", path,
                   shape_text(&run->expected.shape).text, shape_text(output).text);
}

/* Memory and files for the results. */
static bool prepare(struct run *run) {
    for (size_t i = 0; i < N_RESULTS; i++) {
        struct result *result = &run->results[i];
        size_t bytes;
        if (i == ATTENTION && result->path == NULL) {
            continue;
        }
        if (shape_bytes(&result->shape, sizeof *result->values, &bytes) && bytes < SIZE_MAX) {
            result->values = malloc(bytes + 1);
        }
        if (result->values == NULL) {
            return failure("out of memory for an array of shape %s",
                           shape_text(&result->shape).text);
        }
        if (result->path != NULL && !output_check(&run->files[i], result->path)) {
            return false;
        }
    }
    return !output_same(&run->files[OUTPUT], &run->files[ATTENTION]) ||
           failure("%s: asked to hold two outputs", run->results[ATTENTION].path);
}

static bool compute(struct run *run) {
    mha_forward_args *args = &run->inputs.args;
    args->output = run->results[OUTPUT].values;
    args->attention = run->results[ATTENTION].values;
    struct timespec start, end;
    if (mha_reserve(run->context, run->layer, args->batch, args->q_len, args->kv_len) != MHA_OK) {
        return fail_library("", "");
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    mha_status status = mha_forward(run->context, run->layer, args);
    clock_gettime(CLOCK_MONOTONIC, &end);
    run->milliseconds =
        (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) * 1e-6;
    return status == MHA_OK || fail_library("", "");
}

static bool write_results(struct run *run) {
    for (size_t i = 0; i < N_RESULTS; i++) {
        const struct result *result = &run->results[i];
        if (result->path == NULL) {
            continue;
        }
        if (!output_open(&run->files[i])) {
            return false;
        }
        if (!npy_write(run->files[i].stream, &result->shape, result->values)) {
            return failure("%s: %s", result->path, strerror(errno));
        }
        if (!output_finish(&run->files[i])) {
            return false;
        }
    }
    return output_commit(&run->files[OUTPUT]) && output_commit(&run->files[ATTENTION]);
}

/* ---- What it says --------------------------------------------------------- */

static void print_array(FILE *to, const char *label, const struct shape *shape, const char *path) {
    if (path != NULL) {
        fprintf(to, "%-11s %-20s  %s\n", label, shape_text(shape).text, path);
    }
}

static void print_biases(FILE *to, const mha_weights *arrays) {
    const struct {
        const char *name;
        const float *values;
    } biases[ROLES] = {{" q", arrays->q_bias},
                       {" k", arrays->k_bias},
                       {" v", arrays->v_bias},
                       {" o", arrays->o_bias}};
    size_t n = 0;
    fprintf(to, "biases     ");
    for (size_t i = 0; i < ROLES; i++) {
        fputs(biases[i].values != NULL ? biases[i].name : "", to);
        n += biases[i].values != NULL;
    }
    fputs(n > 0 ? "\n" : " none\n", to);
}

static void print_summary(const struct run *run, FILE *to) {
    const mha_config *config = mha_layer_config(run->layer);
    const mha_forward_args *args = &run->inputs.args;
    const struct input_paths *paths = &run->asked.inputs;
    struct shape query = {3, {args->batch, args->q_len, config->d_model}};
    struct shape key = {3, {args->batch, args->kv_len, config->k_dim}};
    struct shape value = {3, {args->batch, args->kv_len, config->v_dim}};
    fprintf(to, "weights     %s, by the names of %s\n", run->asked.weights, run->weights.scheme);
    print_biases(to, &run->weights.arrays);
    fprintf(to, "layer       d_model %zu, %zu heads of %zu", config->d_model, config->n_heads,
            config->head_dim);
    if (config->v_head_dim != config->head_dim) {
        fprintf(to, " (values %zu)", config->v_head_dim);
    }
    if (config->n_kv_heads != config->n_heads) {
        fprintf(to, ", %zu key/value heads", config->n_kv_heads);
    }
    fprintf(to, "\n");
    print_array(to, "query", &query, paths->query);
    print_array(to, "key", &key, paths->key);
    print_array(to, "value", &value, paths->value);
    print_array(to, "output", &run->results[OUTPUT].shape, run->asked.output);
    print_array(to, "attention", &run->results[ATTENTION].shape, run->asked.attention);
    fprintf(to, "isa         %s\n", mha_isa_name(mha_context_isa(run->context)));
    fprintf(to, "time        %.3f ms for one call of mha_forward, its workspace reserved before\n",
            run->milliseconds);
}

/* How far the output is from the expected array, of the same shape, in double. */
struct difference {
    double largest;  /* |output - expected|; infinite where only one of them is NaN */
    double scale;    /* largest finite |expected| */
    double relative; /* largest / scale; 0 for 0 / 0 */
    size_t index;    /* of the largest, in C order */
};

static struct difference compare(const struct npy *expected, const float *output) {
    struct difference found = {0};
    for (size_t i = 0; i < expected->count; i++) {
        double want = element_float(&expected->element, npy_element(expected, i));
        double have = (double)output[i];
        double difference = fabs(have - want);
        if (have == want || (isnan(have) && isnan(want))) {
            difference = 0; /* equal infinities, too */
        } else if (isnan(difference)) {
            difference = INFINITY;
        }
        if (difference > found.largest) {
            found.largest = difference;
            found.index = i;
        }
        if (isfinite(want) && fabs(want) > found.scale) {
            found.scale = fabs(want);
        }
    }
    found.relative = found.largest == 0 ? 0 : found.largest / found.scale;
    return found;
}

static bool judge(const struct run *run, FILE *to) {
    const struct run_arguments *asked = &run->asked;
    if (asked->expect == NULL) {
        return true;
    }
    struct difference found = compare(&run->expected, run->results[OUTPUT].values);
    fprintf(to, "difference  %.3g at most (element %zu), %.3g of the largest |expected|, %.6g\n",
            found.largest, found.index, found.relative, found.scale);
    return asked->tolerance_text == NULL || found.relative <= asked->tolerance ||
           failure("%s: the output differs by %.3g of the largest |expected|, more than %s",
                   asked->expect, found.relative, asked->tolerance_text);
}

static void release(struct run *run) {
    for (size_t i = 0; i < N_RESULTS; i++) {
        output_discard(&run->files[i]);
        free(run->results[i].values);
    }
    npy_free(&run->expected);
    inputs_free(&run->inputs);
    weights_free(&run->weights);
    mha_layer_destroy(&run->layer);
    mha_context_destroy(&run->context);
}

static bool run_all(struct run *run) {
    if (!load(run)) {
        return false;
    }
    shape_results(run);
    if (!load_expected(run) || !prepare(run) || !compute(run) || !write_results(run)) {
        return false;
    }
    /* Nothing else is printed to standard output if an array goes there. */
    bool taken = run->files[OUTPUT].is_stdout || run->files[ATTENTION].is_stdout;
    FILE *to = taken ? stderr : stdout;
    print_summary(run, to);
    return judge(run, to);
}

bool command_run(char **arguments) {
    struct run run = {0};
    if (!run_arguments_read(arguments, &run.asked)) {
        return false;
    }
    if (run.asked.help) {
        fputs(run_usage, stdout);
        return true;
    }
    bool good = run_all(&run);
    release(&run);
    return good;
}
