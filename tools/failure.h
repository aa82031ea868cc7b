/* SPDX-License-Identifier: MIT
 *
 * Why the program failed: one line of words and an exit status, recorded where the
 * fault is found and printed once, by main(). Knows nothing of files or attention.
 */
#ifndef MHA_TOOL_FAILURE_H
#define MHA_TOOL_FAILURE_H

#include <stdbool.h>

/* Exit statuses: a failure, and a wrong command line. */
#define STATUS_FAILED 1
#define STATUS_USAGE 2

/* Both record the reason (the last one counts) and return false, so that a function
 * can end with `return failure(…)`. Control characters in the text, which can come from
 * a file's own names, are replaced: the message stays one line. */
bool failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool failure_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The reason every failed allocation gives. */
bool failure_memory(void);

/* The recorded reason, "" before the first, and the exit status that goes with it. */
const char *failure_message(void);
int failure_status(void);

#endif
