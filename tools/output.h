/* SPDX-License-Identifier: MIT
 *
 * Output files that appear whole or not at all: each is written to a temporary file beside
 * its target, which it then replaces. Pipes, devices and the file that standard output goes
 * to are written directly. Knows nothing of what is written.
 */
#ifndef MHA_TOOL_OUTPUT_H
#define MHA_TOOL_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct output {
    const char *path; /* the caller's */
    FILE *stream;     /* between output_open and output_finish */
    char *target;     /* the file to replace; NULL: path is written directly */
    char *temporary;
    mode_t mode;
    bool is_stdout; /* the file that standard output goes to */
};

/* To be called in this order; each is false, with the reason recorded, if the file can't be
 * written. output_check comes before the work; after output_finish all data is on the disk. */
bool output_check(struct output *output, const char *path);
bool output_open(struct output *output);
bool output_finish(struct output *output);
bool output_commit(struct output *output); /* puts the file in its place */

/* Whether two checked outputs would go to one place. Two different names of a file that does not
 * exist yet are not recognised. */
bool output_same(const struct output *a, const struct output *b);

/* Removes what was not committed and frees; valid on {0} and after any failure. */
void output_discard(struct output *output);

#endif
