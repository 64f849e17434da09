"""Full attention from PyTorch's nn.MultiheadAttention, and grouped heads from its scaled_dot_product_attention.

Vaswani et al. 2017; Ainslie et al. 2023 for grouped heads.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch.func import functional_call

from case import Case, Result, Tensors, attention_mask, draw, linear, linears, merge_heads, split_heads

BATCH, HEADS, WIDTH = 2, 4, 16
ALL = ("query", "key", "value", "output")
MULTI_HEAD = f"torch {torch.__version__.split('+')[0]} MultiheadAttention"
SCALED = f"torch {torch.__version__.split('+')[0]} scaled_dot_product_attention(enable_gqa=True)"


def cases() -> Iterator[Case]:
    yield self_attention("full_self", "bidirectional", 11, None)
    yield self_attention("full_self_padded", "bidirectional", 13, [13, 6])
    yield self_attention("full_causal", "causal", 12, None)
    yield self_attention("full_causal_padded", "causal", 10, [4, 10])
    yield cross("full_cross", None)
    yield cross("full_cross_padded", [9, 3])
    yield grouped("full_grouped", "bidirectional", [9, 5])
    yield grouped("full_grouped_causal", "causal", None)


def config(**more: int) -> dict:
    return {"kind": "full", "heads": HEADS, **more, "bias": True, "output_bias": True}


def self_attention(name: str, role: str, length: int, lengths: list[int] | None) -> Case:
    parameters = linears(name, {part: (WIDTH, WIDTH) for part in ALL}, ALL)
    padding = None if lengths is None else torch.tensor(lengths)
    return Case(
        name, MULTI_HEAD, role, config(), draw(name, {"queries": (BATCH, length, WIDTH)}), parameters,
        multi_head(role, padding), padding,
    )  # fmt: skip


def cross(name: str, lengths: list[int] | None) -> Case:
    key_width, value_width = 12, 20
    parameters = linears(
        name,
        {"query": (WIDTH, WIDTH), "key": (WIDTH, key_width), "value": (WIDTH, value_width), "output": (WIDTH, WIDTH)},
        ALL,
    )
    shapes = {"queries": (BATCH, 7, WIDTH), "keys": (BATCH, 9, key_width), "values": (BATCH, 9, value_width)}
    padding = None if lengths is None else torch.tensor(lengths)
    return Case(
        name, MULTI_HEAD, "cross", config(), draw(name, shapes), parameters, multi_head("cross", padding), padding
    )


def multi_head(role: str, lengths: torch.Tensor | None) -> Callable[[Tensors, Tensors], Result]:
    def function(inputs: Tensors, parameters: Tensors) -> Result:
        queries = inputs["queries"]
        keys, values = inputs.get("keys", queries), inputs.get("values", queries)
        module = torch.nn.MultiheadAttention(
            WIDTH, HEADS, kdim=keys.shape[-1], vdim=values.shape[-1], batch_first=True, dtype=torch.float64
        )
        state = {
            "in_proj_bias": torch.cat([parameters[f"{part}.bias"] for part in ALL[:3]]),
            "out_proj.weight": parameters["output.weight"],
            "out_proj.bias": parameters["output.bias"],
        }
        if role == "cross":
            state |= {f"{short}_proj_weight": parameters[f"{part}.weight"] for short, part in zip("qkv", ALL)}
        else:
            state["in_proj_weight"] = torch.cat([parameters[f"{part}.weight"] for part in ALL[:3]])
        length = keys.shape[1]
        settings = {"average_attn_weights": False}
        if lengths is not None:
            settings["key_padding_mask"] = ~attention_mask(lengths, length)
        if role == "causal":
            settings["attn_mask"] = torch.ones(length, length, dtype=torch.bool).triu(1)
        return Result(*functional_call(module, state, (queries, keys, values), settings))

    return function


def grouped(name: str, role: str, lengths: list[int] | None) -> Case:
    """Six query heads on two key heads: query head i reads key head i // 3. Heads are wider than width / heads."""
    heads, key_value_heads, head_width, length = 6, 2, 5, 9
    shapes = {
        "query": (heads * head_width, WIDTH),
        "key": (key_value_heads * head_width, WIDTH),
        "value": (key_value_heads * head_width, WIDTH),
        "output": (WIDTH, heads * head_width),
    }
    padding = None if lengths is None else torch.tensor(lengths)
    mask = torch.ones(BATCH, 1, length, length, dtype=torch.bool)
    mask = mask.tril() if role == "causal" else mask
    mask = mask if padding is None else mask & attention_mask(padding, length)[:, None, None, :]

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        q, k, v = (
            split_heads(linear(inputs["queries"], parameters, part), count)
            for part, count in [("query", heads), ("key", key_value_heads), ("value", key_value_heads)]
        )
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return Result(linear(merge_heads(context), parameters, "output"))

    settings = {
        "kind": "full", "heads": heads, "key_value_heads": key_value_heads, "head_width": head_width,
        "bias": True, "output_bias": True,
    }  # fmt: skip
    inputs = draw(name, {"queries": (BATCH, length, WIDTH)})
    return Case(name, SCALED, role, settings, inputs, linears(name, shapes, ALL), function, padding)
