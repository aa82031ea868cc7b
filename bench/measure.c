/* SPDX-License-Identifier: MIT
 *
 * The one way of measuring: slices of about a millisecond of the operation, between two looks
 * at what the machine can do at that moment; medians over the slices. README.md has the
 * reasons. It knows nothing of what it measures.
 */
#include <stdio.h>
#include <stdlib.h>

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

/* Seconds that a slice should take: long against the clock's resolution, short against the
 * disturbances of a machine that isn't ours alone. */
static const double slice_seconds = 1e-3;

/* ---- Samples ------------------------------------------------------------- */

enum { MAX_SAMPLES = 4096 };

struct samples {
    size_t n;
    double value[MAX_SAMPLES];
};

static void add_sample(struct samples *samples, double value) {
    samples->value[samples->n++ % MAX_SAMPLES] = value;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct samples *samples) {
    size_t n = samples->n < MAX_SAMPLES ? samples->n : MAX_SAMPLES;
    qsort(samples->value, n, sizeof *samples->value, compare);
    return n % 2 ? samples->value[n / 2] : (samples->value[n / 2 - 1] + samples->value[n / 2]) / 2;
}

/* ---- One slice ----------------------------------------------------------- */

static void *data; /* of the subject at work; one at a time, for memory's sake */

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

/* Warms up caches and clock, and finds out how many operations make a slice. */
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

/* What the machine can do now. */
struct gauge {
    double fma_rate;       /* FLOP/s */
    double clock_rate;     /* Hz */
    double yardstick_rate; /* operations/s; 0: the family has no yardstick */
};

static struct gauge look(const struct benchmark *b) {
    const struct bench_family *family = b->subject->family;
    struct gauge gauge = {
        .clock_rate = bench_clock_rate(),
        .fma_rate = bench_fma_rate(b->isa),
    };
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

/* The scalar time of a shape: of its own benchmark if that has run, else of a few slices. */
static double scalar_seconds(struct subject *subject) {
    const struct bench_isa *scalar = scalar_isa();
    if (subject->scalar_seconds == 0) {
        struct benchmark b = {.subject = subject, .isa = scalar};
        static struct samples seconds;
        seconds.n = 0;
        warm_up(&b);
        double begin = bench_now();
        do {
            add_sample(&seconds, run_slice(subject->family->run, scalar, b.operations));
        } while (bench_now() - begin < 20 * slice_seconds);
        subject->scalar_seconds = median(&seconds);
    }
    return subject->scalar_seconds;
}

static void measure(struct bench_run *run, void *benchmark) {
    static struct samples seconds, of_peak, of_fma, cycles, clock_rate;
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
    seconds.n = of_peak.n = of_fma.n = cycles.n = clock_rate.n = 0;
    double flop = family->flop ? family->flop(subject->size) : 0;
    struct gauge before = look(b);
    while (bench_next(run, b->operations)) {
        double taken = run_slice(family->run, b->isa, b->operations);
        bench_pause(run);
        struct gauge after = look(b);
        /* Of two looks the better: a disturbed one must not flatter the operation. */
        double fma_rate = larger(before.fma_rate, after.fma_rate);
        double clock = larger(before.clock_rate, after.clock_rate);
        double yardstick = larger(before.yardstick_rate, after.yardstick_rate);
        add_sample(&seconds, taken);
        add_sample(&of_fma, flop / taken / fma_rate);
        add_sample(&of_peak, family->yardstick ? 1 / taken / yardstick : flop / taken / fma_rate);
        add_sample(&cycles, taken * clock);
        add_sample(&clock_rate, clock);
        before = after;
        bench_resume(run);
    }
    double time = median(&seconds);
    if (family->flop) {
        bench_counter(run, "GFLOP/s", flop / time / 1e9);
    }
    if (family->bytes) {
        bench_counter(run, "GB/s", family->bytes(subject->size) / time / 1e9);
    }
    bench_counter(run, "of_peak", median(&of_peak));
    if (family->flop && family->yardstick) {
        bench_counter(run, "of_fma", median(&of_fma));
    }
    if (family->elements) {
        bench_counter(run, "cycles/element", median(&cycles) / family->elements(subject->size));
    }
    if (scalar) {
        subject->scalar_seconds = time;
    }
    if (!family->once) {
        bench_counter(run, "vs_scalar", scalar_seconds(subject) / time);
    }
    bench_counter(run, "GHz", median(&clock_rate) / 1e9);
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
