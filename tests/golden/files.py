# SPDX-License-Identifier: MIT
"""Reading and writing safetensors files, F32 only, tensors in the order given."""

import json

import numpy as np


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
            for name, entry in header.items() if entry["dtype"] == "F32"}


def write_safetensors(path, tensors, metadata=None):
    header, offset = {"__metadata__": metadata} if metadata else {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [offset, offset + 4 * array.size]}
        offset += 4 * array.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(exact_float32(array).astype("<f4").tobytes())


def exact_float32(array):
    """The array as float32; an error if that would change a value."""
    narrow = array.astype(np.float32)
    if not np.array_equal(narrow, array):
        raise ValueError("not representable in float32")
    return narrow
