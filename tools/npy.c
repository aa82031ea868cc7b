/* SPDX-License-Identifier: MIT
 *
 * .npy files. The header is a Python dict literal; the parser accepts the literals that the
 * format allows and no other Python.
 */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

/* Real headers have 118 bytes; NumPy itself refuses more than 10,000. */
#define MAX_HEADER ((size_t)1 << 20)

/* Reads up to `want` bytes into a buffer that grows as data arrives; *have is the number read.
 * The caller frees *out, which is NULL on failure. */
static bool read_growing(FILE *stream, const char *name, size_t want, unsigned char **out,
                         size_t *have) {
    size_t capacity = want < 65536 ? want : 65536;
    unsigned char *bytes = malloc(capacity + 1);
    *out = NULL;
    *have = 0;
    while (bytes != NULL) {
        *have += fread(bytes + *have, 1, capacity - *have, stream);
        if (*have < capacity || *have == want) {
            break;
        }
        capacity = capacity > want / 2 ? want : 2 * capacity;
        unsigned char *grown = realloc(bytes, capacity);
        if (grown == NULL) {
            free(bytes);
        }
        bytes = grown;
    }
    if (bytes == NULL) {
        return failure_memory();
    }
    if (ferror(stream)) {
        failure("%s: %s", name, strerror(errno));
        free(bytes);
        return false;
    }
    *out = bytes;
    return true;
}

/* ---- The header's dict literal -------------------------------------------- */

struct cursor {
    const char *at;
    const char *end;
};

static void skip_space(struct cursor *c) {
    while (c->at < c->end && strchr(" \t\r\n", *c->at) != NULL && *c->at != '\0') {
        c->at++;
    }
}

/* Takes `text` after any space; false if something else comes. */
static bool take(struct cursor *c, const char *text) {
    skip_space(c);
    size_t length = strlen(text);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, text, length) != 0) {
        return false;
    }
    c->at += length;
    return true;
}

/* A string in either kind of quotes, without escapes: no field needs them. */
static bool take_string(struct cursor *c, char *out, size_t capacity) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) {
        return false;
    }
    char quote = *c->at++;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' || n + 1 == capacity) {
            return false;
        }
        out[n++] = *c->at++;
    }
    out[n] = '\0';
    return take(c, (char[]){quote, '\0'});
}

/* A decimal number as Python writes it: no sign, no leading zeros. */
static bool take_number(struct cursor *c, size_t *out) {
    skip_space(c);
    const char *start = c->at;
    size_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        size_t digit = (size_t)(*c->at++ - '0');
        if (value > (SIZE_MAX - digit) / 10) {
            return false;
        }
        value = 10 * value + digit;
    }
    *out = value;
    return c->at > start && (*start != '0' || c->at == start + 1);
}

/* A tuple of numbers. "(3)" is refused: it is not a tuple in Python. */
static bool take_shape(struct cursor *c, struct shape *shape) {
    if (!take(c, "(")) {
        return false;
    }
    bool comma = true;
    shape->rank = 0;
    while (!take(c, ")")) {
        if (!comma || shape->rank == MAX_RANK || !take_number(c, &shape->dim[shape->rank])) {
            return false;
        }
        shape->rank++;
        comma = take(c, ",");
    }
    return shape->rank != 1 || comma;
}

