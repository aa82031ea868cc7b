/* SPDX-License-Identifier: MIT
 *
 * Row work of the kernel table, written once over the vector primitives of an ISA's vec.h, which
 * is included before this. Contracts are in kernels.h.
 */
#ifndef MHA_ROWS_H
#define MHA_ROWS_H

#include <math.h>
#include <string.h>

static bool rows_has_subnormal(size_t rows, size_t columns, const float *from, size_t stride) {
    vec_found found[2] = {vec_found_none(), vec_found_none()};
    for (; rows > 0; rows--) {
        size_t i = 0;
        for (; i + 2 * LANES <= columns; i += 2 * LANES) {
            found[0] = vec_find_subnormal(found[0], vec_load(from + i));
            found[1] = vec_find_subnormal(found[1], vec_load(from + i + LANES));
        }
        for (; i + LANES <= columns; i += LANES) {
            found[0] = vec_find_subnormal(found[0], vec_load(from + i));
        }
        if (i < columns) {
            found[1] = vec_find_subnormal(found[1], vec_load_part(from + i, columns - i));
        }
        from += stride;
    }
    return vec_found_any(found[0]) || vec_found_any(found[1]);
}

static void rows_copy_inputs(size_t rows, size_t columns, const float *from, size_t from_stride,
                             float *to, size_t to_stride) {
    for (; rows > 0; rows--) {
        size_t i = 0;
        for (; i + 4 * LANES <= columns; i += 4 * LANES) {
            vec x0 = vec_load(from + i), x1 = vec_load(from + i + LANES);
            vec x2 = vec_load(from + i + 2 * LANES), x3 = vec_load(from + i + 3 * LANES);
            vec_store(to + i, vec_flush(x0));
            vec_store(to + i + LANES, vec_flush(x1));
            vec_store(to + i + 2 * LANES, vec_flush(x2));
            vec_store(to + i + 3 * LANES, vec_flush(x3));
        }
        for (; i + LANES <= columns; i += LANES) {
            vec_store(to + i, vec_flush(vec_load(from + i)));
        }
        if (i < columns) {
            vec_store_part(to + i, vec_flush(vec_load_part(from + i, columns - i)), columns - i);
        }
        from += from_stride;
        to += to_stride;
    }
}

/* cap * tanh(x * factor). */
static inline vec capped(vec x, vec factor, vec cap) {
    vec y = vec_mul(x, factor);
    vec u = vec_exp2(vec_mul(vec_abs(y), vec_set(-2.0f * MHA_LOG2E)));
    vec one = vec_set(1.0f);
    vec tanh = vec_div(vec_sub(one, u), vec_add(one, u));
    return vec_mul(cap, vec_copysign(tanh, y));
}

static void rows_softcap(size_t count, float *s, float factor, float cap) {
    vec factors = vec_set(factor), caps = vec_set(cap);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec_store(s + i, capped(vec_load(s + i), factors, caps));
    }
    if (i < count) {
        vec x = capped(vec_load_part(s + i, count - i), factors, caps);
        vec_store_part(s + i, x, count - i);
    }
}

/* out = from * b + out * a. */
static void merge_row(size_t width, float *out, float a, const float *from, float b) {
    vec as = vec_set(a), bs = vec_set(b);
    size_t d = 0;
    for (; d + LANES <= width; d += LANES) {
        vec old = vec_mul(vec_load(out + d), as);
        vec_store(out + d, vec_fma(vec_load(from + d), bs, old));
    }
    if (d < width) {
        vec old = vec_mul(vec_load_part(out + d, width - d), as);
        vec new = vec_fma(vec_load_part(from + d, width - d), bs, old);
        vec_store_part(out + d, new, width - d);
    }
}

/* mha_exp2 of n <= MHA_MAX_GEMM_ROWS floats, in place; up to a whole vector beyond n too. */
static inline void exp2_floats(float *x, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        vec_store(x + i, vec_exp2(vec_load(x + i)));
    }
}

static void rows_merge(size_t rows, size_t width, const struct mha_partial *running,
                       const struct mha_partial *block, float factor) {
    float a[MHA_MAX_GEMM_ROWS] = {0}, b[MHA_MAX_GEMM_ROWS] = {0};
    for (size_t i = 0; i < rows; i++) {
        float larger = block->max[i] > running->max[i] ? block->max[i] : running->max[i];
        a[i] = (running->max[i] - larger) * factor;
        b[i] = (block->max[i] - larger) * factor;
    }
    exp2_floats(a, rows);
    exp2_floats(b, rows);
    for (size_t i = 0; i < rows; i++) {
        float *out = running->out + i * running->stride;
        const float *from = block->out + i * block->stride;
        if (block->max[i] == -INFINITY) {
            continue;
        }
        if (running->max[i] == -INFINITY) {
            running->max[i] = block->max[i];
            running->sum[i] = block->sum[i];
            memcpy(out, from, width * sizeof *out);
            continue;
        }
        running->max[i] = block->max[i] > running->max[i] ? block->max[i] : running->max[i];
        running->sum[i] = mha_fma(block->sum[i], b[i], running->sum[i] * a[i]);
        merge_row(width, out, a[i], from, b[i]);
    }
}

static void rows_normalize(size_t width, float sum, const float *in, float *out) {
    vec r = vec_set(1.0f / sum), zero = vec_set(0.0f);
    size_t d = 0;
    /* Adding +0 makes every exact zero +0. */
    for (; d + LANES <= width; d += LANES) {
        vec_store(out + d, vec_fma(vec_load(in + d), r, zero));
    }
    if (d < width) {
        vec last = vec_load_part(in + d, width - d);
        vec_store_part(out + d, vec_fma(last, r, zero), width - d);
    }
}

static void rows_weights(size_t keys, float *p, float below, float sum) {
    vec factors = vec_set(mha_exp2(below) * (1.0f / sum));
    size_t j = 0;
    for (; j + LANES <= keys; j += LANES) {
        vec x = vec_load(p + j);
        vec_store(p + j, vec_unless_zero(vec_mul(x, factors), x));
    }
    if (j < keys) {
        vec x = vec_load_part(p + j, keys - j);
        vec_store_part(p + j, vec_unless_zero(vec_mul(x, factors), x), keys - j);
    }
}

#endif
