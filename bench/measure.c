/* SPDX-License-Identifier: MIT
 *
 * All benchmarks measure in this way: slices of about a millisecond of the operation, between two
 * measurements of what the machine can do at that moment; medians over the slices. README.md
 * gives the reasons. Knows nothing of the operations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* A shape of a family, shared by its ISAs. */
struct subject {
    const struct bench_family *family;
    const size_t *size;
    double scalar_seconds; /* 0: not measured yet */
};

struct benchmark {
    struct benchmark *next;
    struct subject *subject;
    const struct bench_isa *isa;
    size_t operations; /* of a slice; 0: not known yet */
};

/* Seconds of a slice: long compared with the clock's resolution, short compared with the
 * disturbances on a shared machine. */
static const double slice_seconds = 1e-3;

/* ---- Slices -------------------------------------------------------------- */

enum { MAX_SLICES = 4096 };

/* The figures of a slice. */
enum figure { SECONDS, OF_PEAK, OF_FMA, CYCLES, CLOCK_RATE, IPC, FIGURES };

struct slices {
    size_t n;
    double figures[FIGURES][MAX_SLICES];
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of one figure. Sorts its values, which then no longer belong to their slices. */
static double median(struct slices *slices, enum figure figure) {
    size_t n = slices->n;
    double *value = slices->figures[figure];
    qsort(value, n, sizeof *value, compare);
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

/* Drops the slices with fewer integer operations per cycle than ipc, unless these are all of them.
 * Returns the share that it keeps. */
static double keep_quiet(struct slices *slices, double ipc) {
    size_t n = 0;
    for (size_t i = 0; i < slices->n; i++) {
        if (slices->figures[IPC][i] >= ipc) {
            for (int f = 0; f < FIGURES; f++) {
                slices->figures[f][n] = slices->figures[f][i];
            }
            n++;
        }
    }
    double kept = (double)n / (double)slices->n;
    slices->n = n > 0 ? n : slices->n;
    return kept;
}

/* ---- One slice ----------------------------------------------------------- */

static void *data; /* of the current subject; one at a time, to save memory */

static void load(struct subject *subject) {
    static struct subject *loaded;
    if (loaded == subject) {
        return;
    }
    if (loaded && loaded->family->destroy) {
        loaded->family->destroy(data);
    }
    data = subject->family->create ? subject->family->create(subject->size) : NULL;
    loaded = subject;
}

/* Seconds of one operation. */
static double run_slice(void (*run)(const struct bench_isa *, void *), const struct bench_isa *isa,
                        size_t operations) {
    double start = bench_now();
    for (size_t i = 0; i < operations; i++) {
        run(isa, data);
    }
    return (bench_now() - start) / (double)operations;
}

/* Warms up caches and clock, and determines the number of operations in a slice. */
static void warm_up(struct benchmark *b) {
    double total = 0, seconds = 0;
    size_t operations = 1;
    while (total < 2 * slice_seconds) {
        seconds = run_slice(b->subject->family->run, b->isa, operations);
        total += seconds * (double)operations;
        operations *= 2;
    }
    b->operations = seconds < slice_seconds ? (size_t)(slice_seconds / seconds) : 1;
}

/* Another thread on the same core takes part of its integer units. A moment is quiet if the core
 * has executed at least this share of the integer operations per cycle that it executed in the
 * best tenth of this process's measurements. */
static const double QUIET = 0.93;

/* What the machine can do at a moment. */
struct gauge {
    double fma_rate;       /* FLOP/s */
    double clock_rate;     /* Hz */
    double ipc;            /* integer operations per cycle */
    double yardstick_rate; /* operations/s; 0: the family has no yardstick */
};

static double ipc_seen[MAX_SLICES];
static size_t n_ipc_seen;

/* The fewest integer operations per cycle of a quiet slice. */
static double quiet_ipc(void) {
    static double sorted[MAX_SLICES];
    size_t n = n_ipc_seen < MAX_SLICES ? n_ipc_seen : MAX_SLICES;
    memcpy(sorted, ipc_seen, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    return QUIET * sorted[n - 1 - n / 10];
}

/* Measures the FMA rate first, while the clock rate is still that of the slice: a core may lower
 * it for vector instructions and soon raises it again. */
static struct gauge look(const struct benchmark *b) {
    const struct bench_family *family = b->subject->family;
    struct gauge gauge = {.fma_rate = bench_fma_rate(b->isa)};
    gauge.clock_rate = bench_clock_rate();
    gauge.ipc = bench_integer_rate() / gauge.clock_rate;
    ipc_seen[n_ipc_seen++ % MAX_SLICES] = gauge.ipc;
    if (family->yardstick) {
        gauge.yardstick_rate = 1.0 / run_slice(family->yardstick, b->isa, b->operations);
    }
    return gauge;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* ---- Measuring ----------------------------------------------------------- */

static const struct bench_isa *scalar_isa(void) {
    const struct bench_isa *isas;
    bench_isas(&isas);
    return isas;
}

/* Measures one more slice, and then the machine, which is also the measurement before the next
 * slice. */
static void add_slice(const struct benchmark *b, struct gauge *before, struct slices *slices,
                      struct bench_run *run) {
    const struct bench_family *family = b->subject->family;
    double flop = family->flop ? family->flop(b->subject->size) : 0;
    double taken = run_slice(family->run, b->isa, b->operations);
    if (run) {
        bench_pause(run);
    }
    struct gauge after = look(b);
    /* Means, because the clock rate may have changed in between. For memory the better of the
     * two: other programs slow it down unnoticed, which must not flatter the operation. */
    double fma_rate = (before->fma_rate + after.fma_rate) / 2;
    double clock_rate = (before->clock_rate + after.clock_rate) / 2;
    double yardstick = larger(before->yardstick_rate, after.yardstick_rate);
    double of_fma = flop / taken / fma_rate;
    const double figures[FIGURES] = {
        [SECONDS] = taken,
        [OF_PEAK] = family->yardstick ? 1 / taken / yardstick : of_fma,
        [OF_FMA] = of_fma,
        [CYCLES] = taken * clock_rate,
        [CLOCK_RATE] = clock_rate,
        /* The worse of the two: each can show that another thread was on the core. */
        [IPC] = before->ipc < after.ipc ? before->ipc : after.ipc,
    };
    size_t n = slices->n < MAX_SLICES ? slices->n++ : MAX_SLICES - 1;
    for (int f = 0; f < FIGURES; f++) {
        slices->figures[f][n] = figures[f];
    }
    *before = after;
    if (run) {
        bench_resume(run);
    }
}

/* The scalar time of a shape: from the scalar benchmark if that has run, else from a few slices. */
static double scalar_seconds(struct subject *subject) {
    if (subject->scalar_seconds == 0) {
        struct benchmark b = {.subject = subject, .isa = scalar_isa()};
        static struct slices slices;
        slices.n = 0;
        warm_up(&b);
        struct gauge before = look(&b);
        double begin = bench_now();
        do {
            add_slice(&b, &before, &slices, NULL);
        } while (bench_now() - begin < 20 * slice_seconds);
        keep_quiet(&slices, quiet_ipc());
        subject->scalar_seconds = median(&slices, SECONDS);
    }
    return subject->scalar_seconds;
}

static void measure(struct bench_run *run, void *benchmark) {
    static struct slices slices;
    struct benchmark *b = benchmark;
    struct subject *subject = b->subject;
    const struct bench_family *family = subject->family;
    static const struct benchmark *last;

    load(subject);
    bool scalar = b->isa == scalar_isa();
    if (!family->once && !scalar) {
        scalar_seconds(subject);
    }
    if (last != b) {
        warm_up(b);
        last = b;
    }
    slices.n = 0;
    struct gauge before = look(b);
    while (bench_next(run, b->operations)) {
        add_slice(b, &before, &slices, run);
    }
    double quiet = keep_quiet(&slices, quiet_ipc());
    double time = median(&slices, SECONDS);
    if (family->flop) {
        bench_counter(run, "GFLOP/s", family->flop(subject->size) / time / 1e9);
    }
    if (family->bytes) {
        bench_counter(run, "GB/s", family->bytes(subject->size) / time / 1e9);
    }
    bench_counter(run, "of_peak", median(&slices, OF_PEAK));
    if (family->flop && family->yardstick) {
        bench_counter(run, "of_fma", median(&slices, OF_FMA));
    }
    if (family->elements) {
        bench_counter(run, "cycles/element",
                      median(&slices, CYCLES) / family->elements(subject->size));
    }
    if (scalar) {
        subject->scalar_seconds = time;
    }
    if (!family->once) {
        bench_counter(run, "vs_scalar", scalar_seconds(subject) / time);
    }
    bench_counter(run, "GHz", median(&slices, CLOCK_RATE) / 1e9);
    bench_counter(run, "IPC", median(&slices, IPC));
    bench_counter(run, "quiet", quiet);
}

/* ---- Registering --------------------------------------------------------- */

static void add(struct subject *subject, const struct bench_isa *isa, const char *isa_name,
                const char *shape_name) {
    static struct benchmark *all; /* they live as long as the program */
    struct benchmark *benchmark = bench_allocate(sizeof *benchmark);
    *benchmark = (struct benchmark){.next = all, .subject = subject, .isa = isa};
    all = benchmark;
    char name[96];
    snprintf(name, sizeof name, "%s%s%s%s%s", subject->family->name, isa_name ? "/" : "",
             isa_name ? isa_name : "", shape_name ? "/" : "", shape_name ? shape_name : "");
    bench_register(name, measure, benchmark);
}

void bench_add(const struct bench_family *family) {
    const struct bench_isa *isas;
    size_t n_isas = bench_isas(&isas);
    for (size_t i = 0; i < family->n_shapes; i++) {
        const struct bench_shape *shape = &family->shapes[i];
        struct subject *subject = bench_allocate(sizeof *subject);
        *subject = (struct subject){.family = family, .size = shape->size};
        if (family->once) {
            add(subject, bench_best_isa(), NULL, shape->name);
        }
        for (size_t k = 0; !family->once && k < n_isas; k++) {
            add(subject, &isas[k], isas[k].name, shape->name);
        }
    }
}
