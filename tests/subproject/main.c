/* SPDX-License-Identifier: MIT
 *
 * Uses the library as a dependency of another project: one attention, checked by hand.
 */
#include <mha.h>
#include <stdio.h>

int main(void) {
    /* Queries of 0 weigh all keys alike: the output is the values' average. */
    const float query[1] = {0.0f}, key[2] = {1.0f, -1.0f}, value[2] = {1.0f, 2.0f};
    float output[1];
    mha_context *context = NULL;
    mha_status status = mha_context_create(NULL, &context);
    if (status == MHA_OK) {
        mha_attention_args args = {.batch = 1,
                                   .n_heads = 1,
                                   .q_len = 1,
                                   .kv_len = 2,
                                   .head_dim = 1,
                                   .query = query,
                                   .key = key,
                                   .value = value,
                                   .output = output};
        status = mha_attention(context, &args);
    }
    mha_context_destroy(&context);
    if (status != MHA_OK) {
        fprintf(stderr, "%s\n", mha_error_message());
        return 1;
    }
    printf("libmha %s: %g\n", mha_version(), (double)output[0]);
    return output[0] == 1.5f ? 0 : 1;
}