static bool parse_descr(const char *descr, struct element *element) {
    static const struct {
        const char *code;
        struct element element;
    } known[] = {
        {"f2", {ELEMENT_FLOAT, 2, false}},    {"f4", {ELEMENT_FLOAT, 4, false}},
        {"f8", {ELEMENT_FLOAT, 8, false}},    {"b1", {ELEMENT_BOOL, 1, false}},
        {"u1", {ELEMENT_UNSIGNED, 1, false}}, {"u2", {ELEMENT_UNSIGNED, 2, false}},
        {"u4", {ELEMENT_UNSIGNED, 4, false}}, {"u8", {ELEMENT_UNSIGNED, 8, false}},
        {"i1", {ELEMENT_SIGNED, 1, false}},   {"i2", {ELEMENT_SIGNED, 2, false}},
        {"i4", {ELEMENT_SIGNED, 4, false}},   {"i8", {ELEMENT_SIGNED, 8, false}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (descr[0] != '\0' && strcmp(descr + 1, known[i].code) == 0) {
            *element = known[i].element;
            element->big_endian = descr[0] == '>';
            return descr[0] == '<' || descr[0] == '>' || (descr[0] == '|' && element->size == 1);
        }
    }
    return false;
}

static bool parse_header(struct cursor c, const char *name, struct npy *npy) {
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    unsigned seen = 0;
    char key[16];
    char descr[64];
    bool good = take(&c, "{");
    bool comma = true;
    while (good && !take(&c, "}")) {
        unsigned field = 0;
        good = comma && take_string(&c, key, sizeof key) && take(&c, ":");
        if (good && strcmp(key, "descr") == 0) {
            field = DESCR;
            if (!take_string(&c, descr, sizeof descr)) {
                return failure("%s: its 'descr' is not the name of a plain type", name);
            }
        } else if (good && strcmp(key, "fortran_order") == 0) {
            field = ORDER;
            npy->fortran_order = take(&c, "True");
            good = npy->fortran_order || take(&c, "False");
        } else if (good && strcmp(key, "shape") == 0) {
            field = SHAPE;
            if (!take_shape(&c, &npy->shape)) {
                return failure("%s: its 'shape' is not a tuple of at most %zu sizes", name,
                               MAX_RANK);
            }
        }
        good = good && field != 0 && (seen & field) == 0;
        seen |= field;
        comma = take(&c, ",");
    }
    skip_space(&c);
    if (!good || c.at != c.end || seen != (DESCR | ORDER | SHAPE)) {
        return failure("%s: not a .npy file: its header is not a dict of descr, fortran_order "
                       "and shape",
                       name);
    }
    if (!parse_descr(descr, &npy->element)) {
        return failure("%s: arrays of type '%s' can't be read (float16, float32, float64, bool and "
                       "integers can)",
                       name, descr);
    }
    return true;
}

/* ---- Reading -------------------------------------------------------------- */

static bool read_header(FILE *stream, const char *name, struct npy *npy) {
    static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    unsigned char start[12];
    size_t have = fread(start, 1, 8, stream);
    if (ferror(stream)) {
        return failure("%s: %s", name, strerror(errno));
    }
    if (memcmp(start, magic, have < sizeof magic ? have : sizeof magic) != 0 || have == 0) {
        return failure("%s: not a .npy file (it does not begin with \\x93NUMPY)", name);
    }
    if (have < 8) {
        return failure("%s: truncated within the header (%zu bytes)", name, have);
    }
    unsigned major = start[6];
    unsigned minor = start[7];
    if (major < 1 || major > 3 || minor != 0) {
        return failure("%s: .npy version %u.%u can't be read (1.0, 2.0 and 3.0 can)", name, major,
                       minor);
    }
    struct element length_type = {ELEMENT_UNSIGNED, major == 1 ? 2 : 4, false};
    have += fread(start + 8, 1, length_type.size, stream);
    if (have < 8 + length_type.size) {
        return failure("%s: truncated within the header (%zu bytes)", name, have);
    }
    size_t length = (size_t)element_bits(&length_type, start + 8);
    if (length > MAX_HEADER) {
        return failure("%s: a header of %zu bytes is refused (the limit is %zu)", name, length,
                       MAX_HEADER);
    }
    unsigned char *header;
    size_t got;
    if (!read_growing(stream, name, length, &header, &got)) {
        return false;
    }
    bool good;
    if (got < length) {
        good = failure("%s: truncated within the header (%zu bytes; the header ends at %zu)", name,
                       have + got, have + length);
    } else {
        struct cursor cursor = {(const char *)header, (const char *)header + length};
        good = parse_header(cursor, name, npy);
    }
    free(header);
    return good;
}

static bool read_data(FILE *stream, const char *name, struct npy *npy) {
    struct shape_text shape = shape_text(&npy->shape);
    size_t want;
    if (!shape_bytes(&npy->shape, npy->element.size, &want)) {
        return failure("%s: shape %s is too large", name, shape.text);
    }
    size_t have;
    if (!read_growing(stream, name, want, &npy->bytes, &have)) {
        return false;
    }
    if (have < want) {
        return failure("%s: truncated: shape %s needs %zu bytes of data, the file has %zu", name,
                       shape.text, want, have);
    }
    if (fgetc(stream) != EOF) {
        return failure("%s: more data than the %zu bytes that shape %s needs", name, want,
                       shape.text);
    }
    npy->count = want / npy->element.size;
    return true;
}

bool npy_read(FILE *stream, const char *name, struct npy *npy) {
    *npy = (struct npy){0};
    if (!read_header(stream, name, npy) || !read_data(stream, name, npy)) {
        npy_free(npy);
        return false;
    }
    return true;
}

bool npy_load(const char *path, struct npy *npy) {
    *npy = (struct npy){0};
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        return failure("%s: %s", path, strerror(errno));
    }
    bool good = npy_read(stream, path, npy);
    fclose(stream);
    return good;
}

