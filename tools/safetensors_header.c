/* SPDX-License-Identifier: MIT
 *
 * jsmn splits the JSON header into tokens but accepts much that is not JSON ("[1 2]", "{,}", a
 * second value). So this code also checks the text between the tokens: it must be exactly the
 * punctuation of the structure.
 */
#include "safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#include <jsmn.h>

#include "failure.h"

struct walk {
    const char *path;
    char *text;
    size_t length;
    size_t at; /* all text before it is consumed */
    const jsmntok_t *next;
    const jsmntok_t *end;
};

static bool malformed(const struct walk *w, const char *what) {
    return failure("%s: malformed header: %s at byte %zu", w->path, what, w->at);
}

static void skip_space(struct walk *w) {
    while (w->at < w->length && (w->text[w->at] == ' ' || w->text[w->at] == '\t' ||
                                 w->text[w->at] == '\r' || w->text[w->at] == '\n')) {
        w->at++;
    }
}

static bool take(struct walk *w, char punctuation) {
    skip_space(w);
    if (w->at < w->length && w->text[w->at] == punctuation) {
        w->at++;
        return true;
    }
    return false;
}

/* The next token, if it has this type and only white space comes before it. Of a container only
 * the opening bracket is consumed. */
static const jsmntok_t *take_token(struct walk *w, jsmntype_t type) {
    skip_space(w);
    const jsmntok_t *token = w->next;
    size_t start = w->at + (type == JSMN_STRING ? 1 : 0);
    if (token == w->end || token->type != type || (size_t)token->start != start) {
        return NULL;
    }
    w->next++;
    if (type == JSMN_STRING) {
        w->at = (size_t)token->end + 1;
    } else if (type == JSMN_PRIMITIVE) {
        w->at = (size_t)token->end;
    } else {
        w->at = start + 1;
    }
    return token;
}

/* True if another item of a container follows; at its end, or where a comma is
 * missing, false. The caller takes the closing bracket. */
static bool another(struct walk *w, char close, size_t items) {
    skip_space(w);
    return items > 0 ? take(w, ',') : w->at < w->length && w->text[w->at] != close;
}

/* ---- Values --------------------------------------------------------------- */

static unsigned hex4(const char *digits) {
    char text[5] = {digits[0], digits[1], digits[2], digits[3], '\0'};
    return (unsigned)strtoul(text, NULL, 16);
}

static char *put_utf8(char *out, unsigned c) {
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 0x3f));
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

/* Takes a string and decodes it in place, which never makes it longer. jsmn has checked that
 * escapes are complete. NULL for what can't be a name: control characters, NUL, halves of
 * surrogate pairs. */
static const char *take_string(struct walk *w) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const jsmntok_t *token = take_token(w, JSMN_STRING);
    if (token == NULL) {
        return NULL;
    }
    char *start = w->text + token->start;
    const char *end = w->text + token->end;
    char *out = start;
    for (const char *in = start; in < end;) {
        if (*in != '\\') {
            if ((unsigned char)*in < 0x20) {
                return NULL;
            }
            *out++ = *in++;
            continue;
        }
        in++;
        if (*in != 'u') {
            *out++ = meanings[strchr(letters, *in++) - letters];
            continue;
        }
        unsigned c = hex4(in + 1);
        in += 5;
        if (c >= 0xd800 && c < 0xdc00 && end - in >= 6 && in[0] == '\\' && in[1] == 'u') {
            unsigned low = hex4(in + 2);
            c = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : c;
            in += c >= 0x10000 ? 6 : 0;
        }
        if (c == 0 || (c >= 0xd800 && c < 0xe000)) {
            return NULL;
        }
        out = put_utf8(out, c);
    }
    *out = '\0';
    return start;
}

/* A whole number without sign, fraction, exponent or leading zeros. */
static bool take_number(struct walk *w, uint64_t *number) {
    const jsmntok_t *token = take_token(w, JSMN_PRIMITIVE);
    if (token == NULL) {
        return false;
    }
    const char *digits = w->text + token->start;
    int n = token->end - token->start;
    uint64_t value = 0;
    for (int i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = 10 * value + digit;
    }
    *number = value;
    return n == 1 || digits[0] != '0';
}

/* An array of up to `capacity` numbers. */
static bool take_numbers(struct walk *w, uint64_t *numbers, size_t capacity, size_t *count) {
    *count = 0;
    if (take_token(w, JSMN_ARRAY) == NULL) {
        return false;
    }
    while (another(w, ']', *count)) {
        if (*count == capacity || !take_number(w, &numbers[*count])) {
            return false;
        }
        ++*count;
    }
    return take(w, ']');
}

/* ---- The structure -------------------------------------------------------- */

static struct element element_of_dtype(const char *dtype) {
    static const struct {
        const char *name;
        enum element_kind kind;
        size_t size;
    } known[] = {
        {"F64", ELEMENT_FLOAT, 8},     {"F32", ELEMENT_FLOAT, 4},     {"F16", ELEMENT_FLOAT, 2},
        {"BF16", ELEMENT_BFLOAT16, 2}, {"BOOL", ELEMENT_OTHER, 1},    {"U8", ELEMENT_OTHER, 1},
        {"I8", ELEMENT_OTHER, 1},      {"U16", ELEMENT_OTHER, 2},     {"I16", ELEMENT_OTHER, 2},
        {"U32", ELEMENT_OTHER, 4},     {"I32", ELEMENT_OTHER, 4},     {"U64", ELEMENT_OTHER, 8},
        {"I64", ELEMENT_OTHER, 8},     {"C64", ELEMENT_OTHER, 8},     {"F8_E5M2", ELEMENT_OTHER, 1},
        {"F8_E4M3", ELEMENT_OTHER, 1}, {"F8_E8M0", ELEMENT_OTHER, 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(dtype, known[i].name) == 0) {
            return (struct element){known[i].kind, known[i].size, false};
        }
    }
    return (struct element){ELEMENT_OTHER, 0, false};
}

