"""Transformer-XL's attention over a memory, with relative positions, from transformers 4.57.1. Dai et al. 2019.

What RelPartialLearnableMultiHeadAttn computes, for a segment of `length` after a memory of `m` positions:

- Queries are projected from the segment; keys and values from memory and segment, by the same weights, and no gradient flows
  into the memory. Query i sees the keys j <= i + m.
- score_ij = ((q_i + content_bias).k_j + (q_i + position_bias).p_(i + m - j)) / sqrt(head width)
- p_t = positions.weight s_t, split into heads, where s_t is the sinusoid of the distance t: the sines of t / 10000^(2f / width)
  for f = 0 .. width / 2 - 1, then their cosines (not interleaved).

The file's `sinusoids` [m + length, width] has s_t in row t. The module's residual and norm are left out.
"""

from collections.abc import Iterator

import torch
import transformers
from torch.func import functional_call
from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import (
    PositionalEmbedding,
    RelPartialLearnableMultiHeadAttn,
)

from case import Case, Result, Tensors, draw, generator, linears, staying_in_float64

BATCH, HEADS, WIDTH = 2, 2, 16
SOURCE = f"transformers {transformers.__version__} RelPartialLearnableMultiHeadAttn"


def cases() -> Iterator[Case]:
    yield case("transformer_xl", 9, 6, 6, 8)
    yield case("transformer_xl_narrow_heads", 9, 6, 6, 6)
    yield case("transformer_xl_long_memory", 5, 11, 11, 8)
    yield case("transformer_xl_filling_memory", 5, 11, 4, 8)
    yield case("transformer_xl_first_segment", 9, 6, 0, 8)


def case(name: str, length: int, max_memory: int, memory_length: int, head_width: int) -> Case:
    """`max_memory` is the maximum length of the memory, `memory_length` its length at this segment."""
    inner = HEADS * head_width
    shapes = {part: (inner, WIDTH) for part in ("query", "key", "value", "positions")} | {"output": (WIDTH, inner)}
    parameters = linears(name, shapes)
    draws = generator(f"{name} biases")
    for part in ("content_bias", "position_bias"):
        parameters[part] = 0.5 * torch.randn((HEADS, head_width), generator=draws)
    memory = draw(f"{name} memory", {"memory": (BATCH, memory_length, WIDTH)})["memory"]
    sinusoids = PositionalEmbedding(WIDTH).double()
    sinusoids.inv_freq = 1 / 10000 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    distances = torch.arange(length + memory_length, dtype=torch.float64)
    causal_mask = torch.ones(length, length + memory_length).triu(1 + memory_length)[:, :, None]

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        # With `pre_lnorm` the module adds its inputs last; identity norms reduce it to this sum.
        module = RelPartialLearnableMultiHeadAttn(HEADS, WIDTH, head_width, 0.0, pre_lnorm=True).double()
        module.layer_norm = torch.nn.Identity()
        state = {
            "qkv_net.weight": torch.cat([parameters[f"{part}.weight"] for part in ("query", "key", "value")]),
            "o_net.weight": parameters["output.weight"],
            "r_net.weight": parameters["positions.weight"],
            "r_w_bias": parameters["content_bias"],
            "r_r_bias": parameters["position_bias"],
        }
        x = inputs["queries"].transpose(0, 1)
        settings = {"attn_mask": causal_mask, "mems": memory.double().transpose(0, 1), "output_attentions": True}
        with staying_in_float64():
            sums, weights = functional_call(module, state, (x, sinusoids(distances.flip(0))), settings)
        return Result((sums - x).transpose(0, 1), weights.permute(2, 3, 0, 1))

    config = {"kind": "transformer_xl", "heads": HEADS, "memory": max_memory, "bias": False, "output_bias": False}
    if inner != WIDTH:
        config["head_width"] = head_width
    given = {"sinusoids": sinusoids(distances)[:, 0]} | ({"memory": memory} if memory_length else {})
    inputs = draw(name, {"queries": (BATCH, length, WIDTH)})
    return Case(name, SOURCE, "causal", config, inputs, parameters, function, given=given)
