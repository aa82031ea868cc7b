/* SPDX-License-Identifier: MIT
 *
 * mha check: on this machine, does every ISA give the scalar path's bits, and does the
 * scalar path give the same bits however a computation is cut up? Uses the public
 * interface alone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_cases.h"
#include "commands.h"
#include "failure.h"
#include "options.h"

static const char usage[] =
    "mha check [--isa NAME] [--seed N] [--quick]\n"
    "\n"
    "Computes many attention layers with every instruction set that this machine supports and\n"
    "compares the results with the scalar path's, bit by bit (any NaN equals any other): all\n"
    "at once, with and without the weights returned, sequence by sequence, and queries in small\n"
    "chunks; and the scalar results with those that this version is known to give. Ends with a\n"
    "verdict; exit status 1 if anything differs.\n"
    "\n"
    "  --isa NAME  this instruction set only\n"
    "  --seed N    other inputs (default: 1)\n"
    "  --quick     fewer cases, for slow machines and emulators\n";

/* A way to compute a case again: each must give the bits that the scalar path gave for the
 * whole case at once with the weights returned. */
enum way { WHOLE, NO_WEIGHTS, BY_SEQUENCE, IN_CHUNKS, WAYS };

static const char *const way_names[WAYS] = {
    "all at once, weights returned",
    "all at once, weights not returned",
    "each sequence alone, weights returned",
    "queries in chunks",
};

static bool returns_weights(enum way way) {
    return way == WHOLE || way == BY_SEQUENCE;
}

/* What the scalar path of this version gives for seed 1: a compiler or a CPU that spoils all paths
 * alike shows in it. It changes with the numeric contract and with the cases alone. */
static const uint64_t known_digest = UINT64_C(0x75a261c59145a2af);
static const uint64_t known_quick_digest = UINT64_C(0x1d5d30fecf5018db);

/* More than mha.h has. */
#define MAX_ISAS 16

static bool exists(mha_isa isa) {
    return isa < MAX_ISAS && mha_isa_name(isa) != NULL;
}

struct tally {
    size_t cases;
    uint64_t values;
    uint64_t different;
};

struct results {
    float *output, *attention;
};

struct check {
    bool quick;
    uint64_t seed;
    mha_isa only; /* AUTO: all */
    bool isa_checked[MAX_ISAS];
    mha_context *context[MAX_ISAS];
    struct tally tally[MAX_ISAS][WAYS];
    uint64_t digest; /* of the scalar path's results */
    uint64_t known;  /* what it should be; 0: not known */
    bool differs;    /* the first difference is recorded as the failure */
};

/* ---- Computing a case ------------------------------------------------------ */

static bool forward(mha_context *context, const mha_layer *layer, const mha_forward_args *args) {
    return mha_forward(context, layer, args) == MHA_OK || failure("%s", mha_error_message());
}

/* Queries first .. first + n - 1 of one sequence, on their own. If attention weights are asked
 * for, n is all of the queries. */
static bool forward_part(mha_context *context, const struct problem *p, size_t sequence,
                         size_t first, size_t n, const struct results *results) {
    const mha_forward_args *whole = &p->args;
    const mha_config *c = &p->config;
    mha_mask mask = p->mask;
    size_t rows = sequence * whole->q_len + first;
    const float *key = whole->key != NULL ? whole->key : whole->query;
    mha_forward_args part = {.batch = 1,
                             .q_len = n,
                             .kv_len = whole->kv_len,
                             .query = whole->query + rows * c->d_model,
                             .key = key + sequence * whole->kv_len * c->k_dim,
                             .mask = &mask,
                             .output = results->output + rows * c->d_model};
    if (results->attention != NULL) {
        part.attention = results->attention + sequence * c->n_heads * n * whole->kv_len;
    }
    if (whole->value != NULL) {
        part.value = whole->value + sequence * whole->kv_len * c->v_dim;
    }
    if (mask.keep != NULL) {
        mask.keep += sequence * mask.keep_batch_stride + first * mask.keep_query_stride;
    }
    if (mask.bias != NULL) {
        mask.bias += sequence * mask.bias_batch_stride + first * mask.bias_query_stride;
    }
    if (mask.kv_lengths != NULL) {
        mask.kv_lengths += sequence;
    }
    /* Bottom-right counts positions from the last query of the call. */
    mask.query_offset += (int64_t)first;
    if (mask.causal == MHA_CAUSAL_BOTTOM_RIGHT) {
        mask.query_offset += (int64_t)n - (int64_t)whole->q_len;
    }
    return forward(context, p->layer, &part);
}

