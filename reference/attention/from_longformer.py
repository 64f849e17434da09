"""Longformer from transformers: a window around each position, and a few global positions. Beltagy et al. 2020.

What LongformerSelfAttention computes, with half_window = window / 2 and the scale 1 / sqrt(head width) on the queries:

- A local query i sees the keys j with |i - j| <= half_window that are neither padding nor global, and all global keys of its
  row, each once, in one softmax. It uses `query`, `key` and `value`, also for the global keys.
- A global query sees every key of its row but padding, global or not, in one softmax of its own, and uses `global_query`,
  `global_key` and `global_value` alone.
- At padding, queries have zeros before the output projection, so the output is its bias.
- Masked scores are the smallest finite value, here of float64: a masked key has exactly zero weight.

The library requires lengths that are multiples of the window; without globals it does not use the global projections, whose
gradients are then zero (and are not stored). The output projection is that of LongformerSelfOutput, without dropout,
residual and norm.
"""

from collections.abc import Iterator

import torch
import transformers
from torch.func import functional_call
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from case import Case, Result, Tensors, attention_mask, draw, linear, linears, staying_in_float64

BATCH, HEADS, WIDTH = 2, 2, 16
LOCAL = ("query", "key", "value")
SOURCE = f"transformers {transformers.__version__} LongformerSelfAttention"


def cases() -> Iterator[Case]:
    yield case("longformer_local", 24, 4, None, None)
    yield case("longformer_local_padded", 24, 8, [24, 13], None)
    # Globals inside and outside of windows, neighbours of each other, at the ends; none next to two in one batch.
    yield case("longformer_global", 24, 6, None, [[0, 11, 12, 23], [5]])
    yield case("longformer_global_padded", 24, 4, [17, 24], [[0, 9], []])


def case(
    name: str, length: int, window: int, lengths: list[int] | None, global_positions: list[list[int]] | None
) -> Case:
    names = LOCAL if global_positions is None else (*LOCAL, *(f"global_{part}" for part in LOCAL))
    parameters = linears(name, {part: (WIDTH, WIDTH) for part in (*names, "output")}, (*names, "output"))
    padding = None if lengths is None else torch.tensor(lengths)
    is_global = torch.zeros(BATCH, length, dtype=torch.bool)
    for row, positions in enumerate(global_positions or []):
        is_global[row, positions] = True
    is_unpadded = attention_mask(torch.full((BATCH,), length) if padding is None else padding, length)

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        config = LongformerConfig(
            hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[window], attention_probs_dropout_prob=0.0
        )
        module = LongformerSelfAttention(config, 0).double()
        state = {}
        for ours in names:
            theirs = ours.removeprefix("global_") + ("_global" if ours.startswith("global_") else "")
            state |= {f"{theirs}.{it}": parameters[f"{ours}.{it}"] for it in ("weight", "bias")}
        settings = {
            # Negative at padding, positive at global positions, as in LongformerModel.
            "attention_mask": torch.where(is_unpadded, torch.where(is_global, 10000.0, 0.0), -10000.0).double(),
            "is_index_masked": ~is_unpadded,
            "is_index_global_attn": is_global,
            "is_global_attn": bool(is_global.any()),
            "output_attentions": True,
        }
        with staying_in_float64():
            context, *weights = functional_call(module, state, (inputs["queries"],), settings)
        return Result(linear(context, parameters, "output"), dense(weights, is_global, window // 2))

    made = Case(
        name, SOURCE, "bidirectional",
        {"kind": "longformer", "heads": HEADS, "window": window, "bias": True, "output_bias": True},
        draw(name, {"queries": (BATCH, length, WIDTH)}), parameters, function, padding,
    )  # fmt: skip
    made.metadata["notes"] = f"a window of {window} reaches {window // 2} positions to each side"
    if global_positions is not None:
        made.given["globals"] = is_global
    return made


def dense(weights: list[torch.Tensor], is_global: torch.Tensor, half_window: int) -> torch.Tensor:
    """The library's weights are [batch, length, heads, globals + 2 half_window + 1], and [batch, heads, globals, length]."""
    local, extra = weights[0].detach(), is_global.sum(1).max()
    batch, length, heads, _ = local.shape
    matrix = torch.zeros(batch, heads, length, length, dtype=local.dtype)
    for row in range(batch):
        positions = is_global[row].nonzero().flatten().tolist()
        for i in range(length):
            for slot, j in enumerate(positions):
                matrix[row, :, i, j] += local[row, i, :, slot]
            for offset in range(-half_window, half_window + 1):
                if 0 <= i + offset < length:
                    matrix[row, :, i, i + offset] += local[row, i, :, extra + half_window + offset]
        for slot, i in enumerate(positions):
            matrix[row, :, i] = weights[1][row, :, slot].detach()
    return matrix
