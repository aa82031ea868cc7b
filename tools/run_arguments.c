/* SPDX-License-Identifier: MIT
 *
 * The options of mha run. An option is a line in the usage text, a name in the enumeration and a
 * row in the table.
 */
#include "run_arguments.h"

#include <math.h>
#include <string.h>

#include "failure.h"
#include "options.h"

const char run_usage[] =
    "mha run --weights W.safetensors --heads N --query Q.npy --output Y.npy [OPTIONS]\n"
    "\n"
    "Weights\n"
    "  --weights FILE       safetensors: F32, F16, BF16 or F64; the widths come from the shapes\n"
    "  --prefix P           which layer of the file: its tensors' names begin with P\n"
    "  --heads N            query heads\n"
    "  --kv-heads G         key/value heads (default: as many as query heads)\n"
    "Inputs: .npy of floats, (batch, length, width), or (length, width) for a batch of 1\n"
    "  --query FILE\n"
    "  --key FILE           (default: the query)\n"
    "  --value FILE         (default: the key)\n"
    "Which keys a query attends to; all that is given must allow it\n"
    "  --mask FILE          bool or uint8: attend where nonzero; floats: added to the scores.\n"
    "                       Broadcasts from the right to (batch, heads, q_len, kv_len).\n"
    "                       May be given twice, one of each kind\n"
    "  --kv-lengths FILE    integers (batch,): the keys that each sequence has\n"
    "  --causal[=KIND]      top-left: query i stands at key i; bottom-right (default): the\n"
    "                       last query stands at the sequence's last key\n"
    "  --window W           only keys less than W away from the query's position\n"
    "  --window-left W      only keys less than W before it (default: as --window)\n"
    "  --window-right W     only keys less than W after it (default: as --window)\n"
    "  --query-offset N     added to every query's position\n"
    "  --alibi FILE|auto    slopes (heads,): adds -slope * distance to the scores; auto: those\n"
    "                       of the paper\n"
    "  --masked-rows KIND   what a query with no key gives: zero (default) or uniform\n"
    "  --scale S            of the scores (default: 1 / sqrt(head_dim))\n"
    "How\n"
    "  --isa NAME           instruction set (default: $MHA_ISA, or the best here)\n"
    "  --threads N          must be 1 (the default): this version computes on one thread\n"
    "Outputs, little-endian float32 .npy\n"
    "  --output FILE        (batch, q_len, d_model), or (q_len, d_model) as the query was\n"
    "  --attention FILE     the softmax weights, ([batch,] heads, q_len, kv_len)\n"
    "  --expect FILE        prints how far the output is from this array\n"
    "  --tolerance T        exit status 1 if that is more than T of the largest |expected|\n";

enum {
    WEIGHTS,
    PREFIX,
    HEADS,
    KV_HEADS,
    QUERY,
    KEY,
    VALUE,
    MASK,
    KV_LENGTHS,
    CAUSAL,
    WINDOW,
    WINDOW_LEFT,
    WINDOW_RIGHT,
    QUERY_OFFSET,
    ALIBI,
    MASKED_ROWS,
    SCALE,
    ISA,
    THREADS,
    OUTPUT,
    ATTENTION,
    EXPECT,
    TOLERANCE,
    HELP,
    N_OPTIONS
};

static const struct option known[N_OPTIONS] = {
    [WEIGHTS] = {.name = "weights"},
    [PREFIX] = {.name = "prefix"},
    [HEADS] = {.name = "heads"},
    [KV_HEADS] = {.name = "kv-heads"},
    [QUERY] = {.name = "query"},
    [KEY] = {.name = "key"},
    [VALUE] = {.name = "value"},
    [MASK] = {.name = "mask", .kind = OPTION_TWICE},
    [KV_LENGTHS] = {.name = "kv-lengths"},
    [CAUSAL] = {.name = "causal", .kind = OPTION_MAYBE},
    [WINDOW] = {.name = "window"},
    [WINDOW_LEFT] = {.name = "window-left"},
    [WINDOW_RIGHT] = {.name = "window-right"},
    [QUERY_OFFSET] = {.name = "query-offset"},
    [ALIBI] = {.name = "alibi"},
    [MASKED_ROWS] = {.name = "masked-rows"},
    [SCALE] = {.name = "scale"},
    [ISA] = {.name = "isa"},
    [THREADS] = {.name = "threads"},
    [OUTPUT] = {.name = "output"},
    [ATTENTION] = {.name = "attention"},
    [EXPECT] = {.name = "expect"},
    [TOLERANCE] = {.name = "tolerance"},
    [HELP] = {.name = "help", .kind = OPTION_FLAG},
};

