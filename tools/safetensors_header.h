/* SPDX-License-Identifier: MIT
 *
 * The JSON header of a safetensors file, parsed and checked against its grammar. Knows nothing of
 * the file around it.
 */
#ifndef MHA_TOOL_SAFETENSORS_HEADER_H
#define MHA_TOOL_SAFETENSORS_HEADER_H

#include "safetensors.h"

/* The tensors of header[length], in the header's order, to a new array that the caller frees.
 * Their names and types are strings within the header, which is changed to hold them decoded.
 * Offsets, shapes and types are not compared with each other here. On failure *tensors is NULL.
 * `path` is for messages. */
bool safetensors_parse_header(const char *path, char *header, size_t length,
                              struct tensor **tensors, size_t *count);

#endif
