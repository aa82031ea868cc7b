/* SPDX-License-Identifier: MIT
 *
 * The CPU's name as the operating system tells it: x86 gives it as text, ARM boards as numbers
 * and the board's model.
 */
#include "cpu_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

/* MIDR_EL1's part numbers of implementer 0x41, from Arm's technical reference manuals. */
static const char *arm_part(unsigned long part) {
    static const struct {
        unsigned long part;
        const char *name;
    } known[] = {
        {0xc07, "Cortex-A7"},   {0xc09, "Cortex-A9"},   {0xc0f, "Cortex-A15"},
        {0xd03, "Cortex-A53"},  {0xd04, "Cortex-A35"},  {0xd05, "Cortex-A55"},
        {0xd07, "Cortex-A57"},  {0xd08, "Cortex-A72"},  {0xd09, "Cortex-A73"},
        {0xd0a, "Cortex-A75"},  {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse-N1"},
        {0xd0d, "Cortex-A77"},  {0xd40, "Neoverse-V1"}, {0xd41, "Cortex-A78"},
        {0xd46, "Cortex-A510"}, {0xd47, "Cortex-A710"}, {0xd49, "Neoverse-N2"},
        {0xd4f, "Neoverse-V2"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].part == part) {
            return known[i].name;
        }
    }
    return NULL;
}

/* The value of the first line "key : value"; false if there is none. */
static bool find_line(FILE *file, const char *key, char *value, size_t capacity) {
    char line[512];
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        size_t n = strlen(key);
        if (strncmp(line, key, n) != 0) {
            continue;
        }
        n += strspn(line + n, " \t");
        if (line[n] == ':') {
            n += 1 + strspn(line + n + 1, " \t");
            line[strcspn(line, "\n")] = '\0';
            snprintf(value, capacity, "%s", line + n);
            return *value != '\0';
        }
    }
    return false;
}

static bool from_cpuinfo(char *out, size_t capacity) {
    static const char *const keys[] = {"model name", "cpu model", "uarch", "cpu", "machine"};
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) {
        return false;
    }
    char part[32], board[96];
    bool found = false;
    if (find_line(file, "CPU part", part, sizeof part)) {
        const char *name = arm_part(strtoul(part, NULL, 0));
        snprintf(out, capacity, "%s%s", name != NULL ? name : "ARM part ", name ? "" : part);
        found = true;
    }
    for (size_t i = 0; !found && i < sizeof keys / sizeof keys[0]; i++) {
        found = find_line(file, keys[i], out, capacity);
    }
    if (found && find_line(file, "Model", board, sizeof board)) {
        size_t n = strlen(out);
        snprintf(out + n, capacity - n, " (%s)", board);
    }
    fclose(file);
    return found;
}

void cpu_name(char *out, size_t capacity) {
    bool found = from_cpuinfo(out, capacity);
#ifdef __APPLE__
    size_t size = capacity;
    found = found || sysctlbyname("machdep.cpu.brand_string", out, &size, NULL, 0) == 0;
#endif
    if (!found) {
        snprintf(out, capacity, "unknown");
    }
    for (char *c = out; *c != '\0'; c++) {
        if (*c < 0x20 || *c > 0x7e) {
            *c = '?';
        }
    }
}