static bool read_choices(const struct option *o, struct run_arguments *run) {
    const char *causal = o[CAUSAL].value[0];
    if (o[CAUSAL].count > 0) {
        if (causal == NULL || strcmp(causal, "bottom-right") == 0) {
            run->causal = MHA_CAUSAL_BOTTOM_RIGHT;
        } else if (strcmp(causal, "top-left") == 0) {
            run->causal = MHA_CAUSAL_TOP_LEFT;
        } else {
            return failure_usage("--causal '%s' is neither top-left nor bottom-right", causal);
        }
    }
    const char *rows = o[MASKED_ROWS].value[0];
    if (rows != NULL && strcmp(rows, "uniform") == 0) {
        run->masked_rows = MHA_MASKED_ROWS_UNIFORM;
    } else if (rows != NULL && strcmp(rows, "zero") != 0) {
        return failure_usage("--masked-rows '%s' is neither zero nor uniform", rows);
    }
    const char *isa = o[ISA].value[0];
    if (isa != NULL && mha_isa_from_name(isa, &run->context.isa) != MHA_OK) {
        return failure_usage("--isa: %s", mha_error_message());
    }
    return true;
}

static bool read_numbers(const struct option *o, struct run_arguments *run) {
    if (!option_size(&o[HEADS], 1, &run->n_heads) ||
        !option_size(&o[KV_HEADS], 1, &run->n_kv_heads) ||
        !option_size(&o[WINDOW], 1, &run->window_left) ||
        !option_size(&o[WINDOW], 1, &run->window_right) ||
        !option_size(&o[WINDOW_LEFT], 1, &run->window_left) ||
        !option_size(&o[WINDOW_RIGHT], 1, &run->window_right) ||
        !option_size(&o[THREADS], 1, &run->context.threads) ||
        !option_int64(&o[QUERY_OFFSET], &run->query_offset) ||
        !option_double(&o[SCALE], &run->scale) || !option_double(&o[TOLERANCE], &run->tolerance)) {
        return false;
    }
    float scale = (float)run->scale;
    if (o[SCALE].count > 0 && (scale == 0 || !isfinite(scale))) {
        return failure_usage("--scale '%s' is %g as a float", o[SCALE].value[0], (double)scale);
    }
    if (run->tolerance < 0) {
        return failure_usage("--tolerance '%s' is negative", o[TOLERANCE].value[0]);
    }
    return true;
}

static bool check_presence(const struct option *o) {
    static const int required[] = {WEIGHTS, HEADS, QUERY};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        if (o[required[i]].count == 0) {
            return failure_usage("--%s is needed (mha run --help says more)", o[required[i]].name);
        }
    }
    if (o[OUTPUT].count + o[ATTENTION].count + o[EXPECT].count == 0) {
        return failure_usage("--output is needed (or --attention, or --expect)");
    }
    if (o[TOLERANCE].count > 0 && o[EXPECT].count == 0) {
        return failure_usage("--tolerance needs --expect");
    }
    return true;
}

bool run_arguments_read(char **arguments, struct run_arguments *run) {
    struct option o[N_OPTIONS];
    memcpy(o, known, sizeof o);
    if (!options_parse(arguments, o, N_OPTIONS)) {
        return false;
    }
    *run = (struct run_arguments){
        .help = o[HELP].count > 0,
        .weights = o[WEIGHTS].value[0],
        .prefix = o[PREFIX].value[0],
        .inputs = {.query = o[QUERY].value[0],
                   .key = o[KEY].value[0],
                   .value = o[VALUE].value[0],
                   .mask = {o[MASK].value[0], o[MASK].value[1]},
                   .kv_lengths = o[KV_LENGTHS].value[0],
                   .alibi = o[ALIBI].value[0]},
        .output = o[OUTPUT].value[0],
        .attention = o[ATTENTION].value[0],
        .expect = o[EXPECT].value[0],
        .tolerance_text = o[TOLERANCE].value[0],
    };
    return run->help || (check_presence(o) && read_numbers(o, run) && read_choices(o, run));
}
