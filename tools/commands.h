/* SPDX-License-Identifier: MIT
 *
 * The subcommands of the mha program, one file each. Arguments are those after the
 * subcommand's name, NULL-terminated. False: a failure is recorded and nothing was
 * printed to standard output, unless the header of a command says otherwise.
 */
#ifndef MHA_TOOL_COMMANDS_H
#define MHA_TOOL_COMMANDS_H

#include <stdbool.h>

/* False also, after its summary, where the result is not what was expected of it. */
bool command_run(char **arguments);
bool command_info(char **arguments);
/* False also, after its table, where two results differ. */
bool command_check(char **arguments);

#endif
