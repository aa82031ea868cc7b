/* SPDX-License-Identifier: MIT
 *
 * libmha: multi-head attention on CPUs, the same bits on every one of them.
 *
 * mha_forward() does what torch.nn.MultiheadAttention does in evaluation mode
 * (Vaswani et al. 2017, "Attention Is All You Need", section 3.2): project the
 * inputs to queries, keys and values, attend per head, concatenate, project out.
 *
 *     mha_layer   *layer;    immutable weights, packed once; shared by threads
 *     mha_context *context;  one caller's workspace and choice of kernels
 *
 *     mha_layer_create(&config, &weights, &layer);
 *     mha_context_create(NULL, &context);
 *     mha_forward(context, layer, &(mha_forward_args){
 *         .batch = 1, .q_len = n, .query = x, .output = y});
 *
 * Conventions of every function here:
 * - Data is float (IEEE 754 binary32), row-major, in the byte order of the host.
 *   Shapes stand in brackets, slowest dimension first. No alignment is needed
 *   beyond a float's own. Sizes and strides count elements, not bytes.
 * - In the argument structs zero means the default: start from {0}, in C and in C++.
 * - Strides count elements; a stride of 0 broadcasts: all of the axis is the same memory. A
 *   struct of strides that are all 0 stands for the dense layout. The stride of an axis with
 *   one element is not looked at. An output may not broadcast.
 * - A function that can fail returns mha_status; on failure it leaves its outputs
 *   as they were and mha_error_message() says why, in words.
 * - The library never writes to an input. It keeps no pointer to the caller's
 *   memory after a call returns.
 * - The results are a function of the arguments alone: not of the CPU, the ISA
 *   chosen, the compiler, the rest of the batch, or the caller's floating-point
 *   environment (docs/numerics.md is the whole promise). A subnormal weight or input
 *   counts as zero; results are never flushed.
 * - A call needs at most 16 KB of stack. The environment variable MHA_ISA is read by
 *   mha_context_create() and mha_workspace_size*() where the options' ISA is AUTO, by
 *   nothing else; no other thread may change the environment meanwhile.
 */
#ifndef MHA_H
#define MHA_H

#include <stddef.h>
#include <stdint.h>

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 2
#define MHA_VERSION_PATCH 0

#if defined(__GNUC__)
#define MHA_API __attribute__((visibility("default")))
#else
#define MHA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mha_status {
    MHA_OK = 0,
    MHA_ERROR_ARGUMENT = 1,    /* a wrong argument; nothing was done */
    MHA_ERROR_MEMORY = 2,      /* memory could not be had; nothing was done */
    MHA_ERROR_UNSUPPORTED = 3, /* an ISA this build or this machine doesn't have */
} mha_status;

/* The calling thread's last failure in words, with the offending values, such as
 * "n_heads (7) does not divide d_model (512)"; "" before the first failure.
 * The string belongs to the library and lives until the thread's next failure. */
MHA_API const char *mha_error_message(void);

/* The library's version, such as "0.1.0"; a constant string. */
MHA_API const char *mha_version(void);

/* ---- Instruction sets ---------------------------------------------------- */

typedef enum mha_isa {
    MHA_ISA_AUTO = 0, /* $MHA_ISA if set, else the best this machine supports */
    MHA_ISA_SCALAR = 1,
    MHA_ISA_AVX2 = 2, /* with FMA */
    MHA_ISA_AVX512 = 3,
    MHA_ISA_NEON = 4,
} mha_isa;

/* "auto", "scalar", "avx2", "avx512", "neon"; NULL for any other number. */
MHA_API const char *mha_isa_name(mha_isa isa);

/* The ISA of that name (exactly as mha_isa_name spells it) to *isa.
 * MHA_ERROR_UNSUPPORTED for an unknown name; the message lists those that work here. */
MHA_API mha_status mha_isa_from_name(const char *name, mha_isa *isa);

/* 1 if kernels for the ISA are in this build of the library, else 0. */
MHA_API int mha_isa_built(mha_isa isa);

/* 1 if they are, and this CPU and its operating system can run them, else 0. */
MHA_API int mha_isa_supported(mha_isa isa);

/* ---- Layers -------------------------------------------------------------- */

/* What a row with no key to attend to gives. */
typedef enum mha_masked_rows {
    MHA_MASKED_ROWS_ZERO = 0, /* zeros before the output projection; weights 0 */
    /* The plain average of the values of all keys within the sequence's length,
     * which is what filling masked scores with -1e9 comes to. */
    MHA_MASKED_ROWS_UNIFORM = 1,
} mha_masked_rows;

