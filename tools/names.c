/* SPDX-License-Identifier: MIT
 *
 * The search for a layer: tries every scheme of schemes.c at every prefix and takes the best fit,
 * if there is only one.
 */
#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "schemes.h"

/* A scheme that fits at a prefix, at least in part. */
struct match {
    const char *name; /* of the tensor that matched; its first `length` bytes are the prefix */
    size_t length;
    const struct scheme *scheme;
    struct layer_names found;
    size_t missing; /* weights */
    size_t present; /* weights and biases */
};

struct matches {
    struct match *match;
    size_t count, capacity;
};

/* ---- One scheme at one prefix --------------------------------------------- */

static const struct tensor *beside(const struct safetensors *file, const struct match *match,
                                   const char *name) {
    return name == NULL ? NULL : safetensors_find(file, match->name, match->length, name);
}

static void fill(const struct safetensors *file, struct match *match) {
    const struct scheme *scheme = match->scheme;
    struct layer_names *found = &match->found;
    *found = (struct layer_names){.scheme = scheme->name,
                                  .transposed = scheme->transposed,
                                  .bias_packed = scheme->bias[ROLE_K] == NULL};
    for (size_t i = 0; i < ROLES; i++) {
        found->weight[i] = beside(file, match, scheme->weight[i]);
        found->bias[i] = beside(file, match, scheme->bias[i]);
        match->missing += scheme->weight[i] != NULL && found->weight[i] == NULL;
        match->present += found->weight[i] != NULL;
        match->present += found->bias[i] != NULL;
    }
}

/* Length of a name without `end`; SIZE_MAX if the name does not end in it. */
static size_t prefix_length(const char *name, const char *end) {
    size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0 ? length - tail : SIZE_MAX;
}

/* ---- All of them ---------------------------------------------------------- */

/* Whether the user's prefix selects a layer whose names begin with name[length]. */
static bool prefix_allows(const char *prefix, const char *name, size_t length) {
    if (prefix == NULL) {
        return length == 0 || name[length - 1] == '.';
    }
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0) {
        return false;
    }
    return n == length || ((length == 0 || name[length - 1] == '.') &&
                           (n == 0 || prefix[n - 1] == '.' || name[n] == '.'));
}

static bool add(struct matches *matches, const struct match *match) {
    if (matches->count == matches->capacity) {
        size_t capacity = 2 * matches->capacity + 64;
        struct match *grown = realloc(matches->match, capacity * sizeof *grown);
        if (grown == NULL) {
            return failure_memory();
        }
        matches->match = grown;
        matches->capacity = capacity;
    }
    matches->match[matches->count++] = *match;
    return true;
}

