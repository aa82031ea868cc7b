/* SPDX-License-Identifier: MIT
 *
 * mha info: what this build and this machine have, for people and (--json) for programs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "cpu_name.h"
#include "failure.h"
#include "mha.h"
#include "options.h"

static const char usage[] =
    "mha info [--json]\n"
    "\n"
    "The version, the CPU, the instruction sets in this build and those that this machine\n"
    "can run, and which of them is chosen: the best one, or what $MHA_ISA names.\n";

/* What mha_context_create() chooses by default; AUTO if it fails (recorded). */
static mha_isa chosen_isa(void) {
    mha_context *context;
    if (mha_context_create(NULL, &context) != MHA_OK) {
        failure("%s", mha_error_message());
        return MHA_ISA_AUTO;
    }
    mha_isa isa = mha_context_isa(context);
    mha_context_destroy(&context);
    return isa;
}

static void print_isas(int (*has)(mha_isa), const char *quote, const char *separator) {
    const char *before = "";
    for (mha_isa isa = MHA_ISA_SCALAR; mha_isa_name(isa) != NULL; isa++) {
        if (has(isa)) {
            printf("%s%s%s%s", before, quote, mha_isa_name(isa), quote);
            before = separator;
        }
    }
}

static void print_json(const char *cpu, mha_isa chosen, bool by_variable) {
    printf("{\"version\": \"%s\", \"cpu\": \"", mha_version());
    for (const char *c = cpu; *c != '\0'; c++) {
        printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    printf("\", \"built\": [");
    print_isas(mha_isa_built, "\"", ", ");
    printf("], \"supported\": [");
    print_isas(mha_isa_supported, "\"", ", ");
    printf("], \"chosen\": \"%s\", \"chosen_by\": \"%s\"}\n", mha_isa_name(chosen),
           by_variable ? "MHA_ISA" : "default");
}

static void print_text(const char *cpu, mha_isa chosen, bool by_variable) {
    printf("version    %s\n", mha_version());
    printf("cpu        %s\n", cpu);
    printf("built      ");
    print_isas(mha_isa_built, "", " ");
    printf("\nsupported  ");
    print_isas(mha_isa_supported, "", " ");
    printf("\nchosen     %s (%s)\n", mha_isa_name(chosen),
           by_variable ? "$MHA_ISA asks for it" : "the best that this machine supports");
}

bool command_info(char **arguments) {
    enum { JSON, HELP, N_OPTIONS };
    struct option options[N_OPTIONS] = {
        [JSON] = {.name = "json", .kind = OPTION_FLAG},
        [HELP] = {.name = "help", .kind = OPTION_FLAG},
    };
    if (!options_parse(arguments, options, N_OPTIONS)) {
        return false;
    }
    if (options[HELP].count > 0) {
        fputs(usage, stdout);
        return true;
    }
    mha_isa chosen = chosen_isa();
    if (chosen == MHA_ISA_AUTO) {
        return false;
    }
    const char *variable = getenv("MHA_ISA");
    bool by_variable = variable != NULL && *variable != '\0' && strcmp(variable, "auto") != 0;
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    if (options[JSON].count > 0) {
        print_json(cpu, chosen, by_variable);
    } else {
        print_text(cpu, chosen, by_variable);
    }
    return true;
}
