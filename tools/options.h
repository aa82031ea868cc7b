/* SPDX-License-Identifier: MIT
 *
 * Long options: "--name value", "--name=value", "--flag". Knows nothing of what any
 * option is for. All faults are usage failures, in words.
 */
#ifndef MHA_TOOL_OPTIONS_H
#define MHA_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_VALUE = 0, /* needs a value, once */
    OPTION_TWICE,     /* needs a value, up to twice */
    OPTION_FLAG,      /* takes none */
    OPTION_MAYBE,     /* takes one after '=' only, or none */
};

struct option {
    const char *name; /* without the dashes */
    enum option_kind kind;
    const char *value[2]; /* filled in; NULL where none was given */
    size_t count;         /* times given */
};

/* arguments: NULL-terminated. */
bool options_parse(char **arguments, struct option *options, size_t n_options);

/* The values of options that were given, as numbers; *out is unchanged if the option was not
 * given. */
bool option_size(const struct option *option, size_t least, size_t *out);
bool option_int64(const struct option *option, int64_t *out);
bool option_double(const struct option *option, double *out); /* finite */

#endif
