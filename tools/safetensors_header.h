/* SPDX-License-Identifier: MIT
 *
 * The JSON header of a safetensors file, taken apart and checked against its grammar.
 * Knows nothing of the file around it.
 */
#ifndef MHA_TOOL_SAFETENSORS_HEADER_H
#define MHA_TOOL_SAFETENSORS_HEADER_H

#include "safetensors.h"

/* The tensors of header[length], in the header's order, to a new array that the caller
 * frees. Their names and types are strings within the header, which is changed to hold
 * them decoded. What offsets, shapes and types say is not compared here. On failure
 * *tensors is NULL. `path` is for messages. */
bool safetensors_parse_header(const char *path, char *header, size_t length,
                              struct tensor **tensors, size_t *count);

#endif