void npy_free(struct npy *npy) {
    free(npy->bytes);
    *npy = (struct npy){0};
}

/* ---- Elements ------------------------------------------------------------- */

struct npy_type_text npy_type_text(const struct npy *npy) {
    static const char *const kinds[] = {
        [ELEMENT_OTHER] = "other", [ELEMENT_FLOAT] = "float",   [ELEMENT_BFLOAT16] = "bfloat",
        [ELEMENT_BOOL] = "bool",   [ELEMENT_UNSIGNED] = "uint", [ELEMENT_SIGNED] = "int",
    };
    struct npy_type_text out;
    if (npy->element.kind == ELEMENT_BOOL) {
        snprintf(out.text, sizeof out.text, "bool");
    } else {
        snprintf(out.text, sizeof out.text, "%s%zu", kinds[npy->element.kind],
                 8 * npy->element.size);
    }
    return out;
}

const unsigned char *npy_element(const struct npy *npy, size_t index) {
    size_t place = index;
    if (npy->fortran_order) {
        /* Takes the coordinates from the index, the last one first; in the file the first varies
         * fastest: place = c0 + d0 * (c1 + d1 * (c2 + …)). */
        place = 0;
        for (size_t i = npy->shape.rank, rest = index; i-- > 0;) {
            place = place * npy->shape.dim[i] + rest % npy->shape.dim[i];
            rest /= npy->shape.dim[i];
        }
    }
    return npy->bytes + place * npy->element.size;
}

float *npy_floats(const struct npy *npy) {
    float *out =
        npy->count >= SIZE_MAX / sizeof *out ? NULL : malloc((npy->count + 1) * sizeof *out);
    if (out == NULL) {
        failure_memory();
        return NULL;
    }
    for (size_t i = 0; i < npy->count; i++) {
        out[i] = (float)element_float(&npy->element, npy_element(npy, i));
    }
    return out;
}

/* ---- Writing -------------------------------------------------------------- */

static bool write_header(FILE *stream, const struct shape *shape) {
    /* The padding of numpy.save: room for the first dimension to grow to 21 digits, then 1 to 64
     * spaces and a newline up to a multiple of 64. */
    const int growth = 21;
    char first[24];
    int digits = snprintf(first, sizeof first, "%zu", shape->rank > 0 ? shape->dim[0] : 0);
    char header[512];
    int n = snprintf(header, sizeof header,
                     "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }%*s",
                     shape_text(shape).text, shape->rank > 0 ? growth - digits : 0, "");
    n += snprintf(header + n, sizeof header - (size_t)n, "%*s\n", 64 - (10 + n + 1) % 64, "");
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    start[8] = (unsigned char)(n & 0xff);
    start[9] = (unsigned char)(n >> 8);
    return fwrite(start, 1, sizeof start, stream) == sizeof start &&
           fwrite(header, 1, (size_t)n, stream) == (size_t)n;
}

bool npy_write(FILE *stream, const struct shape *shape, const float *data) {
    size_t count;
    if (!shape_bytes(shape, 1, &count)) {
        errno = EFBIG;
        return false;
    }
    bool good = write_header(stream, shape);
    unsigned char chunk[4096];
    for (size_t i = 0, n = 0; good && i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        for (unsigned shift = 0; shift < 32; shift += 8) {
            chunk[n++] = (unsigned char)(bits >> shift & 0xff);
        }
        if (n == sizeof chunk || i + 1 == count) {
            good = fwrite(chunk, 1, n, stream) == n;
            n = 0;
        }
    }
    return good;
}