static bool take_shape(struct walk *w, struct shape *shape) {
    uint64_t numbers[MAX_RANK];
    if (!take_numbers(w, numbers, MAX_RANK, &shape->rank)) {
        return false;
    }
    for (size_t i = 0; i < shape->rank; i++) {
        if (numbers[i] > SIZE_MAX) {
            return false;
        }
        shape->dim[i] = (size_t)numbers[i];
    }
    return true;
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, in any order. */
static bool take_tensor(struct walk *w, struct tensor *tensor) {
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    if (take_token(w, JSMN_OBJECT) == NULL) {
        return malformed(w, "no object for a tensor");
    }
    for (size_t items = 0; another(w, '}', items); items++) {
        const char *key = take_string(w);
        unsigned field = 0;
        bool good = key != NULL && take(w, ':');
        if (good && strcmp(key, "dtype") == 0) {
            field = DTYPE;
            tensor->dtype = take_string(w);
            good = tensor->dtype != NULL;
        } else if (good && strcmp(key, "shape") == 0) {
            field = SHAPE;
            good = take_shape(w, &tensor->shape);
        } else if (good && strcmp(key, "data_offsets") == 0) {
            field = OFFSETS;
            uint64_t offsets[2] = {0, 0};
            size_t count;
            good = take_numbers(w, offsets, 2, &count) && count == 2;
            tensor->begin = offsets[0];
            tensor->end = offsets[1];
        }
        if (!good || field == 0 || (seen & field) != 0) {
            return failure("%s: malformed header: tensor '%s' has a wrong %s", w->path,
                           tensor->name,
                           field == DTYPE     ? "dtype (a string)"
                           : field == SHAPE   ? "shape (an array of at most 8 sizes)"
                           : field == OFFSETS ? "data_offsets (an array of 2 numbers)"
                                              : "field");
        }
        seen |= field;
    }
    if (!take(w, '}') || seen != (DTYPE | SHAPE | OFFSETS)) {
        return failure("%s: malformed header: tensor '%s' needs dtype, shape and data_offsets",
                       w->path, tensor->name);
    }
    tensor->element = element_of_dtype(tensor->dtype);
    return true;
}

/* {"__metadata__": {strings: strings}}: checked for form, otherwise ignored. */
static bool skip_metadata(struct walk *w) {
    bool good = take_token(w, JSMN_OBJECT) != NULL;
    for (size_t items = 0; good && another(w, '}', items); items++) {
        good = take_string(w) != NULL && take(w, ':') && take_string(w) != NULL;
    }
    return (good && take(w, '}')) || malformed(w, "__metadata__ is not an object of strings");
}

static bool take_header(struct walk *w, struct tensor *tensors, size_t capacity, size_t *count) {
    bool metadata = false;
    *count = 0;
    if (w->length == 0 || w->text[0] != '{' || take_token(w, JSMN_OBJECT) == NULL) {
        return malformed(w, "no JSON object");
    }
    for (size_t items = 0; another(w, '}', items); items++) {
        const char *name = take_string(w);
        if (name == NULL || !take(w, ':')) {
            return malformed(w, "no name");
        }
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata || !skip_metadata(w)) {
                return metadata ? malformed(w, "a second __metadata__") : false;
            }
            metadata = true;
        } else if (*count == capacity) {
            return malformed(w, "no whole tensor");
        } else {
            tensors[*count] = (struct tensor){.name = name};
            if (!take_tensor(w, &tensors[*count])) {
                return false;
            }
            ++*count;
        }
    }
    if (!take(w, '}')) {
        return malformed(w, "neither ',' nor '}'");
    }
    skip_space(w);
    return w->at == w->length || malformed(w, "something after the JSON object");
}

/* jsmn's time is quadratic in the depth of brackets; here they are at most 3 deep. */
static bool nested_too_deep(const char *text, size_t length) {
    size_t depth = 0;
    bool string = false;
    for (size_t i = 0; i < length && depth <= 3; i++) {
        if (string && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            string = !string;
        } else if (!string && (text[i] == '{' || text[i] == '[')) {
            depth++;
        } else if (!string && (text[i] == '}' || text[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return depth > 3;
}

bool safetensors_parse_header(const char *path, char *header, size_t length,
                              struct tensor **tensors, size_t *count) {
    *tensors = NULL;
    *count = 0;
    if (nested_too_deep(header, length)) {
        return failure("%s: malformed header: brackets more than 3 deep", path);
    }
    jsmn_parser parser;
    jsmn_init(&parser);
    int tokens = jsmn_parse(&parser, header, length, NULL, 0);
    if (tokens <= 0) {
        return failure("%s: malformed header: not JSON", path);
    }
    size_t capacity = (size_t)tokens / 10 + 1; /* a tensor has at least 10 tokens */
    jsmntok_t *token = calloc((size_t)tokens, sizeof *token);
    *tensors = calloc(capacity, sizeof **tensors);
    bool good = false;
    jsmn_init(&parser);
    if (token == NULL || *tensors == NULL) {
        failure_memory();
    } else if (jsmn_parse(&parser, header, length, token, (unsigned)tokens) != tokens) {
        failure("%s: malformed header: not JSON", path);
    } else {
        struct walk walk = {path, header, length, 0, token, token + parser.toknext};
        good = take_header(&walk, *tensors, capacity, count);
    }
    free(token);
    if (!good) {
        free(*tensors);
        *tensors = NULL;
        *count = 0;
    }
    return good;
}
