/* SPDX-License-Identifier: MIT
 *
 * The files of errors_fixture.h, and what a failing program is to say.
 */
#include "errors_fixture.h"

#include <string.h>

void write_zeros(const char *name, const char *type, const char *shape, size_t size) {
    struct bytes bytes = {0};
    put_npy_type(&bytes, type, shape);
    put_zeros(&bytes, size);
    write_bytes(name, &bytes, bytes.size);
    bytes_free(&bytes);
}

void write_layer(const char *name, size_t k_dim, size_t v_dim) {
    static const char *const names[4] = {"W_q", "W_k", "W_v", "W_o"};
    const size_t columns[4] = {6, k_dim, v_dim, 6};
    const float zeros[72] = {0};
    struct tensors tensors = {0};
    for (size_t i = 0; i < 4; i++) {
        char shape[32];
        snprintf(shape, sizeof shape, "[6,%zu]", columns[i]);
        add_tensor(&tensors, names[i], "F32", shape, zeros, 6 * columns[i]);
    }
    write_tensors(name, &tensors);
}

void errors_setup(void) {
    scratch_setup();
    write_layer("w", 6, 6);
    write_zeros("q", "<f4", "(2, 3, 6)", 144);
    write_zeros("k", "<f4", "(2, 4, 6)", 192);
}

void expect_error(struct outcome outcome, int status, const char *message) {
    size_t length = strlen(outcome.err);
    require(outcome.status == status, "%s: status %d, not %d: %s%s", case_name(), outcome.status,
            status, outcome.out, outcome.err);
    require(outcome.out[0] == '\0', "%s: printed %s", case_name(), outcome.out);
    require(strncmp(outcome.err, "mha: ", 5) == 0 && length > 0 &&
                strchr(outcome.err, '\n') == outcome.err + length - 1,
            "%s: not one line: %s", case_name(), outcome.err);
    require(strstr(outcome.err, message) != NULL, "%s: '%s' is not in: %s", case_name(), message,
            outcome.err);
}