static bool find_all(const struct safetensors *file, const char *prefix, struct matches *matches) {
    for (size_t t = 0; t < file->count; t++) {
        for (size_t s = 0; s < N_SCHEMES; s++) {
            for (size_t i = 0; i < ROLES; i++) {
                const char *name = file->tensors[t].name;
                const char *end = schemes[s].weight[i];
                struct match match = {.name = name, .scheme = &schemes[s]};
                match.length = end == NULL ? SIZE_MAX : prefix_length(name, end);
                if (match.length == SIZE_MAX || !prefix_allows(prefix, name, match.length)) {
                    continue;
                }
                fill(file, &match);
                if (!add(matches, &match)) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* Sorts by prefix, and at one prefix the best first: complete ones, then those with most tensors,
 * then by the order of the table. */
static int by_prefix(const void *left, const void *right) {
    const struct match *a = left, *b = right;
    int order = memcmp(a->name, b->name, a->length < b->length ? a->length : b->length);
    if (order != 0 || a->length != b->length) {
        return order != 0 ? order : a->length < b->length ? -1 : 1;
    }
    if ((a->missing == 0) != (b->missing == 0)) {
        return a->missing == 0 ? -1 : 1;
    }
    if (a->present != b->present) {
        return a->present > b->present ? -1 : 1;
    }
    return a->scheme < b->scheme ? -1 : a->scheme > b->scheme;
}

static bool same_prefix(const struct match *a, const struct match *b) {
    return a->length == b->length && memcmp(a->name, b->name, a->length) == 0;
}

/* Keeps the best match of each prefix. If some of these are complete, keeps only them. If one of
 * those has exactly the user's prefix, keeps only that one. */
static void keep_best(struct matches *matches, const char *prefix) {
    size_t n = 0, whole = 0, exact = 0;
    if (matches->count > 0) {
        qsort(matches->match, matches->count, sizeof *matches->match, by_prefix);
    }
    for (size_t i = 0; i < matches->count; i++) {
        if (i == 0 || !same_prefix(&matches->match[i], &matches->match[n - 1])) {
            matches->match[n++] = matches->match[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (matches->match[i].missing == 0) {
            matches->match[whole++] = matches->match[i];
        }
    }
    n = whole > 0 ? whole : n;
    for (size_t i = 0; i < n && prefix != NULL && exact == 0; i++) {
        size_t length = strlen(prefix);
        const struct match match = matches->match[i];
        if (length == match.length || (length + 1 == match.length && match.name[length] == '.')) {
            matches->match[exact++] = match;
        }
    }
    matches->count = exact > 0 ? exact : n;
}

/* ---- What to say ---------------------------------------------------------- */

/* A list of names as text of limited length: "a, b and 7 more". */
struct list {
    char text[700];
    size_t n;
    size_t left_off;
};

static void list_add(struct list *list, const char *item, size_t length) {
    if (list->left_off > 0 || list->n + length + 8 > sizeof list->text) {
        list->left_off++;
        return;
    }
    list->n += (size_t)snprintf(list->text + list->n, sizeof list->text - list->n, "%s%.*s",
                                list->n > 0 ? ", " : "", (int)length, item);
}

static bool fail_list(const char *path, const char *what, const struct list *list) {
    char more[40] = "";
    if (list->left_off > 0) {
        snprintf(more, sizeof more, " and %zu more", list->left_off);
    }
    return failure("%s: %s: %s%s", path, what, list->n > 0 ? list->text : "(none)", more);
}

static bool fail_none(const struct safetensors *file, const char *prefix) {
    char what[1024];
    struct list names = {0}, known = {0};
    for (size_t i = 0; i < N_SCHEMES; i++) {
        if (i == 0 || strcmp(schemes[i].name, schemes[i - 1].name) != 0) {
            list_add(&known, schemes[i].name, strlen(schemes[i].name));
        }
    }
    for (size_t i = 0; i < file->count; i++) {
        if (i < 8) {
            list_add(&names, file->tensors[i].name, strlen(file->tensors[i].name));
        } else {
            names.left_off++;
        }
    }
    snprintf(what, sizeof what,
             "no attention layer found%s%.100s%s by the names of %s; the file has",
             prefix != NULL ? " at --prefix '" : "", prefix != NULL ? prefix : "",
             prefix != NULL ? "'" : "", known.text);
    return fail_list(file->path, what, &names);
}

static bool fail_several(const struct safetensors *file, const struct matches *matches) {
    struct list prefixes = {0};
    for (size_t i = 0; i < matches->count; i++) {
        const struct match *match = &matches->match[i];
        size_t dot = match->length > 0 && match->name[match->length - 1] == '.' ? 1 : 0;
        if (match->length == 0) {
            list_add(&prefixes, "''", 2);
        } else {
            list_add(&prefixes, match->name, match->length - dot);
        }
    }
    return fail_list(file->path, "several attention layers; --prefix picks one of", &prefixes);
}

static bool fail_missing(const struct safetensors *file, const struct match *match) {
    for (size_t i = 0; i < ROLES; i++) {
        if (match->scheme->weight[i] != NULL && match->found.weight[i] == NULL) {
            return failure("%s: tensor '%.*s%s' is missing (by the names of %s)", file->path,
                           (int)match->length, match->name, match->scheme->weight[i],
                           match->scheme->name);
        }
    }
    return failure("%s: no weights", file->path); /* not reached: something is missing */
}

/* The match with the most tensors; NULL if there are no matches. */
static const struct match *most_present(const struct matches *matches) {
    const struct match *best = NULL;
    for (size_t i = 0; i < matches->count; i++) {
        if (best == NULL || matches->match[i].present > best->present) {
            best = &matches->match[i];
        }
    }
    return best;
}

/* Whether a name, without the layer's prefix, is that of a bias: a name that some family has,
 * or one like "q_bias" and "b_q". GPT-2 keeps its causal mask in "bias" and "masked_bias". */
static bool is_bias(const char *name) {
    for (size_t s = 0; s < N_SCHEMES; s++) {
        for (size_t i = 0; i < ROLES; i++) {
            if (schemes[s].bias[i] != NULL && strcmp(name, schemes[s].bias[i]) == 0) {
                return true;
            }
        }
    }
    bool gpt2 = strcmp(name, "bias") == 0 || strcmp(name, "masked_bias") == 0;
    bool b = (name[0] == 'b' || name[0] == 'B') && name[1] == '_';
    return strchr(name, '.') == NULL && !gpt2 && (b || strstr(name, "bias") != NULL);
}

/* Leaving out a bias would silently give a wrong result. */
static bool refuse_unused_biases(const struct safetensors *file, const struct match *match) {
    const struct layer_names *found = &match->found;
    for (size_t t = 0; t < file->count; t++) {
        const struct tensor *tensor = &file->tensors[t];
        bool used = false;
        for (size_t i = 0; i < ROLES; i++) {
            used = used || tensor == found->bias[i] || tensor == found->weight[i];
        }
        if (!used && strncmp(tensor->name, match->name, match->length) == 0 &&
            is_bias(tensor->name + match->length)) {
            return failure("%s: tensor '%s' is named like a bias of the layer, but by the "
                           "names of %s it would not be used",
                           file->path, tensor->name, match->scheme->name);
        }
    }
    return true;
}

static bool choose(const struct safetensors *file, const char *prefix, const struct matches *all,
                   struct layer_names *names) {
    const struct match *best = most_present(all);
    if (best == NULL || (best->missing > 0 && best->present < 2)) {
        return fail_none(file, prefix);
    }
    if (best->missing > 0) {
        return fail_missing(file, best);
    }
    if (all->count > 1) {
        return fail_several(file, all);
    }
    for (size_t i = 0; i < MAX_REFUSED; i++) {
        const struct tensor *refused = beside(file, best, best->scheme->refused[i]);
        if (refused != NULL) {
            return failure("%s: the layer has '%s', which is not supported", file->path,
                           refused->name);
        }
    }
    *names = best->found;
    return refuse_unused_biases(file, best);
}

bool names_find(const struct safetensors *file, const char *prefix, struct layer_names *names) {
    struct matches matches = {0};
    bool good = find_all(file, prefix, &matches);
    if (good) {
        keep_best(&matches, prefix);
        good = choose(file, prefix, &matches, names);
    }
    free(matches.match);
    return good;
}
