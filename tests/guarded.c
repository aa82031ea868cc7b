/* SPDX-License-Identifier: MIT
 *
 * Memory between guard pages: a read or write one byte outside is a fault, over-reads included,
 * which padding and checked canaries can't see. Mappings are reused, since some tests need a
 * million buffers.
 */
#include "guarded.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

static struct mapping {
    unsigned char *front; /* the front guard; room and the back guard follow */
    size_t room;          /* whole pages */
    unsigned char *data;
    size_t bytes;
    bool used;
} mappings[64];
enum { MAPPINGS = sizeof mappings / sizeof *mappings };

static size_t page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void die(const char *why) {
    perror(why);
    abort();
}

static void map(struct mapping *m, size_t room) {
    size_t page = page_size();
    if (m->front) {
        munmap(m->front, m->room + 2 * page);
    }
    void *front = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (front == MAP_FAILED) {
        die("mmap");
    }
    m->front = front;
    m->room = room;
    if (mprotect(m->front + page, room, PROT_READ | PROT_WRITE) != 0) {
        die("mprotect");
    }
}

/* A free mapping that is large enough, else one to enlarge. */
static struct mapping *find_mapping(size_t room) {
    struct mapping *smaller = NULL;
    for (size_t i = 0; i < MAPPINGS; i++) {
        if (!mappings[i].used) {
            if (mappings[i].room >= room) {
                return &mappings[i];
            }
            smaller = smaller ? smaller : &mappings[i];
        }
    }
    if (!smaller) {
        die("too many guarded buffers at once");
    }
    map(smaller, room);
    return smaller;
}

void *guarded_alloc(size_t bytes, size_t shift, enum guard_side side) {
    size_t page = page_size();
    struct mapping *m = find_mapping((bytes + shift + page) / page * page);
    unsigned char *start = m->front + page;
    m->data = side == AT_START ? start + shift : start + m->room - shift - bytes;
    m->bytes = bytes;
    m->used = true;
    memset(m->data, 0xff, bytes);
    return m->data;
}

float *guarded_floats(size_t count, size_t shift, enum guard_side side) {
    return guarded_alloc(count * sizeof(float), shift, side);
}

void guarded_free_all(void) {
    for (size_t i = 0; i < MAPPINGS; i++) {
        mappings[i].used = false;
    }
}

/* ---- What a crash says ----------------------------------------------------- */

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
enum { SIGNALS = sizeof signals / sizeof *signals };
static struct sigaction before[SIGNALS];

/* Prints, then lets the instruction fault again under the action that was there before. */
static void explain(int number, siginfo_t *info, void *context) {
    (void)context;
    const unsigned char *address = info->si_addr;
    size_t page = page_size();
    fprintf(stderr, "%s: signal %d\n", case_name(), number);
    for (size_t i = 0; i < MAPPINGS; i++) {
        const struct mapping *m = &mappings[i];
        const unsigned char *back = m->front + page + m->room;
        if (m->used && address >= m->front && address < m->front + page) {
            fprintf(stderr, "  %zu bytes ahead of guarded buffer %zu, of %zu bytes\n",
                    (size_t)(m->data - address), i, m->bytes);
        } else if (m->used && address >= back && address < back + page) {
            fprintf(stderr, "  %zu bytes behind guarded buffer %zu, of %zu bytes\n",
                    (size_t)(address - (m->data + m->bytes)), i, m->bytes);
        }
    }
    for (size_t i = 0; i < SIGNALS; i++) {
        if (signals[i] == number) {
            sigaction(number, &before[i], NULL);
        }
    }
}

void guarded_explain_faults(void) {
    struct sigaction action = {.sa_sigaction = explain, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], &action, &before[i]);
    }
}
