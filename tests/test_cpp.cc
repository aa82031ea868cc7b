// SPDX-License-Identifier: MIT
//
// mha.h from C++: every struct starts from {0}, every function is called.

#include <mha.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void require(bool good, const char *what) {
    if (!good) {
        std::printf("FAILED: %s: %s\n", what, mha_error_message());
        std::exit(1);
    }
}

struct memory {
    size_t allocated = 0, released = 0;
};

void *allocate(void *user, size_t size, size_t alignment) {
    static_cast<memory *>(user)->allocated += size;
    return std::aligned_alloc(64, (size + 63) / 64 * 64 + 0 * alignment);
}

void release(void *user, void *data, size_t size) {
    static_cast<memory *>(user)->released += size;
    std::free(data);
}

void isas() {
    require(std::strcmp(mha_version(), "") != 0, "mha_version");
    require(std::strcmp(mha_isa_name(MHA_ISA_SCALAR), "scalar") == 0, "mha_isa_name");
    mha_isa isa = MHA_ISA_AUTO;
    require(mha_isa_from_name("scalar", &isa) == MHA_OK && isa == MHA_ISA_SCALAR, "from_name");
    require(mha_isa_built(isa) == 1 && mha_isa_supported(isa) == 1, "scalar");
    require(mha_isa_from_name("none", &isa) == MHA_ERROR_UNSUPPORTED, "an unknown name");
    require(std::strstr(mha_error_message(), "none") != nullptr, "its message");
}

// Of equal scores: the output is the mean of the values.
void layers() {
    const float zero[4] = {0}, identity[4] = {1, 0, 0, 1};
    mha_config config = {0};
    config.d_model = 2;
    config.n_heads = 1;
    mha_weights weights = {0};
    weights.q = weights.k = zero;
    weights.v = weights.o = identity;
    mha_layer *layer = nullptr, *clones[2] = {nullptr, nullptr};
    require(mha_layer_create(&config, &weights, &layer) == MHA_OK, "mha_layer_create");
    require(mha_layer_clone(layer, 2, clones) == MHA_OK, "mha_layer_clone");
    require(mha_layer_config(clones[1])->head_dim == 2, "mha_layer_config");

    memory used;
    mha_options options = {0};
    options.allocate = allocate;
    options.release = release;
    options.user = &used;
    mha_context *context = nullptr;
    require(mha_context_create(&options, &context) == MHA_OK, "mha_context_create");
    require(mha_context_isa(context) != MHA_ISA_AUTO, "mha_context_isa");
    size_t size = 0;
    require(mha_workspace_size(&options, layer, 1, 3, 3, &size) == MHA_OK, "mha_workspace_size");
    require(mha_reserve(context, layer, 1, 3, 3) == MHA_OK, "mha_reserve");
    require(size > 0 && used.allocated >= size, "the workspace");
    size_t before = used.allocated;

    const float x[6] = {1, 2, 3, 4, 5, 6};
    float y[6] = {0}, mean[9] = {0};
    mha_mask mask = {0};
    mask.causal = MHA_CAUSAL_TOP_LEFT;
    mha_forward_args args = {0};
    args.batch = 1;
    args.q_len = 3;
    args.query = x;
    args.mask = &mask;
    args.output = y;
    args.attention = mean;
    args.result = MHA_RESULT_MEAN_WEIGHTS;
    args.query_strides = {0, 0};
    require(mha_forward(context, clones[0], &args) == MHA_OK, "mha_forward");
    require(y[0] == 1 && y[1] == 2 && y[2] == 2 && y[3] == 3, "the means of one key and of two");
    require(std::fabs(y[4] - 3) < 1e-6f && std::fabs(mean[8] - 1.0f / 3) < 1e-6f, "and of three");
    require(used.allocated == before, "nothing is allocated after mha_reserve");

    mha_context_destroy(&context);
    require(context == nullptr && used.allocated == used.released, "all is released");
    for (mha_layer *&clone : clones) {
        mha_layer_destroy(&clone);
    }
    mha_layer_destroy(&layer);
}

void attention() {
    const float zero[2] = {0}, value[2] = {1, 3};
    float output = 0;
    mha_strides dense = {0};
    mha_attention_args args = {0};
    args.batch = args.n_heads = args.q_len = args.head_dim = 1;
    args.kv_len = 2;
    args.query = args.key = zero;
    args.value = value;
    args.value_strides = dense;
    args.output = &output;
    size_t size = 0;
    require(mha_workspace_size_attention(nullptr, &args, &size) == MHA_OK, "its size");
    void *room = std::aligned_alloc(64, (size + 63) / 64 * 64);
    mha_options options = {0};
    options.memory = room;
    options.memory_size = size;
    mha_context *context = nullptr;
    require(mha_context_create(&options, &context) == MHA_OK, "a context in its own memory");
    require(mha_reserve_attention(context, &args) == MHA_OK, "mha_reserve_attention");
    require(mha_attention(context, &args) == MHA_OK && output == 2, "mha_attention");
    args.kv_len = 600;
    require(mha_reserve_attention(context, &args) == MHA_ERROR_MEMORY, "more than there is");
    mha_context_destroy(&context);
    std::free(room);
}

} // namespace

int main() {
    isas();
    layers();
    attention();
    std::printf("all of mha.h works from C++\n");
}
