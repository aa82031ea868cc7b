# SPDX-License-Identifier: MIT
"""Runs every node case that ONNX has of Attention and FlexAttention through mha_attention().

usage: onnx_cases.py LIBRARY [--verbose]

Prints the cases that fail or use a feature that the library lacks, and why; with --verbose those
that pass, too. The comparison is ONNX's own, at each case's tolerances. What the library leaves
to its caller is done here: other types become float and back, past and new keys and values are
put together.
"""
import argparse
import sys
import warnings

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

import mha

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")

# What the library calls each qk_matmul_output_mode.
RESULTS = (mha.RESULT_SCORES, mha.RESULT_CAPPED_SCORES, mha.RESULT_MASKED_SCORES,
           mha.RESULT_WEIGHTS)


class Lacks(Exception):
    """The case uses a feature that the library doesn't have."""


def heads(array, n_heads):
    """[batch][head][row][dim], as a view: [batch][row][head * dim] with three axes."""
    if array.ndim == 3:
        return array.reshape(*array.shape[:2], n_heads, -1).swapaxes(1, 2)
    return array


def nans(*shape):
    """An output, where what isn't written shows."""
    return np.full(shape, np.nan, np.float32)


def attend(library, query, key, value, output, mask, scale, **rest):
    """mha_attention() on inputs of any type."""
    if scale == 0:
        raise Lacks("a scale of 0, which stands for the default")
    query, key, value = (a.astype(np.float32) for a in (query, key, value))
    library.attention(query, key, value, output, mask, scale=scale or 0, **rest)


def set_mask(mask, attn_mask, shape):
    """attn_mask to keep or bias. It broadcasts to [batch][head][query], and its rows may be
    shorter than there are keys."""
    keep = attn_mask.dtype == np.bool_
    array = attn_mask.astype(np.uint8 if keep else np.float32)
    mask.view("keep" if keep else "bias", np.broadcast_to(array, shape + array.shape[-1:]))


def set_positions(mask, inputs, q_len, past):
    """Query 0 stands after the past keys, or q_len before the end of those that aren't padding."""
    if "nonpad_kv_seqlen" in inputs:
        mask.point("query_offsets", inputs["nonpad_kv_seqlen"].astype(np.int64) - q_len)
    else:
        mask.query_offset = past


def set_lengths(mask, inputs, batch, kv_len):
    """Keys beyond nonpad_kv_seqlen, or beyond the rows of attn_mask, are masked. Returns whether
    there are any."""
    lengths = np.full(batch, kv_len)
    if "nonpad_kv_seqlen" in inputs:
        lengths = inputs["nonpad_kv_seqlen"]
    if "attn_mask" in inputs:
        lengths = np.minimum(lengths, inputs["attn_mask"].shape[-1])
    shorter = bool(np.any(lengths < kv_len))
    if shorter:
        mask.point("kv_lengths", lengths.astype(np.uintp))
    return shorter


def attention(library, attributes, inputs, outputs):
    """The operator Attention; returns its outputs by name, those asked for among them. Takes the
    attributes that it knows out of the dictionary. The softmax is of floats, whatever
    softmax_precision says."""
    query = heads(inputs["Q"], attributes.pop("q_num_heads", None))
    kv_heads = attributes.pop("kv_num_heads", None)
    key, value = heads(inputs["K"], kv_heads), heads(inputs["V"], kv_heads)
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[2]
        key = np.concatenate((inputs["past_key"], key), axis=2)
        value = np.concatenate((inputs["past_value"], value), axis=2)
    batch, n_heads, q_len, _ = query.shape
    kv_len = key.shape[2]

    mask = mha.Mask()
    set_positions(mask, inputs, q_len, past)
    shorter = set_lengths(mask, inputs, batch, kv_len)
    if "attn_mask" in inputs:
        set_mask(mask, inputs["attn_mask"], query.shape[:3])
    if attributes.pop("is_causal", 0):
        mask.causal = mha.CAUSAL_TOP_LEFT  # positions as set_positions() says
    # ONNX counts the keys beside the one at the query's position; -1: no window.
    mask.window_left = attributes.pop("left_window_size", -1) + 1
    mask.window_right = attributes.pop("right_window_size", -1) + 1

    scale = attributes.pop("scale", None)
    softcap = max(attributes.pop("softcap", 0), 0)
    mode = attributes.pop("qk_matmul_output_mode", 0)
    attributes.pop("softmax_precision", None)
    result = None
    if "qk_matmul_output" in outputs:
        if shorter and RESULTS[mode] != mha.RESULT_WEIGHTS:
            raise Lacks("scores of keys beyond kv_lengths")
        result = nans(batch, n_heads, q_len, kv_len)
    if inputs["Q"].ndim == 3:
        y = nans(batch, q_len, n_heads * value.shape[3])
    else:
        y = nans(batch, n_heads, q_len, value.shape[3])
    attend(library, query, key, value, heads(y, n_heads), mask, scale, softcap=softcap,
           attention=result, result=RESULTS[mode])
    made = {"Y": y.astype(query.dtype), "present_key": key, "present_value": value}
    if result is not None:
        made["qk_matmul_output"] = result.astype(query.dtype)
    return made