/* The shape of a layer. Query head h reads key/value head h * n_kv_heads / n_heads
 * (grouped-query attention; n_kv_heads = 1 is multi-query attention). */
typedef struct mha_config {
    size_t d_model;    /* width of query and output; required */
    size_t n_heads;    /* query heads; required */
    size_t n_kv_heads; /* key/value heads, divides n_heads; 0: n_heads */
    size_t head_dim;   /* of queries and keys; 0: d_model / n_heads, which must divide */
    size_t v_head_dim; /* of values; 0: head_dim */
    size_t k_dim;      /* width of the key input; 0: d_model */
    size_t v_dim;      /* width of the value input; 0: d_model */
    float scale;       /* multiplies the scores; 0: 1 / sqrt(head_dim); finite */
    /* Scaled scores t become softcap * tanh(t / softcap) before biases and masks
     * (Gemma 2); positive and finite. 0: none */
    float softcap;
    mha_masked_rows masked_rows;
} mha_config;

/* Weights as torch.nn.Linear stores them, (out, in) row-major; biases may each be
 * NULL. The rows of a head stand together: head h of q is rows h * head_dim on. */
typedef struct mha_weights {
    const float *q; /* [n_heads * head_dim][d_model]; required */
    const float *k; /* [n_kv_heads * head_dim][k_dim]; required */
    const float *v; /* [n_kv_heads * v_head_dim][v_dim]; required */
    /* [d_model][n_heads * v_head_dim]. NULL: no output projection, mha_forward()'s output
     * is the heads side by side, [batch][q_len][n_heads * v_head_dim]; o_bias is NULL too. */
    const float *o;
    const float *q_bias; /* [n_heads * head_dim] or NULL */
    const float *k_bias; /* [n_kv_heads * head_dim] or NULL */
    const float *v_bias; /* [n_kv_heads * v_head_dim] or NULL */
    const float *o_bias; /* [d_model] or NULL */
    /* A logit per head that takes part in the softmax's sum and has no value (attention
     * sinks; Xiao et al. 2023, gpt-oss). [n_heads], each below 2^126; or NULL. */
    const float *sinks;
} mha_weights;

/* Immutable after creation: any number of threads and contexts may share one. */
typedef struct mha_layer mha_layer;

/* Checks the configuration, copies the weights into packed panels that serve every
 * ISA, and gives the caller a layer to destroy. The weights are not needed after.
 * Errors: ARGUMENT, MEMORY. */
MHA_API mha_status mha_layer_create(const mha_config *config, const mha_weights *weights,
                                    mha_layer **layer);

/* n independent deep copies of a layer to out[0 .. n-1], all or none: what stacking
 * n equal layers starts from (copy.deepcopy of a module, n times). n = 0 succeeds.
 * Each copy is the caller's to destroy. Errors: ARGUMENT, MEMORY. */
MHA_API mha_status mha_layer_clone(const mha_layer *layer, size_t n, mha_layer **out);

/* The layer's configuration with every default filled in; lives with the layer. */
MHA_API const mha_config *mha_layer_config(const mha_layer *layer);

/* Frees *layer and sets it to NULL; NULL and *layer == NULL are fine. No thread may
 * be using the layer. */
MHA_API void mha_layer_destroy(mha_layer **layer);

/* ---- Contexts ------------------------------------------------------------ */

typedef struct mha_options {
    size_t threads; /* 0 or 1: the calling thread alone; more is not built yet */
    mha_isa isa;    /* 0 (AUTO): $MHA_ISA if set and not empty, else the best here */
    /* The workspace, of the caller's own: memory_size bytes, 64-byte aligned, in use until
     * the context is destroyed. A call that needs more fails with MEMORY. NULL: allocated */
    void *memory;
    size_t memory_size;
    /* What the context and its workspace are allocated with; both or neither. allocate
     * gives memory aligned to `alignment` (a power of two, 64 at most), or NULL for none;
     * release gets each such pointer and its size once. NULL: aligned_alloc and free */
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*release)(void *user, void *memory, size_t size);
    void *user;
} mha_options;

/* A workspace and a choice of kernels. A context serves one call at a time; threads
 * that call at the same time have one each. */
typedef struct mha_context mha_context;

/* options: NULL for all defaults; read during the call alone. Errors: MEMORY; ARGUMENT;
 * UNSUPPORTED for an ISA that was asked for by name, here or in $MHA_ISA, and can't be had:
 * never a silent fallback. The message lists what this machine supports. */
