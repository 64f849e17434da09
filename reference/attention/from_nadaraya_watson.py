"""Kernel regression as attention, Nadaraya 1964 and Watson 1964: a formula in torch.

Weights are kernel(|query - key| / width), divided by their sum; zeros where all kernels are zero. The kernels have their
textbook factors and forms, with the distance itself and not its square: d2l calls the triangle max(0, 1 - u) Epanechnikov,
which is not what its name means elsewhere (statsmodels, scikit-learn), nor here.
"""

import math
from collections.abc import Iterator

import torch

from case import Case, Result, Tensors, attention_mask, draw

BATCH, LENGTH, KEYS, WIDTH = 2, 8, 9, 3
SPREAD = 1.6

KERNELS = {
    "gaussian": lambda u: torch.exp(-(u**2) / 2) / math.sqrt(2 * math.pi),
    "boxcar": lambda u: 0.5 * (u < 1),
    "epanechnikov": lambda u: 0.75 * (1 - u**2) * (u < 1),
    "constant": lambda u: torch.ones_like(u),
}


def cases() -> Iterator[Case]:
    yield case("gaussian", "bidirectional", learned=True)
    yield case("gaussian", "bidirectional", learned=True, left_out=True)
    yield case("gaussian", "causal", lengths=[8, 5])
    yield case("gaussian", "cross", learned=True, lengths=[4, 9])
    yield case("epanechnikov", "bidirectional", learned=True, left_out=True)
    yield case("epanechnikov", "causal", learned=True)
    yield case("epanechnikov", "cross", lengths=[9, 2])
    yield case("boxcar", "causal")
    yield case("boxcar", "cross", lengths=[5, 9])
    yield case("constant", "bidirectional", left_out=True)
    yield case("constant", "cross", lengths=[9, 6])


def case(
    kernel: str, role: str, learned: bool = False, left_out: bool = False, lengths: list[int] | None = None
) -> Case:
    parts = ["nadaraya_watson", kernel, "self" if role == "bidirectional" else role]
    parts += ["left_out"] if left_out else []
    name = "_".join(parts + (["padded"] if lengths else []))
    padding = None if lengths is None else torch.tensor(lengths)
    shapes = {"queries": (BATCH, LENGTH, WIDTH)}
    if role == "cross":
        shapes |= {"keys": (BATCH, KEYS, WIDTH), "values": (BATCH, KEYS, 5)}

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        queries = inputs["queries"]
        keys, values = inputs.get("keys", queries), inputs.get("values", queries)
        squares = ((queries[:, :, None] - keys[:, None]) ** 2).sum(-1)
        # The square root has no finite derivative at zero, where a query equals its key.
        own = squares == 0
        distances = torch.where(own, 0.0, torch.where(own, 1.0, squares).sqrt())
        width = torch.exp(parameters["log_width"]) if learned else SPREAD
        weights = KERNELS[kernel](distances / width).double()
        weights = weights.tril() if role == "causal" else weights
        weights = weights * (1 - torch.eye(LENGTH)) if left_out else weights
        weights = weights if padding is None else weights * attention_mask(padding, keys.shape[1])[:, None, :]
        sums = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(sums == 0, 1.0, sums)
        return Result(weights @ values, weights[:, None])

    config = {"kind": "nadaraya_watson", "kernel": kernel, "width": SPREAD}
    config |= {"learn_width": "learned"} if learned else {}
    config |= {"query_position": "left_out"} if left_out else {}
    parameters = {"log_width": torch.tensor([math.log(SPREAD)])} if learned else {}
    return Case(name, "a formula in torch", role, config, draw(name, shapes), parameters, function, padding)
