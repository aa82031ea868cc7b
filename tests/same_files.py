#!/usr/bin/env python3
"""Runs `mha run` here and on the machine of a cross build, and compares the files they write.

usage: MHA_NATIVE=MHA same_files.py MHA      (meson sets MESON_EXE_WRAPPER: what runs MHA)

Every case goes through every ISA of either machine; all files of a case must be identical.
"""
import array
import json
import os
import pathlib
import random
import shlex
import struct
import subprocess
import sys
import tempfile

# name, (batch, q_len, kv_len, d_model, heads, kv_heads, head_dim, biases), inputs and options.
# kv_len 0: self-attention. Inputs: k, v: files of their own; m: a bool mask; b: a bias mask;
# l: lengths; a: slopes. Then the size of the query's numbers, as a power of two.
CASES = [
    ("small", (2, 5, 0, 24, 3, 3, 8, True), "", [], 0),
    ("causal", (1, 70, 0, 64, 4, 2, 16, False), "", ["--causal"], 0),
    ("top-left", (1, 9, 21, 40, 5, 1, 8, True), "k", ["--causal=top-left"], 0),
    ("blocks", (1, 7, 1100, 32, 2, 2, 16, True), "kv", [], 2),
    ("window", (1, 40, 600, 32, 2, 1, 16, True), "k", ["--causal", "--window", "33"], 0),
    ("lengths", (3, 4, 30, 48, 6, 3, 8, True), "kl", ["--masked-rows", "uniform"], 0),
    ("mask", (2, 13, 37, 36, 4, 4, 9, False), "km", [], 0),
    ("bias", (2, 11, 530, 36, 4, 2, 9, True), "kb", [], 0),
    ("wide heads", (1, 3, 19, 33, 1, 1, 33, True), "kb", [], 3),
    ("subnormal", (1, 6, 17, 16, 2, 2, 8, False), "k", [], -126),
    ("sharp", (1, 12, 200, 64, 4, 4, 16, True), "k", [], 7),
    ("long and sharp", (1, 5, 2100, 16, 2, 1, 8, True), "k", [], 10),
    ("window alone", (1, 40, 90, 16, 2, 1, 8, True), "k", ["--window", "7"], 0),
    ("window, wider to the left", (1, 40, 90, 16, 2, 1, 8, True), "k",
     ["--window-left", "20", "--window-right", "3"], 0),
    ("query-offset", (1, 6, 50, 16, 2, 1, 8, False), "k",
     ["--causal=top-left", "--query-offset", "30"], 0),
    ("query-offset, window", (2, 30, 41, 16, 2, 2, 8, True), "k",
     ["--query-offset=-9", "--window", "12", "--masked-rows", "uniform"], 0),
    ("scale", (2, 6, 40, 24, 3, 3, 8, True), "k", ["--scale", "0.3"], 0),
    ("scale below 0", (1, 6, 530, 16, 2, 2, 8, False), "kb", ["--scale=-1.7"], 1),
    ("alibi", (1, 20, 600, 24, 3, 3, 8, True), "ka", ["--causal"], 0),
    ("alibi, auto", (2, 9, 33, 24, 6, 3, 8, True), "kl", ["--alibi", "auto"], 0),
    ("alibi and all", (2, 19, 33, 16, 2, 1, 8, True), "kabl",
     ["--causal", "--window", "5", "--query-offset", "3", "--scale", "0.7"], 1),
]


def write_npy(path, kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def floats(rng, count, exponent=0):
    values = array.array("f", (rng.gauss(0, 1) * 2.0**exponent for _ in range(count)))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def write_weights(path, rng, d_model, heads, kv_heads, head_dim, biases):
    shapes = {}
    for name, rows, width in (("q", heads * head_dim, d_model),
                              ("k", kv_heads * head_dim, d_model),
                              ("v", kv_heads * head_dim, d_model),
                              ("o", d_model, heads * head_dim)):
        shapes[f"self_attn.{name}_proj.weight"] = [rows, width]
        if biases:
            shapes[f"self_attn.{name}_proj.bias"] = [rows]
    header, body = {}, b""
    for name, shape in shapes.items():
        data = floats(rng, shape[0] * (shape[1] if len(shape) > 1 else 1), -2)
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def make_case(folder, case):
    """Writes a case's inputs; the arguments of mha run."""
    name, sizes, inputs, options, power = case
    batch, q_len, kv_len, d_model, heads, kv_heads, head_dim, biases = sizes
    rng = random.Random(name)
    arguments = ["--heads", str(heads), "--kv-heads", str(kv_heads)] + options

    def give(option, kind, shape, data):
        path = folder / f"{option}.npy"
        write_npy(path, kind, shape, data)
        arguments.extend([f"--{option}", str(path)])

    write_weights(folder / "weights.safetensors", rng, d_model, heads, kv_heads, head_dim, biases)
    arguments += ["--weights", str(folder / "weights.safetensors")]
    give("query", "<f4", [batch, q_len, d_model], floats(rng, batch * q_len * d_model, power))
    if "k" in inputs:
        give("key", "<f4", [batch, kv_len, d_model], floats(rng, batch * kv_len * d_model))
    if "v" in inputs:
        give("value", "<f4", [batch, kv_len, d_model], floats(rng, batch * kv_len * d_model, 5))
    if "m" in inputs:
        keep = bytes(rng.random() < 0.6 for _ in range(q_len * kv_len))
        give("mask", "|b1", [q_len, kv_len], keep)
    if "b" in inputs:
        give("mask", "<f4", [batch, 1, q_len, kv_len], floats(rng, batch * q_len * kv_len, 1))
    if "a" in inputs:
        give("alibi", "<f4", [heads], floats(rng, heads, -3))
    if "l" in inputs:
        lengths = [(7 * b) % (kv_len + 1) for b in range(batch)]
        give("kv-lengths", "<i8", [batch], struct.pack(f"<{batch}q", *lengths))
    return arguments


def has_nan(npy):
    values = array.array("f", npy[10 + struct.unpack_from("<H", npy, 8)[0]:])
    return any(v != v for v in values)


def isas(command):
    info = subprocess.run(command + ["info", "--json"], check=True, capture_output=True)
    return json.loads(info.stdout)["supported"]


def main():
    native = os.environ.get("MHA_NATIVE")
    if not native:
        print("SKIP: MHA_NATIVE doesn't say where the mha of this machine is")
        return 77
    machines = {"here": [native],
                "there": shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")) + [sys.argv[1]]}
    runs = [(f"{where} {isa}", command, isa)
            for where, command in machines.items() for isa in isas(command)]
    failed = 0
    for case in CASES:
        written = {}
        with tempfile.TemporaryDirectory() as folder:
            arguments = make_case(pathlib.Path(folder), case)
            for name, command, isa in runs:
                files = [pathlib.Path(folder) / f for f in ("y.npy", "a.npy")]
                outputs = ["--output", str(files[0]), "--attention", str(files[1])]
                subprocess.run(command + ["run", "--isa", isa] + arguments + outputs, check=True,
                               stdout=subprocess.DEVNULL)
                written.setdefault(tuple(f.read_bytes() for f in files), []).append(name)
        if any(has_nan(f) for files in written for f in files):
            sys.exit(f"{case[0]}: NaN, whose payload isn't promised")
        failed += len(written) > 1
        print(f"{case[0]}: " + (" differs from ".join(", ".join(w) for w in written.values())
                                if len(written) > 1 else "identical"))
    print(f"{len(CASES)} cases, {', '.join(name for name, _, _ in runs)}; {failed} differ")
    return failed > 0


sys.exit(main())
