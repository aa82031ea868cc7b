/* SPDX-License-Identifier: MIT
 *
 * The tables that test_forward, test_attention, test_invariance and test_spelling walk. Adding
 * a case is adding a row.
 */
#ifndef MHA_TEST_CASES_H
#define MHA_TEST_CASES_H

#include "problem.h"

extern const struct mask_case mask_cases[];
extern const size_t n_mask_cases;

/* What to step by when every mask is tried: 1, or 7 or 19 where $MHA_TEST_STRIDE says that cases
 * are slow. Start at the number of the shape modulo this, so that each mask meets some shape. */
size_t mask_step(void);

/* The last of mask_cases has every part at once. */
#define MASK_OF_ALL_PARTS (&mask_cases[n_mask_cases - 1])

extern const struct shape_case layer_cases[];
extern const size_t n_layer_cases;

/* Bare attention. */
extern const struct shape_case view_cases[];
extern const size_t n_view_cases;

#endif
