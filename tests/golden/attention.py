# SPDX-License-Identifier: MIT
"""What a case of cases.txt gives, in float64, twice: by PyTorch and by the formula written out.
The two share nothing but the inputs."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from values import FILL


def agree(name, a, b):
    """Fails unless two ways to compute the same came to the same."""
    difference = np.abs(a - b).max(initial=0)
    if not difference <= 1e-12 * np.abs(a).max(initial=0):
        raise AssertionError(f"{name}: two ways to compute it differ by {difference}")


def by_formula(case):
    """(output, weights) with NumPy, one row at a time, straight from the definitions in mha.h."""
    if case.op == "forward":
        heads = [split(x @ w.T + (0 if b is None else b), n) for x, w, b, n in (
            (case.query, case.q, case.q_bias, case.n_heads),
            (case.key, case.k, case.k_bias, case.n_kv_heads),
            (case.value, case.v, case.v_bias, case.n_kv_heads))]
    else:
        heads = [case.query, case.key, case.value]
    q, k, v = heads
    out = np.zeros((case.batch, case.n_heads, case.q_len, case.v_head_dim))
    weights = np.zeros((case.batch, case.n_heads, case.q_len, case.kv_len))
    for b, h, i in np.ndindex(out.shape[:3]):
        kv = h * case.n_kv_heads // case.n_heads
        weights[b, h, i] = weights_of_row(case, b, h, i, q[b, h, i], k[b, kv])
        out[b, h, i] = weights[b, h, i] @ v[b, kv]
    if case.op == "forward":
        out = out.transpose(0, 2, 1, 3).reshape(case.batch, case.q_len, -1) @ case.o.T
        if case.o_bias is not None:
            out += case.o_bias
    return out, weights


def split(x, n_heads):
    batch, rows, width = x.shape
    return x.reshape(batch, rows, n_heads, width // n_heads).transpose(0, 2, 1, 3)


def weights_of_row(case, b, h, i, q, k):
    length = case.lengths[b]
    j = np.arange(case.kv_len)
    p = i + case.query_offset
    if case.causal == "bottom-right":
        p += length - case.q_len
    attended = j < length
    if case.causal:
        attended &= j <= p
    if case.window:
        attended &= np.abs(p - j) < case.window
    score = k @ q * case.scale
    if case.keep_mask is not None:
        attended &= at(case.keep_mask, b, h, i)
    if case.bias_mask is not None:
        score = score + at(case.bias_mask, b, h, i)
        attended &= at(case.bias_mask, b, h, i) != -np.inf
    if case.alibi:
        score = score - 2.0 ** -(h + 1) * np.abs(p - j)
    if not attended.any():
        uniform = case.masked_rows == "uniform" and length > 0
        return (j < length) / length if uniform else np.zeros(case.kv_len)
    exp = np.exp(score - score[attended].max(), where=attended, out=np.zeros(case.kv_len))
    return exp / exp.sum()


def at(mask, b, h, i):
    """The keys of a row of a mask that may broadcast."""
    return mask[tuple(x if size > 1 else 0 for x, size in zip((b, h, i), mask.shape))]


def by_pytorch(case):
    """(output, weights, the PyTorch call that made them)."""
    mask = pytorch_mask(case)
    dead = (mask == -torch.inf).all(-1).any().item()
    plain = (case.op == "forward" and case.n_kv_heads == case.n_heads
             and case.head_dim == case.v_head_dim
             and case.head_dim * case.n_heads == case.d_model
             and case.scale == case.head_dim ** -0.5)
    # nn.MultiheadAttention gives NaN for rows without a key; F.scaled_dot_product_attention zero.
    if plain and not dead:
        return *by_module(case, mask), "nn.MultiheadAttention"
    return *by_function(case, mask), "F.scaled_dot_product_attention"


def pytorch_mask(case):
    """Everything that masks and adds, as one float mask [batch][heads][q_len][kv_len]. In a row
    without a key to attend to, where the case asks for the uniform average, FILL takes the
    place of -inf at the keys within the length: it absorbs any score, so they all tie."""
    shape = case.batch, case.n_heads, case.q_len, case.kv_len
    within = torch.arange(case.kv_len) < torch.tensor(case.lengths)[:, None]
    within = within[:, None, None, :].expand(shape)
    allowed = within.clone()
    added = torch.zeros(shape, dtype=torch.float64)
    for b, length in enumerate(case.lengths):
        diagonal = case.query_offset
        if case.causal == "bottom-right":
            diagonal += length - case.q_len
        ones = torch.ones(case.q_len, case.kv_len, dtype=torch.bool)
        if case.causal:
            allowed[b] &= ones.tril(diagonal)
        if case.window:
            allowed[b] &= ones.tril(diagonal + case.window - 1).triu(diagonal - case.window + 1)
        if case.alibi:
            distance = (torch.arange(case.q_len)[:, None] + diagonal
                        - torch.arange(case.kv_len)).abs()
            slopes = torch.ldexp(torch.ones(case.n_heads), -1 - torch.arange(case.n_heads))
            added[b] -= slopes.double()[:, None, None] * distance
    if case.keep_mask is not None:
        allowed &= torch.from_numpy(case.keep_mask)
    if case.bias_mask is not None:
        added = added + torch.from_numpy(case.bias_mask)
        allowed &= added != -torch.inf
    mask = added.masked_fill(~allowed, -torch.inf)
    if case.masked_rows == "uniform":
        dead = ~allowed.any(-1, keepdim=True)
        mask = torch.where(dead & within, FILL, mask)
    return mask


def by_module(case, mask):
    shared = case.k_dim == case.v_dim == case.d_model
    module = nn.MultiheadAttention(case.d_model, case.n_heads, batch_first=True,
                                   kdim=case.k_dim, vdim=case.v_dim, dtype=torch.float64).eval()
    tensor = torch.from_numpy
    with torch.no_grad():
        if shared:
            module.in_proj_weight.copy_(tensor(np.concatenate((case.q, case.k, case.v))))
        else:
            module.q_proj_weight.copy_(tensor(case.q))
            module.k_proj_weight.copy_(tensor(case.k))
            module.v_proj_weight.copy_(tensor(case.v))
        none = np.zeros(case.d_model)
        module.in_proj_bias.copy_(tensor(np.concatenate(
            [none if b is None else b for b in (case.q_bias, case.k_bias, case.v_bias)])))
        module.out_proj.weight.copy_(tensor(case.o))
        module.out_proj.bias.copy_(tensor(none if case.o_bias is None else case.o_bias))
        output, weights = module(tensor(case.query), tensor(case.key), tensor(case.value),
                                 attn_mask=mask.flatten(0, 1), average_attn_weights=False)
    return output.numpy(), weights.numpy()


def by_function(case, mask):
    tensor = torch.from_numpy
    q, k, v = tensor(case.query), tensor(case.key), tensor(case.value)
    if case.op == "forward":
        def project(x, weight, bias, n_heads):
            y = F.linear(x, tensor(weight), None if bias is None else tensor(bias))
            return y.unflatten(-1, (n_heads, -1)).transpose(1, 2)

        q = project(q, case.q, case.q_bias, case.n_heads)
        k = project(k, case.k, case.k_bias, case.n_kv_heads)
        v = project(v, case.v, case.v_bias, case.n_kv_heads)

    def attend(values):
        return F.scaled_dot_product_attention(q, k, values, attn_mask=mask, scale=case.scale,
                                              enable_gqa=True)

    output = attend(v)
    # The weights are what the unit vectors as values give.
    weights = attend(torch.eye(case.kv_len, dtype=torch.float64).expand(
        case.batch, case.n_kv_heads, -1, -1)) if case.weights else None
    if case.op == "forward":
        output = output.transpose(1, 2).flatten(2)
        output = F.linear(output, tensor(case.o),
                          None if case.o_bias is None else tensor(case.o_bias))
    return output.numpy(), None if weights is None else weights.numpy()
