/* SPDX-License-Identifier: MIT
 *
 * Floats shaped to reach a kernel's branches.
 */
#include "inputs.h"

#include <math.h>
#include <string.h>

const char *input_name(enum input input) {
    static const char *const names[INPUTS] = {"plain", "logits", "huge",    "tiny", "subnormal",
                                              "zeros", "wide",   "special", "nan"};
    return names[input];
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Random sign and significand; exponent fields first .. last. */
static float with_exponent(struct generator *generator, uint32_t first, uint32_t last) {
    uint64_t random = next_bits(generator);
    uint32_t exponent = first + (uint32_t)(random >> 40) % (last - first + 1);
    return from_bits(((uint32_t)random & 0x807fffffu) | exponent << 23);
}

static float not_finite(struct generator *generator) {
    static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000,
                                    0xffc00000, 0x7fc12345, 0xffffffff};
    return from_bits(bits[next_below(generator, sizeof bits / sizeof *bits)]);
}

float input_float(struct generator *generator, enum input input) {
    switch (input) {
    case INPUT_LOGITS:
        return next_float(generator) * 128.0f;
    case INPUT_HUGE:
        return with_exponent(generator, 240, 254);
    case INPUT_TINY:
        return with_exponent(generator, 1, 64);
    case INPUT_SUBNORMAL:
        return with_exponent(generator, 0, 0);
    case INPUT_ZEROS: {
        static const float zeros[] = {0.0f, -0.0f, 0.0f, -0.0f, 1.0f, -1.0f};
        return zeros[next_below(generator, sizeof zeros / sizeof *zeros)];
    }
    case INPUT_WIDE:
        return with_exponent(generator, 0, 254);
    case INPUT_SPECIAL:
        return next_below(generator, 12) == 0 ? not_finite(generator) : next_float(generator);
    case INPUT_NAN: {
        uint32_t bits = (uint32_t)next_bits(generator);
        return from_bits(bits | 0x7fc00000u);
    }
    default:
        return next_float(generator);
    }
}

void fill_input(struct generator *generator, enum input input, float *data, size_t count) {
    for (size_t i = 0; i < count; i++) {
        data[i] = input_float(generator, input);
    }
}

float any_float(struct generator *generator) {
    static const uint32_t edges[] = {0x007fffff, 0x00800000, 0x00800001, 0x00000001};
    size_t kind = next_below(generator, INPUTS + 1);
    if (kind < INPUTS) {
        return input_float(generator, (enum input)kind);
    }
    uint32_t sign = next_below(generator, 2) ? 0x80000000 : 0;
    return from_bits(edges[next_below(generator, sizeof edges / sizeof *edges)] | sign);
}

float as_input(float x) {
    return fabsf(x) < FLT_MIN ? 0.0f : x;
}

enum input pick_input(struct generator *generator) {
    return next_below(generator, 2) ? INPUT_PLAIN : (enum input)next_below(generator, INPUTS);
}
