/* SPDX-License-Identifier: MIT
 *
 * Parsing of a command line against a table of options, and of numbers in it.
 */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

static struct option *find(const char *name, size_t length, struct option *options, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

bool options_parse(char **arguments, struct option *options, size_t n_options) {
    for (char **next = arguments; *next != NULL; next++) {
        const char *argument = *next;
        if (strncmp(argument, "--", 2) != 0) {
            return failure_usage("unexpected argument '%s' (options begin with --)", argument);
        }
        const char *name = argument + 2;
        size_t length = strcspn(name, "=");
        const char *value = name[length] == '=' ? name + length + 1 : NULL;
        struct option *option = find(name, length, options, n_options);
        if (option == NULL) {
            return failure_usage("unknown option '--%.*s' (--help lists them)", (int)length, name);
        }
        if (option->count == (option->kind == OPTION_TWICE ? 2 : 1)) {
            return failure_usage("--%s is given %s", option->name,
                                 option->kind == OPTION_TWICE ? "more than twice" : "twice");
        }
        if (option->kind == OPTION_FLAG && value != NULL) {
            return failure_usage("--%s takes no value", option->name);
        }
        if (option->kind == OPTION_VALUE || option->kind == OPTION_TWICE) {
            if (value == NULL && next[1] != NULL && strncmp(next[1], "--", 2) != 0) {
                value = *++next;
            }
            if (value == NULL || *value == '\0') {
                return failure_usage("--%s needs a value", option->name);
            }
        }
        option->value[option->count++] = value;
    }
    return true;
}

bool option_size(const struct option *option, size_t least, size_t *out) {
    if (option->count == 0) {
        return true;
    }
    const char *text = option->value[0];
    size_t value = 0;
    bool good = true;
    for (const char *c = text; *c != '\0' && good; c++) {
        size_t digit = (size_t)(*c - '0');
        good = *c >= '0' && *c <= '9' && value <= (SIZE_MAX - digit) / 10;
        value = 10 * value + digit;
    }
    if (!good || value < least) {
        return failure_usage("--%s '%s' is not a whole number from %zu to %zu", option->name, text,
                             least, SIZE_MAX);
    }
    *out = value;
    return true;
}

bool option_int64(const struct option *option, int64_t *out) {
    if (option->count == 0) {
        return true;
    }
    const char *text = option->value[0];
    const char *digits = text + (*text == '-' ? 1 : 0);
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0' || errno != 0) {
        return failure_usage("--%s '%s' is not a whole number", option->name, text);
    }
    *out = value;
    return true;
}

bool option_double(const struct option *option, double *out) {
    if (option->count == 0) {
        return true;
    }
    const char *text = option->value[0];
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) {
        return failure_usage("--%s '%s' is not a finite number", option->name, text);
    }
    *out = value;
    return true;
}