MHA_API mha_status mha_context_create(const mha_options *options, mha_context **context);

/* The ISA in use; never MHA_ISA_AUTO. */
MHA_API mha_isa mha_context_isa(const mha_context *context);

/* Frees *context and sets it to NULL; NULL and *context == NULL are fine. */
MHA_API void mha_context_destroy(mha_context **context);

/* ---- Masks --------------------------------------------------------------- */

/* Where causal attention puts the diagonal when q_len != kv_len. */
typedef enum mha_causal {
    MHA_CAUSAL_NONE = 0,
    MHA_CAUSAL_TOP_LEFT = 1,     /* query 0 stands at key 0 (PyTorch's is_causal) */
    MHA_CAUSAL_BOTTOM_RIGHT = 2, /* the last query stands at the sequence's last key */
} mha_causal;

/* Which keys a query attends to, and what is added to its scores. All parts are
 * optional and combine: a key is attended to if every part given allows it.
 *
 * Query i of sequence b stands at position p = i + query_offset + query_offsets[b], plus
 * kv_lengths[b] - q_lengths[b] if causal is BOTTOM_RIGHT (q_len and kv_len where there are
 * no lengths). Causal: key j is attended to if j <= p. A window W > 0 to the left: if
 * p - j < W; to the right: if j - p < W. So 1 reaches the key at p alone, 2 one more.
 *
 * Rows of keep, bias and key_keep need only reach the longest of kv_lengths, and may
 * overlap (relative positions: a bias with query stride 1). The keys of a row are
 * contiguous.
 *
 * Only keep, key_keep and an additive term of -infinity mask (a bias, or ALiBi's if it
 * overflows); any other term is a number that is added, however large. What is masked
 * contributes nothing, NaN and infinity too. */
typedef struct mha_mask {
    const uint8_t *keep; /* [batch][head][query][key]: nonzero = attend; NULL: all */
    size_t keep_batch_stride, keep_head_stride, keep_query_stride;
    const uint8_t *key_keep; /* [batch][key], beside keep: nonzero = attend; NULL: all */
    size_t key_keep_batch_stride;
    int nonzero_masks; /* 1: in keep and key_keep nonzero masks and 0 attends (PyTorch's
                        * nn.MultiheadAttention); else 0 */
    const float *bias; /* [batch][head][query][key]: added to scaled scores; or NULL */
    size_t bias_batch_stride, bias_head_stride, bias_query_stride;
    /* [batch], each <= q_len, or NULL: queries beyond are never read, and their rows of
     * the outputs are zeros. */
    const size_t *q_lengths;
    const size_t *kv_lengths; /* [batch], each <= kv_len: keys beyond are never read */
    mha_causal causal;
    size_t window_left, window_right; /* 0: none */
    /* ALiBi (Press et al. 2021): adds -slope * |p - j|. [n_heads], finite, or NULL. No
     * position may be beyond 2^23 then. */
    const float *alibi_slopes;
    /* Added to the positions of queries: for those that are a later part of a longer
     * sequence. */
    int64_t query_offset;
    const int64_t *query_offsets; /* [batch] or NULL */
} mha_mask;

/* ---- Computing ----------------------------------------------------------- */

/* What a call gives beside its output. Scores of queries beyond q_lengths and of keys
 * beyond kv_lengths are zeros, as weights are. */
typedef enum mha_result {
    MHA_RESULT_WEIGHTS = 0,      /* softmax weights, [batch][n_heads][q_len][kv_len] */
    MHA_RESULT_MEAN_WEIGHTS = 1, /* their mean over the heads, [batch][q_len][kv_len] */
    /* Scores, [batch][n_heads][q_len][kv_len], at three places before softmax: */
    MHA_RESULT_SCORES = 2,        /* scale * Q K^T */
    MHA_RESULT_CAPPED_SCORES = 3, /* after softcap */
    MHA_RESULT_MASKED_SCORES = 4, /* after the terms added; -infinity where masked */
} mha_result;

/* The strides of a [batch][row][dim] array, in elements; dim is contiguous. Both 0 stand
 * for the dense layout: row = dim, batch = rows * row. */
typedef struct mha_row_strides {
    size_t batch, row;
} mha_row_strides;

