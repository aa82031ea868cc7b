/* SPDX-License-Identifier: MIT
 *
 * The search for a layer: every scheme of schemes.c is tried at every prefix, and what fits
 * best is taken, if it is one.
 */
#include "names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "schemes.h"

/* A scheme that fits at a prefix, at least in part. */
struct match {
    const char *name; /* of the tensor that told; its first `length` bytes are the prefix */
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

/* prefix[length] + name in the file, in any of the spellings the scheme allows. */
static const struct tensor *lookup(const struct safetensors *file, const char *prefix,
                                   size_t length, const char *name, bool any_case) {
    const struct tensor *tensor = safetensors_find(file, prefix, length, name);
    for (unsigned flips = 1; tensor == NULL && any_case && flips < 4; flips++) {
        char spelling[32];
        snprintf(spelling, sizeof spelling, "%s", name);
        for (unsigned i = 0; i < 2; i++) {
            if ((flips >> i & 1) != 0) {
                spelling[2 * i] ^= 'a' ^ 'A';
            }
        }
        tensor = safetensors_find(file, prefix, length, spelling);
    }
    return tensor;
}

/* Takes the biases by the spelling that finds most of them. */
static void fill_biases(const struct safetensors *file, struct match *match) {
    const struct scheme *scheme = match->scheme;
    size_t most = 0;
    for (size_t s = 0; s < MAX_SPELLINGS; s++) {
        const struct tensor *bias[ROLES] = {NULL};
        size_t n = 0;
        for (size_t i = 0; i < ROLES; i++) {
            if (scheme->bias[s][i] != NULL) {
                bias[i] =
                    lookup(file, match->name, match->length, scheme->bias[s][i], scheme->any_case);
                n += bias[i] != NULL;
            }
        }
        if (n > most) {
            most = n;
            memcpy(match->found.bias, bias, sizeof bias);
            match->found.bias_packed = scheme->bias[s][ROLE_K] == NULL;
        }
    }
    match->present += most;
}

static void fill(const struct safetensors *file, struct match *match) {
    const struct scheme *scheme = match->scheme;
    struct layer_names *found = &match->found;
    *found = (struct layer_names){.scheme = scheme->name, .transposed = scheme->transposed};
    for (size_t i = 0; i < ROLES; i++) {
        if (scheme->weight[i] != NULL) {
            found->weight[i] =
                lookup(file, match->name, match->length, scheme->weight[i], scheme->any_case);
            match->missing += found->weight[i] == NULL;
            match->present += found->weight[i] != NULL;
        }
    }
    fill_biases(file, match);
}

/* Length of what stands before the scheme's name for a tensor, if `name` ends in that
 * (letters compared without case where the scheme allows); SIZE_MAX if not. */
static size_t prefix_length(const char *name, const char *end, bool any_case) {
    size_t length = strlen(name), tail = strlen(end);
    if (length < tail) {
        return SIZE_MAX;
    }
    const char *at = name + length - tail;
    for (size_t i = 0; i < tail; i++) {
        bool same = at[i] == end[i];
        bool letter = any_case && (i == 0 || i == 2);
        if (!same && !(letter && tolower((unsigned char)at[i]) == tolower((unsigned char)end[i]))) {
            return SIZE_MAX;
        }
    }
    return length - tail;
}

/* ---- All of them ---------------------------------------------------------- */

/* Whether `prefix`, as given by a user, names what begins the tensor's name. */
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
                struct match match = {.name = name, .scheme = &schemes[s]};
                match.length = schemes[s].weight[i] == NULL
                                   ? SIZE_MAX
                                   : prefix_length(name, schemes[s].weight[i], schemes[s].any_case);
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

/* By prefix, and at one prefix the best first: whole, then with most tensors, then as
 * the table stands. */
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

/* Leaves the best match of each prefix; of them, where there are any, the whole ones;
 * of them, where there is one, that whose prefix is the user's exactly. */
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

/* Items of a list into text that has an end: "a, b and 7 more". */
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

/* The match to use or to speak of, from those that were kept; NULL for none. */
static const struct match *most_present(const struct matches *matches) {
    const struct match *best = NULL;
    for (size_t i = 0; i < matches->count; i++) {
        if (best == NULL || matches->match[i].present > best->present) {
            best = &matches->match[i];
        }
    }
    return best;
}

static bool is_used(const struct layer_names *names, const struct tensor *tensor) {
    bool used = false;
    for (size_t i = 0; i < ROLES; i++) {
        used = used || names->bias[i] == tensor;
    }
    return used;
}

/* Whether a name is the prefix and then a bias by any spelling of the scheme. */
static bool is_bias(const char *name, const struct match *match, const struct scheme *scheme) {
    if (strncmp(name, match->name, match->length) != 0) {
        return false;
    }
    for (size_t s = 0; s < MAX_SPELLINGS; s++) {
        for (size_t i = 0; i < ROLES; i++) {
            const char *bias = scheme->bias[s][i];
            if (bias != NULL && prefix_length(name, bias, scheme->any_case) == match->length) {
                return true;
            }
        }
    }
    return false;
}

/* A bias that is there and would be left out is a wrong result that nobody sees: whatever
 * any scheme would take for one must be used. */
static bool refuse_unused_biases(const struct safetensors *file, const struct match *match) {
    for (size_t t = 0; t < file->count; t++) {
        const struct tensor *tensor = &file->tensors[t];
        for (size_t s = 0; s < N_SCHEMES; s++) {
            if (is_bias(tensor->name, match, &schemes[s]) && !is_used(&match->found, tensor)) {
                return failure("%s: tensor '%s' is named like a bias of the layer, but by the "
                               "names of %s it would not be used",
                               file->path, tensor->name, match->scheme->name);
            }
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
        const char *refused = best->scheme->refused[i];
        if (refused != NULL && lookup(file, best->name, best->length, refused, false) != NULL) {
            return failure("%s: the layer has '%.*s%s', which is not supported", file->path,
                           (int)best->length, best->name, refused);
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
