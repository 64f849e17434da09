"""Scored attention, without projections of queries, keys and values: from d2l, and bilinear scores from PyTorch.

Additive scores: Bahdanau et al. 2015. Bilinear scores: Luong et al. 2015. d2l masks with -1e6, far enough below the
scores here that float64 gives masked keys exactly zero weight.
"""

import ast
import importlib.metadata
import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.func import functional_call

from case import Case, Result, Tensors, attention_mask, draw, generator, linears

BATCH, QUERIES, KEYS = 2, 8, 11
D2L = f"d2l {importlib.metadata.version('d2l')}"


def cases() -> Iterator[Case]:
    definitions = d2l()
    for name, lengths in [("scored_additive", None), ("scored_additive_padded", [4, 11])]:
        yield additive(name, lengths, definitions["AdditiveAttention"])
    for name, lengths in [("scored_scaled_dot", None), ("scored_scaled_dot_padded", [11, 2])]:
        yield scaled_dot(name, lengths, definitions["DotProductAttention"])
    yield bilinear("scored_bilinear_padded", [7, 10])


def d2l() -> dict:
    """The classes of d2l, without importing the rest of it, which needs torchvision and much else."""
    names = ("masked_softmax", "AdditiveAttention", "DotProductAttention")
    folder = importlib.util.find_spec("d2l").submodule_search_locations[0]
    tree = ast.parse((Path(folder) / "torch.py").read_text())
    tree.body = [it for it in tree.body if getattr(it, "name", None) in names]
    definitions = {"torch": torch, "nn": nn, "math": math}
    exec(compile(tree, "d2l/torch.py", "exec"), definitions)
    return definitions


def inputs(name: str, query_width: int, key_width: int) -> Tensors:
    shapes = {"queries": (BATCH, QUERIES, query_width), "keys": (BATCH, KEYS, key_width), "values": (BATCH, KEYS, 6)}
    return draw(name, shapes)


def additive(name: str, lengths: list[int] | None, definition: type[nn.Module]) -> Case:
    hidden, query_width, key_width = 10, 12, 9
    padding = None if lengths is None else torch.tensor(lengths)
    parameters = linears(name, {"query": (hidden, query_width), "key": (hidden, key_width), "score": (1, hidden)})
    parameters["score.weight"] *= 2

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        module = definition(hidden, 0.0).double()
        with torch.no_grad():  # Lazy layers infer their widths from the first call.
            module(inputs["queries"], inputs["keys"], inputs["values"], None)
        names = {"query": "W_q", "key": "W_k", "score": "w_v"}
        state = {f"{theirs}.weight": parameters[f"{ours}.weight"] for ours, theirs in names.items()}
        output = functional_call(module, state, (inputs["queries"], inputs["keys"], inputs["values"], padding))
        return Result(output, module.attention_weights[:, None])

    config = {"kind": "scored", "score": {"kind": "additive", "hidden_width": hidden}}
    given = inputs(name, query_width, key_width)
    return Case(name, f"{D2L} AdditiveAttention", "cross", config, given, parameters, function, padding)


def scaled_dot(name: str, lengths: list[int] | None, definition: type[nn.Module]) -> Case:
    padding = None if lengths is None else torch.tensor(lengths)

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        module = definition(0.0)
        output = module(inputs["queries"], inputs["keys"], inputs["values"], padding)
        return Result(output, module.attention_weights[:, None])

    config = {"kind": "scored", "score": {"kind": "scaled_dot"}}
    return Case(name, f"{D2L} DotProductAttention", "cross", config, inputs(name, 10, 10), {}, function, padding)


def bilinear(name: str, lengths: list[int]) -> Case:
    """Scores are q M k, not scaled."""
    query_width, key_width, padding = 12, 9, torch.tensor(lengths)
    parameters = {"bilinear": 0.2 * torch.randn((query_width, key_width), generator=generator(f"{name} parameters"))}

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        scores = torch.einsum("bqi,ij,bkj->bqk", inputs["queries"], parameters["bilinear"], inputs["keys"])
        weights = scores.masked_fill(~attention_mask(padding, KEYS)[:, None, :], -math.inf).softmax(-1)
        return Result(torch.bmm(weights, inputs["values"]), weights[:, None])

    config = {"kind": "scored", "score": {"kind": "bilinear"}}
    source = f"torch {torch.__version__.split('+')[0]} einsum"
    given = inputs(name, query_width, key_width)
    return Case(name, source, "cross", config, given, parameters, function, padding)
