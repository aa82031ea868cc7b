# SPDX-License-Identifier: MIT
"""The integer generator of inputs and the reader of cases.txt, twins of golden_support.c.

Element i of tensor t of a name is a function of (name, t, i) alone, and an exact float32:
nothing but expected values has to be stored."""

import numpy as np

TENSORS = ["query", "key", "value", "q", "k", "v", "o", "q_bias", "k_bias", "v_bias", "o_bias",
           "keep", "bias"]

FILL = float(np.float32(-1e30))

NUMBERS = ["batch", "q_len", "kv_len", "d_model", "n_heads", "n_kv_heads", "head_dim",
           "v_head_dim", "k_dim", "v_dim", "fill", "dead", "skip", "window", "query_offset",
           "alibi", "weights", "rows", "input_exp", "weight_exp", "bits", "common"]
REALS = ["scale", "tolerance"]
WORDS = ["op", "inputs", "biases", "layout", "keep", "bias", "kv_lengths", "causal",
         "masked_rows"]
DEFAULTS = {"batch": 1, "rows": 1, "input_exp": 1, "weight_exp": -2, "bits": 16,
            "tolerance": 1e-5, "op": "forward", "inputs": "q"}


def hash_name(name):
    """FNV-1a, 32 bits."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def integers(name, tensor, count):
    """count uniform 64-bit integers: the finalizer of splitmix64 over a counter."""
    start = hash_name(name) << 32 ^ TENSORS.index(tensor) << 28
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def floats(name, tensor, shape, exponent, bits=16):
    """Multiples of 2^(exponent - bits + 1) in [-2^exponent, 2^exponent), as float64."""
    z = integers(name, tensor, int(np.prod(shape))) >> np.uint64(64 - bits)
    signed = z.astype(np.int64) - (1 << bits - 1)
    return np.ldexp(signed.astype(np.float64), exponent - bits + 1).reshape(shape)


class Case:
    """One row of cases.txt, its numbers as attributes, defaults filled in, and its arrays."""

    def __init__(self, line):
        self.name, *pairs = line.split()
        given = dict(pair.split("=") for pair in pairs)
        unknown = set(given) - set(NUMBERS + REALS + WORDS)
        if unknown:
            raise ValueError(f"{self.name}: unknown {unknown}")
        for keys, kind, zero in (NUMBERS, int, 0), (REALS, float, 0.0), (WORDS, str, ""):
            for key in keys:
                setattr(self, key, kind(given.get(key, DEFAULTS.get(key, zero))))
        if self.inputs == "q" and self.op == "forward":
            self.kv_len = self.q_len
        self.n_kv_heads = self.n_kv_heads or self.n_heads
        self.head_dim = self.head_dim or self.d_model // self.n_heads
        self.v_head_dim = self.v_head_dim or self.head_dim
        self.k_dim = self.k_dim or self.d_model
        self.v_dim = self.v_dim or self.d_model
        self.scale = self.scale or self.head_dim ** -0.5
        self.lengths = ([int(word) for word in self.kv_lengths.split(",")] if self.kv_lengths
                        else [self.kv_len] * self.batch)
        assert len(self.lengths) == self.batch
        if self.op == "forward":
            self.make_layer()
        else:
            self.make_heads()
        self.make_masks()

    def make_layer(self):
        def inputs(tensor, *shape):
            return floats(self.name, tensor, shape, self.input_exp)

        def weights(tensor, *shape):
            return floats(self.name, tensor, shape, self.weight_exp)

        self.query = inputs("query", self.batch, self.q_len, self.d_model)
        self.key = self.query if self.inputs == "q" else inputs(
            "key", self.batch, self.kv_len, self.k_dim)
        self.value = self.key if self.inputs != "qkv" else inputs(
            "value", self.batch, self.kv_len, self.v_dim)
        q_width = self.n_heads * self.head_dim
        k_width = self.n_kv_heads * self.head_dim
        v_width = self.n_kv_heads * self.v_head_dim
        self.q = weights("q", q_width, self.d_model)
        self.k = weights("k", k_width, self.k_dim)
        self.v = weights("v", v_width, self.v_dim)
        self.o = weights("o", self.d_model, self.n_heads * self.v_head_dim)
        for letter, width in zip("qkvo", (q_width, k_width, v_width, self.d_model)):
            bias = inputs(letter + "_bias", width) if letter in self.biases else None
            setattr(self, letter + "_bias", bias)

    def make_heads(self):
        """query, key, value as [batch][heads][rows][dim], whatever their layout in memory."""
        for tensor, heads, rows, dim in (
                ("query", self.n_heads, self.q_len, self.head_dim),
                ("key", self.n_kv_heads, self.kv_len, self.head_dim),
                ("value", self.n_kv_heads, self.kv_len, self.v_head_dim)):
            shape = ((self.batch, rows, heads, dim) if self.layout == "rows" else
                     (self.batch, heads, rows, dim))
            array = floats(self.name, tensor, shape, self.input_exp, self.bits)
            if tensor != "value":
                array += self.common
            setattr(self, tensor, array.transpose(0, 2, 1, 3) if self.layout == "rows" else array)

    def make_masks(self):
        """keep_mask (bool) and bias_mask (float, with -inf), [batch][head][query][key] with 1
        where they broadcast, or None."""
        self.keep_mask = self.bias_mask = None
        if self.keep:
            z = integers(self.name, "keep", int(np.prod(self.mask_shape(self.keep))))
            keep = (z >> np.uint64(62) != 0).reshape(self.mask_shape(self.keep))
            self.keep_mask = self.masked(keep, False)
        if self.bias:
            shape = self.mask_shape(self.bias)
            hit = integers(self.name, "bias", int(np.prod(shape))) % np.uint64(8) == 0
            hit = hit.reshape(shape)
            if self.fill:
                self.bias_mask = self.masked(np.where(hit, FILL, 0.0), FILL)
            else:
                number = floats(self.name, "bias", shape, 1)
                self.bias_mask = self.masked(np.where(hit, -np.inf, number), -np.inf)

    def mask_shape(self, dims):
        return tuple(size if letter in dims else 1 for letter, size in
                     zip("bhq", (self.batch, self.n_heads, self.q_len))) + (self.kv_len,)

    def masked(self, mask, hidden):
        mask[..., :self.skip] = hidden
        if self.dead:
            mask.reshape(-1, self.kv_len)[self.dead - 1::self.dead] = hidden
        return mask


def read_cases(path):
    with open(path, encoding="utf-8") as file:
        return [Case(line) for line in file if line.strip() and not line.startswith("#")]
