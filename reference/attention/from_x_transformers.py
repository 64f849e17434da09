"""Argmax attention, cosine attention and ALiBi from x-transformers.

Argmax attention gives all weight to the best key. Its gradient is straight-through: values get the gradient of the
one-hot weights, scores that of a softmax (of temperature 1). Bengio et al. 2013.

Cosine attention divides queries and keys by their norms. The library's factor is a constant; a tensor in its place gives
each head its own, with a gradient. Henry et al. 2020.

ALiBi subtracts slope * distance from the scores, after their scaling. Press et al. 2022.
"""

import importlib.metadata
from collections.abc import Iterator

import torch
from torch.func import functional_call
from x_transformers.x_transformers import AlibiPositionalBias, Attention

from case import Case, Result, Tensors, attention_mask, draw, linears, staying_in_float64

BATCH, WIDTH = 2, 16
SOURCE = f"x-transformers {importlib.metadata.version('x-transformers')}"
NAMES = {"query": "to_q", "key": "to_k", "value": "to_v", "output": "to_out"}


def cases() -> Iterator[Case]:
    yield argmax("argmax_self", "bidirectional", None)
    yield argmax("argmax_self_padded", "bidirectional", [5, 9])
    yield argmax("argmax_causal", "causal", None)
    yield cosine("cosine_self_padded", "bidirectional", [5, 9])
    yield cosine("cosine_causal", "causal", None)
    yield alibi("full_alibi_causal", 4, None)
    yield alibi("full_alibi_causal_six_heads", 6, [12, 7])


def argmax(name: str, role: str, lengths: list[int] | None) -> Case:
    heads, length = 4, 9
    settings = {"hard": True, "causal": role == "causal"}
    config = {"kind": "argmax", "heads": heads, "bias": False, "output_bias": False}
    return attention(name, f"{SOURCE} Attention(hard=True)", role, config, WIDTH, length, lengths, settings)


def cosine(name: str, role: str, lengths: list[int] | None) -> Case:
    heads, length = 4, 9
    settings = {"qk_norm": True, "causal": role == "causal"}
    config = {"kind": "cosine", "heads": heads, "bias": False, "output_bias": False}
    case = attention(name, f"{SOURCE} Attention(qk_norm=True)", role, config, WIDTH, length, lengths, settings)
    case.parameters["log_factor"] = torch.tensor([1.0, 3.0, 8.0, 10.0]).log()
    return case


def alibi(name: str, heads: int, lengths: list[int] | None) -> Case:
    config = {"kind": "full", "heads": heads, "bias": False, "output_bias": False}
    case = attention(
        name, f"{SOURCE} AlibiPositionalBias", "causal", config, 4 * heads, 12, lengths, {"causal": True},
        AlibiPositionalBias(heads).double(),
    )  # fmt: skip
    case.metadata["positions"] = '{"kind": "alibi"}'
    case.given["slopes"] = AlibiPositionalBias(heads).slopes.flatten()
    return case


def attention(
    name: str,
    source: str,
    role: str,
    config: dict,
    width: int,
    length: int,
    lengths: list[int] | None,
    settings: dict,
    positions: torch.nn.Module | None = None,
) -> Case:
    padding = None if lengths is None else torch.tensor(lengths)
    heads = config["heads"]

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        with staying_in_float64():
            module = Attention(width, dim_head=width // heads, heads=heads, **settings).double()
            if "log_factor" in parameters:
                module.attend.scale = parameters["log_factor"].exp()[:, None, None]
            state = {f"{theirs}.weight": parameters[f"{ours}.weight"] for ours, theirs in NAMES.items()}
            mask = None if padding is None else attention_mask(padding, length)
            output, intermediates = functional_call(
                module, state, (inputs["queries"],), {"mask": mask, "rel_pos": positions, "return_intermediates": True}
            )
        if config["kind"] == "argmax":
            best = intermediates.pre_softmax_attn.topk(2).values
            gaps = best[..., 0] - best[..., 1]
            assert gaps.min() > 1e-3, f"{name}: two keys score alike within {gaps.min():.1e}; draw again"
        return Result(output, intermediates.post_softmax_attn)

    inputs = draw(name, {"queries": (BATCH, length, width)})
    parameters = linears(name, {part: (width, width) for part in NAMES})
    return Case(name, source, role, config, inputs, parameters, function, padding)
