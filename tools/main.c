/* SPDX-License-Identifier: MIT
 *
 * The mha program: picks the subcommand, and turns its outcome into one line on standard
 * error and an exit status: 0, 1 for a failure, 2 for a wrong command line.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "failure.h"
#include "mha.h"

static const char usage[] =
    "mha: multi-head attention on CPUs, the same bits on every one of them\n"
    "\n"
    "  mha run     compute one attention layer: .safetensors weights, .npy in and out\n"
    "  mha check   compare every ISA of this machine with the scalar path, bit by bit\n"
    "  mha info    what this build and this machine have\n"
    "\n"
    "  mha COMMAND --help, mha --help, mha --version\n";

static bool dispatch(char **argv) {
    static const struct {
        const char *name;
        bool (*run)(char **arguments);
    } commands[] = {{"run", command_run}, {"check", command_check}, {"info", command_info}};
    const char *name = argv[0] == NULL ? NULL : argv[1];
    if (name == NULL) {
        return failure_usage("no command given: run, check or info (mha --help says more)");
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        fputs(usage, stdout);
        return true;
    }
    if (strcmp(name, "--version") == 0) {
        printf("mha %s\n", mha_version());
        return true;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argv + 2);
        }
    }
    return failure_usage("unknown command '%s': run, check or info (mha --help says more)", name);
}

int main(int argc, char **argv) {
    (void)argc;
    bool good = dispatch(argv);
    if (good && (fflush(stdout) != 0 || ferror(stdout))) {
        good = failure("standard output: %s", strerror(errno));
    }
    if (!good) {
        fprintf(stderr, "mha: %s\n", failure_message());
        return failure_status();
    }
    return 0;
}
