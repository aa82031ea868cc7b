/* SPDX-License-Identifier: MIT
 *
 * The part of guarded memory that only run_suite() uses.
 */
#ifndef MHA_TEST_GUARDED_H
#define MHA_TEST_GUARDED_H

/* From here on, a crash first prints the current case and, if it was a guard page that was
 * touched, how far from which buffer. */
void guarded_explain_faults(void);

#endif
