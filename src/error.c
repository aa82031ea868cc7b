/* SPDX-License-Identifier: MIT
 *
 * Error messages: one buffer a thread, so that no call disturbs another.
 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[512];

mha_status mha_fail(mha_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return status;
}

mha_status mha_fail_memory(const char *what, size_t bytes) {
    return mha_fail(MHA_ERROR_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

const char *mha_error_message(void) {
    return message;
}
