/* SPDX-License-Identifier: MIT
 *
 * What the CPU is called, for people to read. Nothing depends on it.
 */
#ifndef MHA_TOOL_CPU_NAME_H
#define MHA_TOOL_CPU_NAME_H

#include <stddef.h>

/* Printable ASCII; "unknown" where the operating system doesn't tell. */
void cpu_name(char *out, size_t capacity);

#endif
