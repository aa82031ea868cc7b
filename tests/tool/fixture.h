/* SPDX-License-Identifier: MIT
 *
 * What the tests of the mha program share: a temporary folder per test, files of bytes,
 * .npy and safetensors made from their formats' descriptions (not by the program's own
 * code), and running the program.
 */
#ifndef MHA_TEST_TOOL_FIXTURE_H
#define MHA_TEST_TOOL_FIXTURE_H

#include <stdio.h>

#include "support.h"

/* ---- The temporary folder -------------------------------------------------- */

/* For tcase_add_checked_fixture: each test has its own, removed after it. */
void scratch_setup(void);
void scratch_teardown(void);

/* The path of a file in it; one of 64 buffers in turn. */
const char *in_scratch(const char *name);

/* Root may read and write everything, so this gives the folder to an ordinary user and continues
 * as that user for the rest of the test. False if that fails, or if that user can't reach the
 * folder. */
bool become_ordinary(void);

/* Files in it, hidden ones too. */
size_t scratch_count(void);

/* ---- Bytes ------------------------------------------------------------------ */

struct bytes {
    unsigned char *data; /* with a NUL behind its end */
    size_t size, capacity;
};

void put(struct bytes *bytes, const void *data, size_t size);
void put_text(struct bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The low `size` bytes of a number, in either order. */
void put_number(struct bytes *bytes, uint64_t number, size_t size, bool big_endian);
void put_zeros(struct bytes *bytes, size_t size);
/* As binary16, 32 or 64; it must be one, or an infinity. */
void put_float(struct bytes *bytes, float value, size_t size, bool big_endian);
/* As little-endian float32. */
void put_floats(struct bytes *bytes, const float *data, size_t count);
void bytes_free(struct bytes *bytes);

/* Changes one to three bytes: `likely_of_4` times in 4 to one of `likely`, else to any byte. */
void garble(struct generator *generator, unsigned char *data, size_t size, const char *likely,
            size_t likely_of_4);

/* Writes the first `size` bytes of a file in the temporary folder; its path. */
const char *write_bytes(const char *name, const struct bytes *bytes, size_t size);

/* A whole file; data is NULL if it isn't there. The caller frees. */
struct bytes read_bytes(const char *path);

/* ---- .npy -------------------------------------------------------------------- */

/* Magic, version, length and header text, padded as the format says. */
void put_npy_header(struct bytes *bytes, int version, const char *dict);

/* The header of version 1.0 for C order; type as in "<f4", shape as in "(2, 3)". */
void put_npy_type(struct bytes *bytes, const char *type, const char *shape);

/* A version 1.0 file of little-endian float32 in C order; shape as in "(2, 3)". */
void put_npy_floats(struct bytes *bytes, const char *shape, const float *data, size_t count);

const char *write_npy_floats(const char *name, const char *shape, const float *data, size_t count);

/* A version 1.0 file with `size` zero bytes of data, which may disagree with its shape. */
void write_npy_zeros(const char *name, const char *type, const char *shape, size_t size);

/* ---- safetensors --------------------------------------------------------------- */

/* A file under construction: its header without the last brace, and data. */
struct tensors {
    struct bytes json, data;
};

/* dtype "F32", "F16", "BF16" or "F64"; values are converted by cutting, so F16 and BF16
 * want values that these can hold. shape as in "[2, 3]". */
void add_tensor(struct tensors *tensors, const char *name, const char *dtype, const char *shape,
                const float *values, size_t count);

/* A header, with its length before it and the data after it. */
void put_safetensors(struct bytes *bytes, const char *json, const void *data, size_t data_size);

/* A file of this header and `zeros` zero bytes. */
const char *write_safetensors(const char *name, const char *json, size_t zeros);

/* One float's entry in a header, without its name. */
#define F32_AT(begin, end)                                                                         \
    "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #begin "," #end "]}"

/* Writes and frees. */
const char *write_tensors(const char *name, struct tensors *tensors);

/* ---- The program ------------------------------------------------------------- */

struct outcome {
    int status; /* exit status, or 128 + signal */
    char *out, *err;
};

/* Runs the program, $MHA_TOOL, under $MHA_EXE_WRAPPER if set, in the test's environment;
 * arguments end with NULL. The output stays until the next run. */
struct outcome run_tool(const char *first, ...) __attribute__((sentinel));
struct outcome run_tool_list(const char *const *arguments);

/* Runs it in a shell, with this text after its name on the command line; the shell's status. */
int run_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the test unless the program printed one line "mha: ..." with `message` in it. */
void expect_error(struct outcome outcome, int status, const char *message);

/* Ends the test program as skipped (77) where the program can't be run here. Without
 * $MHA_TOOL it fails. */
void require_tool(void);

#endif
