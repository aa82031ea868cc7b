/* SPDX-License-Identifier: MIT
 *
 * The subcommands of the mha program, one file each. Arguments are those after the
 * subcommand's name, NULL-terminated. False: a failure is recorded and nothing was
 * printed to standard output, unless the header of a command says otherwise.
 */
#ifndef MHA_TOOL_COMMANDS_H
#define MHA_TOOL_COMMANDS_H

#include <stdbool.h>

/* Also false, after its summary, if the output is not as --expect says. */
bool command_run(char **arguments);
bool command_info(char **arguments);
/* Also false, after its table, if two results differ. */
bool command_check(char **arguments);

#endif
