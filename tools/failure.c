/* SPDX-License-Identifier: MIT
 *
 * Keeps the reason of the last failure. Single-threaded, like the program.
 */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

static char message[4096 + 1024]; /* a path, and the reason */
static int status = STATUS_FAILED;

static void record(int exit_status, const char *format, va_list arguments) {
    /* Through a second buffer: an argument may be the earlier message itself. */
    char text[sizeof message];
    vsnprintf(text, sizeof text, format, arguments);
    size_t n = 0;
    for (; text[n] != '\0'; n++) {
        unsigned char c = (unsigned char)text[n];
        message[n] = c < 0x20 || c == 0x7f ? '?' : text[n];
    }
    message[n] = '\0';
    status = exit_status;
}

bool failure(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(STATUS_FAILED, format, arguments);
    va_end(arguments);
    return false;
}

bool failure_usage(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(STATUS_USAGE, format, arguments);
    va_end(arguments);
    return false;
}

bool failure_memory(void) {
    return failure("out of memory");
}

const char *failure_message(void) {
    return message;
}

int failure_status(void) {
    return status;
}
