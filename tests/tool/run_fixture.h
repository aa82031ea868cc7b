/* SPDX-License-Identifier: MIT
 *
 * A layer and inputs, in memory and in files, for tests that run the program: the library is
 * called directly, and the program's files must hold the same bits.
 */
#ifndef MHA_TEST_TOOL_RUN_FIXTURE_H
#define MHA_TEST_TOOL_RUN_FIXTURE_H

#include "fixture.h"

enum { BATCH = 2, HEADS = 3, Q_LEN = 5, KV_LEN = 7, D_MODEL = 12, K_DIM = 10, V_DIM = 9 };
enum { HEAD_DIM = 4, N_OUTPUT = BATCH * Q_LEN * D_MODEL };
enum { N_ATTENTION = BATCH * HEADS * Q_LEN * KV_LEN };

extern float weight[4][D_MODEL * D_MODEL], bias[4][D_MODEL];
extern float query[BATCH * Q_LEN * D_MODEL], key[BATCH * KV_LEN * K_DIM],
    value[BATCH * KV_LEN * V_DIM];

/* Strides of a mask with all its dimensions. */
#define DENSE(which)                                                                               \
    .which##_batch_stride = HEADS * Q_LEN * KV_LEN, .which##_head_stride = Q_LEN * KV_LEN,         \
    .which##_query_stride = KV_LEN

/* The fixture: a temporary folder with the layer in "w" and the inputs in "q", "k", "v". */
void run_setup(void);

/* Calls the library; it must succeed. */
void compute(const mha_config *config, const mha_weights *weights, const mha_forward_args *args);

/* The library's results for the layer and the first `batch` sequences of the inputs. */
void forward(const mha_mask *mask, float scale, mha_masked_rows masked_rows, size_t batch,
             float *output, float *attention);

/* Fails the test unless this .npy file has this shape and these bits. */
void expect_file(const char *name, const char *shape, const float *want, size_t count);

/* Runs the program with the three inputs, outputs "y" and "a", and more arguments ("@x" is file x
 * of the folder; NULL ends them); it must succeed. */
struct outcome run_with(const char *const *more);

/* The same, and compares both outputs with forward(). */
void expect_run(const char *const *more, const mha_mask *mask, float scale,
                mha_masked_rows masked_rows);

#endif
