"""Performer's positive random features (FAVOR+) from performer-pytorch. Choromanski et al. 2021.

What the package computes, for features W [m, d] and x a query or a key of a head of width d:

    dash    = W x / d^(1/4)
    phi(x)  = m^(-1/2) * (exp(dash - |x|^2 / (2 sqrt(d)) - stabilizer) + 1e-4)

The stabilizer of a query is the largest of its own dash; that of a key is the largest dash of all keys and features of
that head of that row of the batch, also when causal. Both are detached. Bidirectional:
out_i = sum_j (phi(q_i).phi(k_j)) v_j / sum_j phi(q_i).phi(k_j). Causal: the sums end at i, and 1e-6 is added to every
feature of the sum of phi(k_j) in the denominator, but not in the numerator.

Because of the two epsilons the stabilizers do not cancel, and a causal output depends a little on later keys. Cases
named `no_epsilon` set both to zero; there the stabilizers cancel, and outputs and gradients are as without any. The metadata
`epsilons` (JSON) has the values of a case.

The package's mask zeroes padded values but not padded keys, so padding here is each row alone at its unpadded length:
the stabilizer ignores padding as well.
"""

import importlib.metadata
import json
from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import torch
from performer_pytorch import SelfAttention, performer_pytorch
from torch.func import functional_call

from case import Case, Result, Tensors, draw, generator, linears, row_by_row

BATCH, HEADS, WIDTH, LENGTH, FEATURES = 2, 2, 16, 12, 20
ALL = ("query", "key", "value", "output")
SOURCE = f"performer-pytorch {importlib.metadata.version('performer-pytorch')} SelfAttention"


def cases() -> Iterator[Case]:
    yield case("performer_self", "bidirectional", None)
    yield case("performer_self_padded", "bidirectional", [12, 7])
    yield case("performer_causal", "causal", None)
    yield case("performer_self_no_epsilon", "bidirectional", [9, 12], 0.0, 0.0)
    yield case("performer_causal_no_epsilon", "causal", [12, 10], 0.0, 0.0)


def case(name: str, role: str, lengths: list[int] | None, added: float = 1e-4, below: float = 1e-6) -> Case:
    config = {"kind": "performer", "heads": HEADS, "features": FEATURES, "bias": True, "output_bias": True}
    head_width = WIDTH // HEADS
    parameters = linears(name, {part: (WIDTH, WIDTH) for part in ALL}, ALL)
    for part in ("query", "key"):  # Small enough that the features are not nearly all epsilon.
        parameters[f"{part}.weight"] *= 0.6
    # The package samples from the global generator only. Twenty rows of width eight: two and a half orthogonal blocks.
    torch.manual_seed(generator(name).initial_seed())
    features = performer_pytorch.gaussian_orthogonal_random_matrix(FEATURES, head_width)
    padding = None if lengths is None else torch.tensor(lengths)

    def attention(x: torch.Tensor, parameters: Tensors) -> Result:
        settings = {"dim_head": head_width, "nb_features": FEATURES, "qkv_bias": True, "causal": role == "causal"}
        module = SelfAttention(WIDTH, heads=HEADS, **settings).double()
        if role == "causal":
            causal = performer_pytorch.causal_linear_attention_noncuda
            assert module.fast_attention.causal_linear_fn is causal
            module.fast_attention.causal_linear_fn = partial(causal, eps=below)
        names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out": "output"}
        state = {
            f"{theirs}.{it}": parameters[f"{ours}.{it}"] for theirs, ours in names.items() for it in ("weight", "bias")
        }
        state["fast_attention.projection_matrix"] = features.double()
        kernel = partial(performer_pytorch.softmax_kernel, eps=added)
        with patch.object(performer_pytorch, "softmax_kernel", kernel):
            return Result(functional_call(module, state, (x,)))

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        if padding is None:
            return attention(inputs["queries"], parameters)
        return row_by_row(lambda row: attention(row, parameters), inputs["queries"], padding)

    made = Case(
        name, SOURCE, role, config, draw(name, {"queries": (BATCH, LENGTH, WIDTH)}), parameters, function, padding
    )
    # Sampled, not trained: named like a parameter, but without a gradient.
    made.given["parameter.pattern.features"] = features
    epsilons = {"features": added} | ({"denominator": below} if role == "causal" else {})
    made.metadata["epsilons"] = json.dumps(epsilons)
    return made
