# SPDX-License-Identifier: MIT
"""Expected values of the three programs that test_programs.c repeats in C. Each is a list of
(file name, output in float64); weights and inputs come from the integer generator."""

import copy

import numpy as np
import torch
from torch import nn

from attention import agree, by_formula, by_module, pytorch_mask
from files import exact_float32, write_safetensors
from values import Case

class MultiHeadAttention(nn.Module):
    """The layer of all three programs: four nn.Linear, heads side by side in the width. What a
    mask hides gets the score -1e9, so a row without a key is the average over all keys."""

    def __init__(self, d_model, n_heads, bias=True):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.o = (
            nn.Linear(d_model, d_model, bias, dtype=torch.float64) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        def heads(x):
            return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

        q, k, v = heads(self.q(query)), heads(self.k(key)), heads(self.v(value))
        scores = q @ k.mT / q.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        self.weights = scores.softmax(-1)
        return self.o((self.weights @ v).transpose(1, 2).flatten(2))

    def load(self, case):
        with torch.no_grad():
            for letter in "qkvo":
                linear = getattr(self, letter)
                linear.weight.copy_(torch.from_numpy(getattr(case, letter)))
                if linear.bias is not None:
                    linear.bias.copy_(torch.from_numpy(getattr(case, letter + "_bias")))
        return self


def run(module, case, mask=None):
    with torch.no_grad():
        out = module(*(torch.from_numpy(x) for x in (case.query, case.key, case.value)),
                     None if mask is None else torch.from_numpy(mask))
    return out.numpy()


def program_a():
    """d_model 512, 8 heads, batch 2, length 4; masks where 0 means masked; weights; clones."""
    case = Case("program_a batch=2 q_len=4 kv_len=4 d_model=512 n_heads=8 inputs=qkv "
                "biases=qkvo masked_rows=uniform weight_exp=-4")
    causal = np.tril(np.ones((1, 1, 4, 4), np.uint8))
    # Sequence 0: its last token is padding. Sequence 1: strictly earlier tokens only, so its
    # first query has no key at all.
    padding = np.stack((np.tile(np.uint8([1, 1, 1, 0]), (4, 1)),
                        np.tril(np.ones((4, 4), np.uint8), -1)))[:, None]
    module = MultiHeadAttention(512, 8).load(case)
    separate = case.key, case.value
    for name, mask, (case.key, case.value) in (
            ("program_a_plain", None, (case.query, case.query)),
            ("program_a_causal", causal, separate),
            ("program_a_padding", padding, separate)):
        clone = copy.deepcopy(module)
        output = run(clone, case, mask)
        case.keep_mask = None if mask is None else mask != 0
        for mine, theirs in zip(by_formula(case), (output, clone.weights.numpy())):
            agree(name, mine, theirs)
        yield name, output
        yield name + ".weights", clone.weights.numpy()


def program_b(folder):
    """d_model 8, 2 heads, batch 2, length 5 against nn.MultiheadAttention(batch_first=True);
    also as files for the tool, with PyTorch's own tensor names."""
    for name, biases in ("program_b", "-"), ("program_b_biases", "qkvo"):
        case = Case(f"program_b batch=2 q_len=5 d_model=8 n_heads=2 biases={biases} weight_exp=-1")
        output, weights = by_module(case, pytorch_mask(case))
        agree(name, run(MultiHeadAttention(8, 2, biases != "-").load(case), case), output)
        agree(name, by_formula(case)[1], weights)
        yield name, output
        tensors = {"in_proj_weight": np.concatenate((case.q, case.k, case.v)),
                   "out_proj.weight": case.o}
        if biases != "-":
            tensors["in_proj_bias"] = np.concatenate((case.q_bias, case.k_bias, case.v_bias))
            tensors["out_proj.bias"] = case.o_bias
        write_safetensors(folder / f"{name}.safetensors", tensors)
    yield "program_b_query", exact_float32(case.query)


def program_c():
    """hidden_size 64 and 66 with 4 and 6 heads, sequences of any length."""
    for hidden, n_heads in (64, 4), (66, 6):
        for length in 1, 7, 40:
            case = Case(f"program_c_{hidden} batch=2 q_len={length} d_model={hidden} "
                        f"n_heads={n_heads} biases=qkvo")
            output = run(MultiHeadAttention(hidden, n_heads).load(case), case)
            agree("program_c", by_formula(case)[0], output)
            yield f"program_c_{hidden}_{length}", output
