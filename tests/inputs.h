/* SPDX-License-Identifier: MIT
 *
 * Floats shaped to reach a kernel's branches, made of bits alone: the same on every machine.
 */
#ifndef MHA_TEST_INPUTS_H
#define MHA_TEST_INPUTS_H

#include "support.h"

enum input {
    INPUT_PLAIN,     /* [-1, 1) */
    INPUT_LOGITS,    /* [-128, 128): differences on both sides of 2^x's cut-off */
    INPUT_HUGE,      /* sums and products overflow */
    INPUT_TINY,      /* products underflow */
    INPUT_SUBNORMAL, /* and zeros */
    INPUT_ZEROS,     /* of both signs, and a few ones */
    INPUT_WIDE,      /* any finite number */
    INPUT_SPECIAL,   /* plain, with NaN and infinities among them */
    INPUT_NAN,       /* nothing but NaN, of several signs and payloads */
    INPUTS,
};

const char *input_name(enum input input);
float input_float(struct generator *generator, enum input input);
void fill_input(struct generator *generator, enum input input, float *data, size_t count);

/* Of any of these kinds, or next to the least normal number. */
float any_float(struct generator *generator);

/* What x counts as where a kernel takes inputs: +0 if it is subnormal, else itself. */
float as_input(float x);

/* INPUT_PLAIN half of the time, else any. */
enum input pick_input(struct generator *generator);

#endif
