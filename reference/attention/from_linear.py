"""Linear attention with the feature map elu + 1, by its definition, with the full attention matrix. Katharopoulos et al. 2020.

weights_ij = phi(q_i).phi(k_j) / sum_j phi(q_i).phi(k_j), over the keys visible to i; no scaling, no epsilon in the
denominator.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from case import Case, Result, Tensors, attention_mask, draw, linear, linears, merge_heads, split_heads

BATCH, HEADS, WIDTH, LENGTH = 2, 4, 16, 11
ALL = ("query", "key", "value", "output")


def cases() -> Iterator[Case]:
    yield case("linear_self", "bidirectional", None)
    yield case("linear_self_padded", "bidirectional", [6, 11])
    yield case("linear_causal", "causal", None)
    yield case("linear_causal_padded", "causal", [11, 8])


def case(name: str, role: str, lengths: list[int] | None) -> Case:
    padding = None if lengths is None else torch.tensor(lengths)
    mask = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool)
    mask = mask.tril() if role == "causal" else mask
    mask = mask if padding is None else mask & attention_mask(padding, LENGTH)[:, None, None, :]

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        q, k, v = (split_heads(linear(inputs["queries"], parameters, part), HEADS) for part in ALL[:3])
        products = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT) * mask
        weights = products / products.sum(-1, keepdim=True)
        return Result(linear(merge_heads(weights @ v), parameters, "output"), weights)

    config = {"kind": "linear", "heads": HEADS, "map": "elu_plus_one", "bias": True, "output_bias": True}
    source = f"formula in torch {torch.__version__.split('+')[0]}"
    inputs = draw(name, {"queries": (BATCH, LENGTH, WIDTH)})
    parameters = linears(name, {part: (WIDTH, WIDTH) for part in ALL}, ALL)
    return Case(name, source, role, config, inputs, parameters, function, padding)
