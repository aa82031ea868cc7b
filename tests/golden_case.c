/* SPDX-License-Identifier: MIT
 *
 * See golden_case.h.
 */
#include "golden_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field_kind { FIELD_SIZE, FIELD_INT, FIELD_REAL, FIELD_WORD };

#define FIELD(kind, field)                                                                         \
    { #field, kind, offsetof(struct golden_case, field), sizeof((struct golden_case *)0)->field }

static const struct field {
    const char *name;
    enum field_kind kind;
    size_t offset, size;
} fields[] = {
    FIELD(FIELD_SIZE, batch),      FIELD(FIELD_SIZE, q_len),      FIELD(FIELD_SIZE, kv_len),
    FIELD(FIELD_SIZE, d_model),    FIELD(FIELD_SIZE, n_heads),    FIELD(FIELD_SIZE, n_kv_heads),
    FIELD(FIELD_SIZE, head_dim),   FIELD(FIELD_SIZE, v_head_dim), FIELD(FIELD_SIZE, k_dim),
    FIELD(FIELD_SIZE, v_dim),      FIELD(FIELD_SIZE, fill),       FIELD(FIELD_SIZE, dead),
    FIELD(FIELD_SIZE, skip),       FIELD(FIELD_SIZE, window),     FIELD(FIELD_SIZE, alibi),
    FIELD(FIELD_SIZE, weights),    FIELD(FIELD_SIZE, rows),       FIELD(FIELD_INT, query_offset),
    FIELD(FIELD_INT, input_exp),   FIELD(FIELD_INT, weight_exp),  FIELD(FIELD_INT, bits),
    FIELD(FIELD_INT, common),      FIELD(FIELD_REAL, scale),      FIELD(FIELD_REAL, tolerance),
    FIELD(FIELD_WORD, op),         FIELD(FIELD_WORD, inputs),     FIELD(FIELD_WORD, biases),
    FIELD(FIELD_WORD, layout),     FIELD(FIELD_WORD, keep),       FIELD(FIELD_WORD, bias),
    FIELD(FIELD_WORD, kv_lengths), FIELD(FIELD_WORD, causal),     FIELD(FIELD_WORD, masked_rows),
};

static bool set_field(struct golden_case *c, const char *name, size_t name_length,
                      const char *value) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *field = &fields[i];
        if (strlen(field->name) != name_length || memcmp(field->name, name, name_length) != 0) {
            continue;
        }
        char *place = (char *)c + field->offset;
        char *end = NULL;
        switch (field->kind) {
        case FIELD_SIZE:
            *(size_t *)(void *)place = strtoul(value, &end, 10);
            break;
        case FIELD_INT:
            *(int *)(void *)place = (int)strtol(value, &end, 10);
            break;
        case FIELD_REAL:
            *(double *)(void *)place = strtod(value, &end);
            break;
        case FIELD_WORD:
            if (strlen(value) >= field->size) {
                return false;
            }
            strcpy(place, value);
            return true;
        }
        return *value != '\0' && *end == '\0';
    }
    return false;
}

static bool parse_row(char *line, struct golden_case *c) {
    *c = (struct golden_case){.batch = 1,
                              .rows = 1,
                              .input_exp = 1,
                              .weight_exp = -2,
                              .bits = 16,
                              .tolerance = 1e-5,
                              .op = "forward",
                              .inputs = "q"};
    const char *word = strtok(line, " \n");
    if (strlen(word) >= sizeof c->name) {
        return false;
    }
    strcpy(c->name, word);
    while ((word = strtok(NULL, " \n")) != NULL) {
        const char *equals = strchr(word, '=');
        if (equals == NULL || !set_field(c, word, (size_t)(equals - word), equals + 1)) {
            fprintf(stderr, "%s: %s?\n", c->name, word);
            return false;
        }
    }
    if (strcmp(c->op, "forward") == 0 && strcmp(c->inputs, "q") == 0) {
        c->kv_len = c->q_len;
    }
    return true;
}

struct golden_case *golden_read_cases(const char *path, size_t *count) {
    FILE *file = fopen(path, "r");
    struct golden_case *cases = NULL;
    char line[1024];
    *count = 0;
    if (file == NULL) {
        perror(path);
        return NULL;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        struct golden_case *grown = realloc(cases, (*count + 1) * sizeof *cases);
        if (grown == NULL || !parse_row(line, &grown[*count])) {
            fprintf(stderr, "%s: row %zu can't be read\n", path, *count + 1);
            free(grown == NULL ? cases : grown);
            fclose(file);
            return NULL;
        }
        cases = grown;
        ++*count;
    }
    fclose(file);
    return cases;
}

size_t golden_kv_lengths(const struct golden_case *c, size_t lengths[GOLDEN_MAX_BATCH]) {
    size_t count = 0;
    const char *at = c->kv_lengths;
    while (*at != '\0' && count < GOLDEN_MAX_BATCH) {
        char *end;
        lengths[count++] = strtoul(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}
