/* SPDX-License-Identifier: MIT
 *
 * The calling thread's last failure in words.
 */
#ifndef MHA_ERROR_H
#define MHA_ERROR_H

#include "mha.h"

/* Sets the thread's message (printf's format; cut at 511 characters) and returns status. */
__attribute__((format(printf, 2, 3))) mha_status mha_fail(mha_status status, const char *format,
                                                          ...);

/* MHA_ERROR_MEMORY with a message that names what could not be allocated. */
mha_status mha_fail_memory(const char *what, size_t bytes);

#endif
