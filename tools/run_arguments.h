/* SPDX-License-Identifier: MIT
 *
 * Parses the command line of mha run. Opens no file.
 */
#ifndef MHA_TOOL_RUN_ARGUMENTS_H
#define MHA_TOOL_RUN_ARGUMENTS_H

#include <stdbool.h>

#include "inputs.h"
#include "mha.h"

struct run_arguments {
    bool help;
    const char *weights, *prefix; /* files and names: NULL where not given */
    size_t n_heads, n_kv_heads;   /* n_kv_heads 0: n_heads */
    struct input_paths inputs;
    mha_causal causal;
    size_t window_left, window_right;
    int64_t query_offset;
    mha_masked_rows masked_rows;
    double scale; /* 0: the default */
    mha_options context;
    const char *output, *attention, *expect;
    const char *tolerance_text; /* NULL: none */
    double tolerance;
};

extern const char run_usage[];

/* The strings stay the caller's. False: a usage failure. With --help nothing else is
 * checked. */
bool run_arguments_read(char **arguments, struct run_arguments *run);

#endif
