"""Linformer from the package linformer, and its variant with a projection per head by its formula. Wang et al. 2020.

Keys and values are projected along the length to `projected_length`, with one projection for all heads (or one per
head). A row shorter than the projection uses its first columns, so padding is left out by truncating the row.
"""

import importlib.metadata
import math
from collections.abc import Callable, Iterator

import torch
from linformer import LinformerSelfAttention
from torch.func import functional_call

from case import Case, Result, Tensors, draw, generator, linear, linears, merge_heads, row_by_row, split_heads

BATCH, HEADS, WIDTH, LENGTH, PROJECTED = 2, 4, 16, 12, 5
ALL = ("query", "key", "value", "output")
SOURCE = f"linformer {importlib.metadata.version('linformer')} LinformerSelfAttention"


def cases() -> Iterator[Case]:
    yield case("linformer_separate", SOURCE, "separate", None)
    yield case("linformer_separate_padded", SOURCE, "separate", [12, 7])
    yield case("linformer_key_value", SOURCE, "key_value", None)
    yield case("linformer_key_value_padded", SOURCE, "key_value", [5, 12])
    formula = f"formula in torch {torch.__version__.split('+')[0]}"
    yield case("linformer_per_head", formula, "per_head", None)
    yield case("linformer_per_head_padded", formula, "per_head", [9, 12])


def case(name: str, source: str, sharing: str, lengths: list[int] | None) -> Case:
    config = {
        "kind": "linformer", "heads": HEADS, "projected_length": PROJECTED, "sharing": sharing,
        "bias": False, "output_bias": True,
    }  # fmt: skip
    parameters = linears(name, {part: (WIDTH, WIDTH) for part in ALL}, ("output",))
    shape = (HEADS, PROJECTED, LENGTH) if sharing == "per_head" else (PROJECTED, LENGTH)
    draws = generator(f"{name} maps")
    for part in ("key",) if sharing == "key_value" else ("key", "value"):
        parameters[f"pattern.{part}_map"] = torch.randn(shape, generator=draws) / math.sqrt(PROJECTED)
    attention = per_head if sharing == "per_head" else package(sharing)
    padding = None if lengths is None else torch.tensor(lengths)

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        if padding is None:
            return attention(inputs["queries"], parameters)
        return row_by_row(lambda row: attention(row, parameters), inputs["queries"], padding)

    inputs = draw(name, {"queries": (BATCH, LENGTH, WIDTH)})
    return Case(name, source, "bidirectional", config, inputs, parameters, function, padding)


def package(sharing: str) -> Callable[[torch.Tensor, Tensors], Result]:
    """The package's `share_kv` also shares the key and value weights; here only the projection along the length is shared,
    by assigning it to both."""

    def attention(x: torch.Tensor, parameters: Tensors) -> Result:
        module = LinformerSelfAttention(WIDTH, LENGTH, k=PROJECTED, heads=HEADS).double()
        names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out": "output"}
        state = {f"{theirs}.weight": parameters[f"{ours}.weight"] for theirs, ours in names.items()}
        state["to_out.bias"] = parameters["output.bias"]
        state["proj_k"] = parameters["pattern.key_map"].T
        state["proj_v"] = parameters["pattern.key_map" if sharing == "key_value" else "pattern.value_map"].T
        return Result(functional_call(module, state, (x,)))

    return attention


def per_head(x: torch.Tensor, parameters: Tensors) -> Result:
    q, k, v = (split_heads(linear(x, parameters, part), HEADS) for part in ALL[:3])
    maps = [parameters[f"pattern.{part}_map"][..., : x.shape[1]] for part in ("key", "value")]
    k, v = (torch.einsum("hpn,bhnd->bhpd", it, heads) for it, heads in zip(maps, (k, v), strict=True))
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    return Result(linear(merge_heads(weights @ v), parameters, "output"))
