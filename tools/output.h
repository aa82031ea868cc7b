/* SPDX-License-Identifier: MIT
 *
 * Files that appear whole or not at all: written beside their place, then renamed.
 * Things that are no regular files (/dev/null, a pipe) are written directly, and so is
 * the file that standard output goes to. Knows nothing of what is written.
 */
#ifndef MHA_TOOL_OUTPUT_H
#define MHA_TOOL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct output {
    const char *path; /* the caller's */
    FILE *stream;     /* to write to; NULL once finished */
    char *target;     /* where symbolic links lead; NULL for what is written directly */
    bool is_stdout;   /* it goes where standard output does: nothing else should */
    char *temporary;
    char *backup; /* during outputs_commit */
};

/* Start from {0}. False where `path` could not be written, found out before any work. */
bool output_open(struct output *output, const char *path);

/* Everything written is on the disk, and the stream closed; or false. */
bool output_finish(struct output *output);

/* Puts all n finished outputs in their places, or none. Two that would stand in the
 * same place are refused. */
bool outputs_commit(struct output *outputs, size_t n);

/* Removes what was not committed and frees; fine on {0} and after anything. */
void output_discard(struct output *output);

#endif
