# SPDX-License-Identifier: MIT
"""mha_attention() of include/mha.h for Python: its structs, and a call on numpy arrays.

usage: mha.py      prints C that compiles only if the structs here are the header's
"""
import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p

import numpy as np

# enum mha_causal
CAUSAL_NONE, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = range(3)
# enum mha_result
(RESULT_WEIGHTS, RESULT_MEAN_WEIGHTS, RESULT_SCORES, RESULT_CAPPED_SCORES,
 RESULT_MASKED_SCORES) = range(5)


class Mask(ctypes.Structure):
    """struct mha_mask"""
    _fields_ = [
        ("keep", c_void_p),
        ("keep_batch_stride", c_size_t),
        ("keep_head_stride", c_size_t),
        ("keep_query_stride", c_size_t),
        ("key_keep", c_void_p),
        ("key_keep_batch_stride", c_size_t),
        ("nonzero_masks", c_int),
        ("bias", c_void_p),
        ("bias_batch_stride", c_size_t),
        ("bias_head_stride", c_size_t),
        ("bias_query_stride", c_size_t),
        ("q_lengths", c_void_p),
        ("kv_lengths", c_void_p),
        ("causal", c_int),
        ("window_left", c_size_t),
        ("window_right", c_size_t),
        ("alibi_slopes", c_void_p),
        ("query_offset", c_int64),
        ("query_offsets", c_void_p),
    ]

    def __init__(self):
        super().__init__()
        self.arrays = []

    def point(self, name, array):
        """Sets a pointer to an array, which then lives as long as the mask."""
        setattr(self, name, array.ctypes.data)
        self.arrays.append(array)

    def view(self, name, array):
        """Sets keep or bias, and its strides, to a [batch][head][query][key] view."""
        self.point(name, array)
        for axis, stride in zip(("batch", "head", "query"), array.strides):
            setattr(self, f"{name}_{axis}_stride", stride // array.itemsize)


class Strides(ctypes.Structure):
    """struct mha_strides"""
    _fields_ = [("batch", c_size_t), ("head", c_size_t), ("row", c_size_t)]


class AttentionArgs(ctypes.Structure):
    """struct mha_attention_args"""
    _fields_ = [
        ("batch", c_size_t),
        ("n_heads", c_size_t),
        ("n_kv_heads", c_size_t),
        ("q_len", c_size_t),
        ("kv_len", c_size_t),
        ("head_dim", c_size_t),
        ("v_head_dim", c_size_t),
        ("scale", c_float),
        ("softcap", c_float),
        ("sinks", c_void_p),
        ("masked_rows", c_int),
        ("query", c_void_p),
        ("query_strides", Strides),
        ("key", c_void_p),
        ("key_strides", Strides),
        ("value", c_void_p),
        ("value_strides", Strides),
        ("mask", POINTER(Mask)),
        ("output", c_void_p),
        ("output_strides", Strides),
        ("attention", c_void_p),
        ("result", c_int),
    ]


STRUCTS = {"mha_mask": Mask, "mha_strides": Strides, "mha_attention_args": AttentionArgs}


class Error(Exception):
    """A call failed; the library's words."""


def strides_of(array):
    return Strides(*(stride // array.itemsize for stride in array.strides[:3]))


class Library:
    """The shared library at a path, and a context."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.mha_error_message.restype = c_char_p
        self.c.mha_context_create.argtypes = [c_void_p, POINTER(c_void_p)]
        self.c.mha_attention.argtypes = [c_void_p, POINTER(AttentionArgs)]
        self.context = c_void_p()
        self.check(self.c.mha_context_create(None, self.context))

    def check(self, status):
        if status != 0:
            raise Error(self.c.mha_error_message().decode())

    def attention(self, query, key, value, output, mask, attention=None, **rest):
        """mha_attention() on [batch][head][row][dim] views. The sizes and strides are the views';
        rest: members of the struct by name."""
        arrays = {"query": query, "key": key, "value": value, "output": output}
        args = AttentionArgs(
            batch=query.shape[0], n_heads=query.shape[1], n_kv_heads=key.shape[1],
            q_len=query.shape[2], kv_len=key.shape[2], head_dim=query.shape[3],
            v_head_dim=value.shape[3], mask=ctypes.pointer(mask), **rest)
        for name, array in arrays.items():
            assert array.dtype == np.float32 and array.strides[3] == array.itemsize
            setattr(args, name, array.ctypes.data)
            setattr(args, name + "_strides", strides_of(array))
        if attention is not None:
            assert attention.dtype == np.float32 and attention.flags.c_contiguous
            args.attention = attention.ctypes.data
        self.check(self.c.mha_attention(self.context, args))


def layout():
    """C with an assertion for each size, offset and constant that is relied upon."""
    lines = ["#include <stddef.h>", '#include "mha.h"']

    def same(what, number):
        lines.append(f'_Static_assert({what} == {number}, "{what}");')

    for name, struct in STRUCTS.items():
        same(f"sizeof({name})", ctypes.sizeof(struct))
        for member, _ in struct._fields_:
            field = getattr(struct, member)
            same(f"offsetof({name}, {member})", field.offset)
            same(f"sizeof((({name} *)0)->{member})", field.size)
    for name, number in globals().items():
        if name.startswith(("CAUSAL_", "RESULT_")):
            same("MHA_" + name, number)
    same("MHA_OK", 0)
    return "\n".join(lines)


if __name__ == "__main__":
    print(layout())