def fit_score_mod(graph, opsets, shape):
    """What score_mod does to scores x of this shape, as the library can: slope, softcap and bias of
    softcap * tanh(slope * x / softcap) + bias, or of slope * x + bias with softcap 0. Found from
    its values at a few scores, then tried on others."""
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(graph.input[0].type.tensor_type.elem_type)
    evaluator = ReferenceEvaluator(model)

    def apply(scores):
        scores = np.broadcast_to(scores, shape).astype(dtype)
        return evaluator.run(None, {graph.input[0].name: scores})[0].astype(np.float64)

    def fitted(scores):
        scores = slope * scores
        return (softcap * np.tanh(scores / softcap) if softcap else scores) + bias

    bias = apply(0)
    kept = np.isfinite(bias)
    if kept.any():
        slope = np.median(apply(1)[kept] - bias[kept])
        softcap = np.median(apply(1e4)[kept] - bias[kept])
        if 0 < slope < softcap < 0.5e4 * slope:  # bounded
            slope = softcap * np.arctanh(slope / softcap)
        else:
            softcap = 0
        random = np.random.default_rng(0)
        tries = [random.normal(0, size, shape) for size in (0.1, 1, 10, 100, 1e4)]
        if slope != 0 and all(np.allclose(apply(x), fitted(x), 1e-4, 1e-4) for x in tries):
            return slope, softcap, bias
    raise Lacks("a score_mod that isn't scale, softcap, bias and mask")


def flex_attention(library, attributes, inputs, opsets):
    """The operator FlexAttention, likewise."""
    if "prob_mod" in attributes:
        raise Lacks("prob_mod")
    query, key, value = (inputs[name] for name in ("Q", "K", "V"))
    scale = attributes.pop("scale", 1 / np.sqrt(query.shape[3]))
    softcap = 0
    attributes.pop("softmax_precision", None)
    mask = mha.Mask()
    if "score_mod" in attributes:
        shape = query.shape[:3] + key.shape[2:3]
        slope, softcap, bias = fit_score_mod(attributes.pop("score_mod"), opsets, shape)
        scale *= slope
        set_mask(mask, bias, query.shape[:3])
    y = nans(*query.shape[:3], value.shape[3])
    attend(library, query, key, value, y, mask, scale, softcap=softcap)
    return {"Y": y.astype(value.dtype)}


def run_case(library, case):
    node = case.model.graph.node[0]
    for arrays, expected in case.data_sets:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = iter(arrays)
        inputs = {name: next(given) for name, used in zip(INPUTS, node.input) if used}
        outputs = [name for name, used in zip(OUTPUTS, node.output) if used]
        if node.op_type == "Attention":
            made = attention(library, attributes, inputs, outputs)
        else:
            made = flex_attention(library, attributes, inputs, case.model.opset_import)
        if attributes:
            raise Lacks("attributes unknown here: " + ", ".join(attributes))
        Runner.assert_similar_outputs(expected, [made[name] for name in outputs], case.rtol,
                                      case.atol)


def collect_cases():
    """The cases of either operator; the expanded ones have other operators in their place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the generators of other operators
        cases = collect_testcases()
    operators = ("Attention", "FlexAttention")
    return [c for c in cases if c.model.graph.node[0].op_type in operators]


def in_short(failure):
    """The lines of numpy's report that say how much differs, or all of a short one."""
    lines = [line for line in str(failure).splitlines() if line]
    said = [line for line in lines if line.startswith(("Mismatched", "Max"))]
    return "; ".join(said or lines[:2]).replace(" among violations", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    library = mha.Library(options.library)
    cases = collect_cases()
    counts = {"passed": 0, "FAILED": 0, "lacks": 0}
    width = max(len(case.name) for case in cases)
    for case in cases:
        try:
            run_case(library, case)
            end, why = "passed", ""
        except Lacks as lacks:
            end, why = "lacks", lacks
        except (mha.Error, AssertionError) as failure:
            end, why = "FAILED", in_short(failure)
        counts[end] += 1
        if options.verbose or end != "passed":
            print(f"{end:<7}{case.name:<{width}}  {why}".rstrip(), flush=True)
    print("{passed} passed, {FAILED} failed, {lacks} lack a feature".format(**counts))
    return counts["FAILED"] > 0


if __name__ == "__main__":
    sys.exit(main())