typedef struct mha_forward_args {
    size_t batch;
    size_t q_len;
    size_t kv_len;      /* with key NULL: 0 or q_len */
    const float *query; /* [batch][q_len][d_model] */
    mha_row_strides query_strides;
    const float *key; /* [batch][kv_len][k_dim]; NULL: query (k_dim == d_model) */
    mha_row_strides key_strides;
    const float *value; /* [batch][kv_len][v_dim]; NULL: key (v_dim == k_dim) */
    mha_row_strides value_strides;
    const mha_mask *mask; /* NULL: none */
    /* [batch][q_len][d_model] ([n_heads * v_head_dim] without an output projection). It may
     * be the query's own memory, with the same strides. */
    float *output;
    mha_row_strides output_strides;
    float *attention;  /* what result says, dense, or NULL */
    mha_result result; /* what attention gets */
} mha_forward_args;

/* One attention layer: projections, attention, output projection.
 * The outputs may not overlap an input or each other, each taken from its first element to
 * its last, gaps between strided rows included; but output may be query. Gaps are neither
 * read nor written. Zero-length batches and queries succeed and write nothing; with no keys
 * every row is a masked row. Pointers to arrays without elements may be anything, except
 * that key != NULL is what tells kv_len = 0 from self-attention.
 * Allocates only where the workspace must grow (see mha_reserve).
 * Errors: ARGUMENT, MEMORY. */
MHA_API mha_status mha_forward(mha_context *context, const mha_layer *layer,
                               const mha_forward_args *args);

/* The strides of a [batch][head][row][dim] view, in elements; dim is contiguous.
 * All 0 stand for the dense layout: row = dim, head = rows * row, batch = heads * head. */
typedef struct mha_strides {
    size_t batch, head, row;
} mha_strides;

typedef struct mha_attention_args {
    size_t batch;
    size_t n_heads;
    size_t n_kv_heads; /* divides n_heads; 0: n_heads */
    size_t q_len;
    size_t kv_len;
    size_t head_dim;
    size_t v_head_dim;  /* 0: head_dim */
    float scale;        /* 0: 1 / sqrt(head_dim); finite */
    float softcap;      /* as in mha_config; 0: none */
    const float *sinks; /* as in mha_weights; [n_heads] or NULL */
    mha_masked_rows masked_rows;
    const float *query; /* [batch][n_heads][q_len][head_dim] */
    mha_strides query_strides;
    const float *key; /* [batch][n_kv_heads][kv_len][head_dim] */
    mha_strides key_strides;
    const float *value; /* [batch][n_kv_heads][kv_len][v_head_dim] */
    mha_strides value_strides;
    const mha_mask *mask; /* NULL: none */
    float *output;        /* [batch][n_heads][q_len][v_head_dim] */
    mha_strides output_strides;
    float *attention;  /* what result says, dense, or NULL */
    mha_result result; /* what attention gets */
} mha_attention_args;

/* The bare softmax(scale * Q K^T + mask) V on separate heads
 * (torch.nn.functional.scaled_dot_product_attention). Output strides may not make two
 * elements share a place. The outputs may not overlap an input or each other, each taken
 * from its first element to its last, gaps between strided rows included. Gaps are
 * neither read nor written.
 * Errors: ARGUMENT, MEMORY. */
MHA_API mha_status mha_attention(mha_context *context, const mha_attention_args *args);

/* ---- Memory -------------------------------------------------------------- */

/* Grows the workspace so that mha_forward() with this layer and sizes up to these
 * allocates nothing, and touches its pages. For self-attention kv_len is q_len. Without it
 * the first call of a size allocates; the workspace never shrinks. Its size is linear in
 * batch * (q_len + kv_len), and with weights asked for in kv_len.
 * Errors: ARGUMENT (sizes whose products overflow), MEMORY. */
MHA_API mha_status mha_reserve(mha_context *context, const mha_layer *layer, size_t batch,
                               size_t q_len, size_t kv_len);

/* The same for mha_attention() with arguments whose sizes are up to these; pointers and
 * strides are not looked at. Its workspace doesn't grow with batch, nor with q_len, nor, up
 * to a few hundred rows of q_len * n_heads / n_kv_heads, with kv_len. */
MHA_API mha_status mha_reserve_attention(mha_context *context, const mha_attention_args *args);

/* The bytes of workspace that a context with these options (NULL: the defaults) needs for
 * the calls that mha_reserve() and mha_reserve_attention() prepare, to *size. */
MHA_API mha_status mha_workspace_size(const mha_options *options, const mha_layer *layer,
                                      size_t batch, size_t q_len, size_t kv_len, size_t *size);
MHA_API mha_status mha_workspace_size_attention(const mha_options *options,
                                                const mha_attention_args *args, size_t *size);

#ifdef __cplusplus
}
#endif

#endif
