/* SPDX-License-Identifier: MIT
 *
 * A layer and arrays of zeros, for tests of what the program says when it fails.
 */
#ifndef MHA_TEST_TOOL_ERRORS_FIXTURE_H
#define MHA_TEST_TOOL_ERRORS_FIXTURE_H

#include "fixture.h"

/* A .npy file of so many bytes of data, whatever its shape. */
void write_zeros(const char *name, const char *type, const char *shape, size_t size);

/* A layer of d_model 6. */
void write_layer(const char *name, size_t k_dim, size_t v_dim);

/* The fixture: a temporary folder with a layer in "w", a query [2][3][6] in "q" and a key
 * [2][4][6] in "k". */
void errors_setup(void);

/* Nothing but one line "mha: ..." with `message` in it. */
void expect_error(struct outcome outcome, int status, const char *message);

#endif
