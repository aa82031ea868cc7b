# SPDX-License-Identifier: MIT
"""tests/data/: one attention layer of all-MiniLM-L6-v2, the hidden states that two sentences
have at its input, and its output, in float64. tests/data/README.md says what the files are."""

import unicodedata

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from attention import agree, by_formula, by_module, pytorch_mask
from files import read_safetensors, write_safetensors
from values import Case

LAYER, WIDTH, HEADS = 3, 384, 12
ENGLISH = "The lighthouse keeper counted eleven ships before the fog came in."
CHINESE = "三月八日，李明和王英一同西行，去看天山明月。"


def make(model_folder, data_folder):
    tensors = read_safetensors(model_folder / "model.safetensors")
    with open(model_folder / "vocab.txt", encoding="utf-8") as file:
        vocabulary = {line.rstrip("\n"): i for i, line in enumerate(file)}
    ids = [tokenize(text, vocabulary) for text in (ENGLISH, CHINESE)]
    lengths = [len(sentence) for sentence in ids]
    padded = [sentence + [vocabulary["[PAD]"]] * (max(lengths) - len(sentence))
              for sentence in ids]

    prefix = f"encoder.layer.{LAYER}.attention."
    layer = {name: tensors[name] for part in ("self.query", "self.key", "self.value",
                                              "output.dense")
             for name in (f"{prefix}{part}.weight", f"{prefix}{part}.bias")}
    write_safetensors(data_folder / "layer.safetensors", layer, {"format": "pt"})
    np.save(data_folder / "kv_lengths.npy", np.array(lengths, "<i8"))
    together = hidden_states(padded, lengths, tensors).astype(np.float32)
    for i, name in enumerate(("english", "chinese")):
        alone = hidden_states(ids[i:i + 1], lengths[i:i + 1], tensors).astype(np.float32)
        # The same values but for the rounding of float64; they must be equal here.
        np.testing.assert_allclose(together[i, :lengths[i]], alone[0], rtol=0, atol=1e-6)
        together[i, :lengths[i]] = alone[0]
        save(data_folder, name, alone, lengths[i:i + 1], layer, prefix)
    save(data_folder, "batch", together, lengths, layer, prefix)
    for text, sentence in zip((ENGLISH, CHINESE), ids):
        words = list(vocabulary)
        print(text, len(sentence), " ".join(words[i] for i in sentence))


def save(folder, name, states, lengths, layer, prefix):
    np.save(folder / f"{name}.npy", states)
    np.save(folder / f"{name}_expected.npy",
            attention_output(states.astype(np.float64), lengths, layer, prefix))


def tokenize(text, vocabulary):
    """BERT's tokens, uncased: words and single punctuation marks and CJK characters, each cut
    greedily into the longest pieces that the vocabulary has."""
    text = "".join(c for c in unicodedata.normalize("NFD", text.lower())
                   if unicodedata.category(c) != "Mn")
    spaced = "".join(f" {c} " if unicodedata.category(c)[0] == "P" or "\u4e00" <= c <= "\u9fff"
                     else c for c in text)
    pieces = [piece for word in spaced.split() for piece in word_pieces(word, vocabulary)]
    return [vocabulary[piece] for piece in ["[CLS]", *pieces, "[SEP]"]]


def word_pieces(word, vocabulary):
    pieces, start = [], 0
    while start < len(word):
        candidates = ((end, "##" * (start > 0) + word[start:end])
                      for end in range(len(word), start, -1))
        found = next(((end, piece) for end, piece in candidates if piece in vocabulary), None)
        if not found:
            return ["[UNK]"]
        start = found[0]
        pieces.append(found[1])
    return pieces


def parameters(tensors, name):
    return [torch.from_numpy(tensors[f"{name}.{kind}"]).double() for kind in ("weight", "bias")]


def hidden_states(ids, lengths, tensors):
    """What enters layer LAYER: embeddings, then the layers before it, in float64."""
    ids = torch.tensor(ids)
    padding = torch.arange(ids.size(1)) >= torch.tensor(lengths)[:, None]

    def embedding(kind):
        return torch.from_numpy(tensors[f"embeddings.{kind}_embeddings.weight"]).double()

    x = (embedding("word")[ids] + embedding("position")[:ids.size(1)]
         + embedding("token_type")[0])
    x = F.layer_norm(x, (WIDTH,), *parameters(tensors, "embeddings.LayerNorm"), eps=1e-12)
    for i in range(LAYER):
        by_hand = layer_by_hand(x, padding, tensors, f"encoder.layer.{i}.")
        x = layer_by_module(x, padding, tensors, f"encoder.layer.{i}.")
        agree("MiniLM", by_hand.numpy(), x.numpy())
    return x.numpy()


def layer_by_hand(x, padding, tensors, name):
    def linear(x, part):
        return F.linear(x, *parameters(tensors, name + part))

    def normalize(x, part):
        return F.layer_norm(x, (WIDTH,), *parameters(tensors, name + part), eps=1e-12)

    q, k, v = (linear(x, f"attention.self.{part}").unflatten(-1, (HEADS, -1)).transpose(1, 2)
               for part in ("query", "key", "value"))
    scores = q @ k.mT / (WIDTH // HEADS) ** 0.5
    weights = scores.masked_fill(padding[:, None, None], -torch.inf).softmax(-1)
    attended = linear((weights @ v).transpose(1, 2).flatten(2), "attention.output.dense")
    x = normalize(x + attended, "attention.output.LayerNorm")
    inner = F.gelu(linear(x, "intermediate.dense"))
    return normalize(x + linear(inner, "output.dense"), "output.LayerNorm")


def layer_by_module(x, padding, tensors, name):
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu",
                                        layer_norm_eps=1e-12, batch_first=True,
                                        dtype=torch.float64)
    qkv = [parameters(tensors, f"{name}attention.self.{part}")
           for part in ("query", "key", "value")]
    with torch.no_grad():
        module.self_attn.in_proj_weight.copy_(torch.cat([weight for weight, _ in qkv]))
        module.self_attn.in_proj_bias.copy_(torch.cat([bias for _, bias in qkv]))
        for target, part in ((module.self_attn.out_proj, "attention.output.dense"),
                             (module.norm1, "attention.output.LayerNorm"),
                             (module.linear1, "intermediate.dense"),
                             (module.linear2, "output.dense"),
                             (module.norm2, "output.LayerNorm")):
            weight, bias = parameters(tensors, name + part)
            target.weight.copy_(weight)
            target.bias.copy_(bias)
        # In training mode without dropout: evaluation mode would drop the padding's rows.
        for dropout in (module.dropout, module.dropout1, module.dropout2):
            dropout.p = 0.0
        module.self_attn.dropout = 0.0
        return module(x, src_key_padding_mask=padding)


def attention_output(states, lengths, layer, prefix):
    """After the output projection; before the residual and its LayerNorm."""
    batch, length = states.shape[:2]
    case = Case(f"minilm batch={batch} q_len={length} d_model={WIDTH} n_heads={HEADS} "
                f"kv_lengths={','.join(map(str, lengths))}")
    case.query = case.key = case.value = states
    for letter, part in zip("qkvo", ("self.query", "self.key", "self.value", "output.dense")):
        setattr(case, letter, layer[f"{prefix}{part}.weight"].astype(np.float64))
        setattr(case, letter + "_bias", layer[f"{prefix}{part}.bias"].astype(np.float64))
    output, weights = by_module(case, pytorch_mask(case))
    for theirs, mine in zip((output, weights), by_formula(case)):
        agree("MiniLM's attention", theirs, mine)
    return output