static bool compute(mha_context *context, const struct problem *p, enum way way,
                    const struct results *results) {
    mha_forward_args args = p->args;
    struct results wanted = {results->output, returns_weights(way) ? results->attention : NULL};
    if (way == WHOLE || way == NO_WEIGHTS) {
        args.output = wanted.output;
        args.attention = wanted.attention;
        return forward(context, p->layer, &args);
    }
    /* Small, but each chunk projects all keys again. */
    size_t chunk = args.kv_len > 400 ? (args.q_len + 2) / 3 : args.q_len <= 16 ? 1 : 7;
    chunk = way == BY_SEQUENCE ? args.q_len : chunk;
    for (size_t sequence = 0; sequence < args.batch; sequence++) {
        for (size_t first = 0; first < args.q_len; first += chunk) {
            size_t n = chunk < args.q_len - first ? chunk : args.q_len - first;
            if (!forward_part(context, p, sequence, first, n, &wanted)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- Comparing ------------------------------------------------------------- */

/* NaN payloads are outside the numeric contract: all NaN count as one. */
static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value ? UINT32_C(0x7fc00000) : bits;
}

static void compare(struct check *check, mha_isa isa, enum way way, const char *name,
                    size_t case_index, const struct problem *p, const char *array,
                    const float *have, const float *want, size_t count) {
    struct tally *tally = &check->tally[isa][way];
    tally->values += count;
    for (size_t i = 0; i < count; i++) {
        if (bits_of(have[i]) == bits_of(want[i])) {
            continue;
        }
        tally->different++;
        if (!check->differs) {
            char shape[256];
            problem_describe(p, shape, sizeof shape);
            failure("%s differs (%s) in case %zu, '%s' (%s): %s[%zu] is %a, scalar has %a",
                    mha_isa_name(isa), way_names[way], case_index, name, shape, array, i,
                    (double)have[i], (double)want[i]);
            check->differs = true;
        }
    }
}

/* FNV-1a over the bytes of the bits, low byte first. */
static uint64_t digest(uint64_t hash, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of(values[i]);
        for (unsigned shift = 0; shift < 32; shift += 8) {
            hash = (hash ^ (bits >> shift & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

/* Fills the results before each computation: a value that is not written then differs. */
static void poison(const struct results *results, const struct problem *p) {
    memset(results->output, 0xa5, p->output_count * sizeof *results->output);
    memset(results->attention, 0xa5, p->attention_count * sizeof *results->attention);
}

static bool check_problem(struct check *check, const char *name, size_t index,
                          const struct problem *p, const struct results *want,
                          const struct results *have) {
    poison(want, p);
    if (!compute(check->context[MHA_ISA_SCALAR], p, WHOLE, want)) {
        return false;
    }
    check->digest = digest(check->digest, want->output, p->output_count);
    check->digest = digest(check->digest, want->attention, p->attention_count);
    for (mha_isa isa = MHA_ISA_SCALAR; exists(isa); isa++) {
        for (enum way way = WHOLE; way < WAYS; way++) {
            /* Everything is compared with the scalar path's results for the whole case. */
            if (!check->isa_checked[isa] || (isa == MHA_ISA_SCALAR && way == WHOLE)) {
                continue;
            }
            poison(have, p);
            if (!compute(check->context[isa], p, way, have)) {
                return false;
            }
            check->tally[isa][way].cases++;
            compare(check, isa, way, name, index, p, "output", have->output, want->output,
                    p->output_count);
            if (returns_weights(way)) {
                compare(check, isa, way, name, index, p, "attention", have->attention,
                        want->attention, p->attention_count);
            }
        }
    }
    return true;
}

static bool allocate(const struct problem *p, struct results *results) {
    results->output = calloc(p->output_count + 1, sizeof(float));
    results->attention = calloc(p->attention_count + 1, sizeof(float));
    return (results->output != NULL && results->attention != NULL) || failure_memory();
}

static bool check_case(struct check *check, size_t index) {
    struct check_case what = check_case_at(index, check->seed);
    struct problem problem;
    if (!problem_create(&what, index, check->seed, &problem)) {
        return false;
    }
    struct results want = {0}, have = {0};
    bool good = allocate(&problem, &want) && allocate(&problem, &have) &&
                check_problem(check, what.name, index, &problem, &want, &have);
    free(want.output);
    free(want.attention);
    free(have.output);
    free(have.attention);
    problem_destroy(&problem);
    return good;
}

/* ---- The command ------------------------------------------------------------ */

static bool create_contexts(struct check *check) {
    for (mha_isa isa = MHA_ISA_SCALAR; exists(isa); isa++) {
        check->isa_checked[isa] =
            check->only == MHA_ISA_AUTO ? mha_isa_supported(isa) != 0 : isa == check->only;
        if ((isa == MHA_ISA_SCALAR || check->isa_checked[isa]) &&
            mha_context_create(&(mha_options){.isa = isa}, &check->context[isa]) != MHA_OK) {
            return failure("%s", mha_error_message());
        }
    }
    return true;
}

static bool check_all(struct check *check) {
    size_t count = check_case_count(check->quick);
    bool terminal = isatty(STDERR_FILENO) == 1;
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        if (terminal) {
            fprintf(stderr, "\rcase %zu of %zu ", i + 1, count);
        }
        good = check_case(check, i);
    }
    if (terminal) {
        fprintf(stderr, "\r%30s\r", "");
    }
    return good;
}

/* The table and the verdict. */
static void print_results(const struct check *check) {
    uint64_t values = 0, different = 0;
    size_t isas = 0;
    printf("%-8s %-38s %6s %12s %10s\n", "isa", "compared with scalar all at once", "cases",
           "values", "different");
    for (mha_isa isa = MHA_ISA_SCALAR; exists(isa); isa++) {
        isas += check->isa_checked[isa] && isa != MHA_ISA_SCALAR;
        for (enum way way = WHOLE; way < WAYS; way++) {
            const struct tally *tally = &check->tally[isa][way];
            if (tally->cases > 0) {
                printf("%-8s %-38s %6zu %12" PRIu64 " %10" PRIu64 "\n", mha_isa_name(isa),
                       way_names[way], tally->cases, tally->values, tally->different);
            }
            values += tally->values;
            different += tally->different;
        }
    }
    printf("\ndigest of the scalar results: %016" PRIx64 " (%s)\n", check->digest,
           check->known == 0               ? "other machines, same options: the same"
           : check->known == check->digest ? "known of this version"
                                           : "this version's is another");
    if (isas == 0) {
        printf("scalar alone was checked, against itself%s\n",
               check->only == MHA_ISA_AUTO ? ": this machine supports no other ISA" : "");
    }
    if (different > 0) {
        printf("FAILED: %" PRIu64 " of %" PRIu64 " values differ\n", different, values);
    } else if (check->known != 0 && check->known != check->digest) {
        printf("FAILED: all values compared are equal, but the digest of version %s is %016" PRIx64
               "\n",
               mha_version(), check->known);
    } else {
        printf("PASSED: all %" PRIu64 " values compared are equal, bit for bit\n", values);
    }
}

static bool read_options(char **arguments, struct check *check, bool *help) {
    enum { ISA, SEED, QUICK, HELP, N_OPTIONS };
    struct option options[N_OPTIONS] = {
        [ISA] = {.name = "isa"},
        [SEED] = {.name = "seed"},
        [QUICK] = {.name = "quick", .kind = OPTION_FLAG},
        [HELP] = {.name = "help", .kind = OPTION_FLAG},
    };
    size_t seed = 1;
    if (!options_parse(arguments, options, N_OPTIONS) || !option_size(&options[SEED], 0, &seed)) {
        return false;
    }
    const char *isa = options[ISA].value[0];
    if (isa != NULL && mha_isa_from_name(isa, &check->only) != MHA_OK) {
        return failure_usage("--isa: %s", mha_error_message());
    }
    check->seed = seed;
    check->quick = options[QUICK].count > 0;
    check->known = seed != 1 ? 0 : check->quick ? known_quick_digest : known_digest;
    *help = options[HELP].count > 0;
    return true;
}

bool command_check(char **arguments) {
    struct check check = {.digest = UINT64_C(0xcbf29ce484222325)};
    bool help = false;
    if (!read_options(arguments, &check, &help)) {
        return false;
    }
    if (help) {
        fputs(usage, stdout);
        return true;
    }
    bool good = create_contexts(&check) && check_all(&check);
    if (good) {
        print_results(&check);
        check.differs = check.differs || (check.known != 0 && check.known != check.digest);
    }
    for (mha_isa isa = MHA_ISA_SCALAR; exists(isa); isa++) {
        mha_context_destroy(&check.context[isa]);
    }
    return good && !check.differs;
}
