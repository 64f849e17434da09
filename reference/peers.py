"""Makes fixtures/peers/golden.safetensors: what other implementations compute for attentions that transformers does not have.

Argmax attention is compared with the package x-transformers, Linformer with the package linformer, kernel regression with its
formula written out in PyTorch. A case is the settings of an attention in our words, its place, parameters and inputs, what
flows back into the output, the output, and the gradients of all parameters and inputs. The numbers are float32, the
arithmetic is float64. Two runs write the same bytes.

Needs, besides requirements.txt: linformer 0.2.3, x-transformers 2.31.10 and what these import.
"""

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from linformer.linformer import LinformerSelfAttention
from safetensors.torch import save_file
from x_transformers.x_transformers import Attention

FILE = Path(__file__).resolve().parent.parent / "fixtures" / "peers" / "golden.safetensors"

Tensors = dict[str, torch.Tensor]


@dataclass
class Case:
    name: str
    config: dict
    role: str
    parameters: Tensors
    # `queries`, and in cross-attention `keys` and `values`.
    inputs: Tensors
    output: torch.Tensor
    upstream: torch.Tensor
    # Of parameters and inputs.
    gradients: Tensors
    # The length that the maps of a Linformer are made for.
    length: int
    # First and end of what is not padding, for each sequence that is looked at.
    real: list[list[int]] | None = None
    # Parameters that the peer has as one: the sum of our gradients is its gradient, stored under the first name.
    tied: list[str] = field(default_factory=list)


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    cases = [*argmax(), *linformer(), *nadaraya_watson()]
    tensors: Tensors = {}
    for case in cases:
        parts = {f"parameter.{name}": it for name, it in case.parameters.items()}
        parts |= {f"input.{name}": it for name, it in case.inputs.items()}
        parts |= {f"gradient.{name}": it for name, it in case.gradients.items()}
        parts |= {"output": case.output, "upstream": case.upstream}
        tensors |= {f"{case.name}.{name}": it.detach().float().clone().contiguous() for name, it in parts.items()}
    described = [
        {"name": it.name, "config": it.config, "role": it.role, "length": it.length, "real": it.real, "tied": it.tied}
        for it in cases
    ]
    FILE.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FILE, {"cases": json.dumps(described)})
    print(f"{'peers':<16}{FILE.stat().st_size:>10,} bytes: {len(cases)} cases, {len(tensors)} tensors")


def drawn(name: str, shape: tuple[int, ...], spread: float = 1.0) -> torch.Tensor:
    """Numbers that float32 holds, in float64."""
    draws = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return (torch.randn(shape, generator=draws) * spread).double()


def redraw(module: torch.nn.Module, name: str) -> torch.nn.Module:
    module = module.double().eval()
    for part, parameter in module.named_parameters():
        parameter.data = drawn(f"{name} {part}", tuple(parameter.shape), 0.5)
    return module


def argmax() -> Iterator[Case]:
    for name, role, batch, queries, keys, real in [
        ("argmax.bidirectional", "bidirectional", 2, 6, 6, None),
        ("argmax.causal", "causal", 2, 7, 7, None),
        ("argmax.padded", "bidirectional", 3, 5, 5, [[0, 5], [3, 3], [1, 4]]),
        ("argmax.cross", "cross", 2, 3, 8, [[0, 8], [0, 5]]),
    ]:
        peer = redraw(
            Attention(8, heads=2, dim_head=4, hard=True, causal=role == "causal", flash=False), name
        )
        inputs = {"queries": drawn(f"{name} queries", (batch, queries, 8)).requires_grad_()}
        if role == "cross":
            inputs["keys"] = drawn(f"{name} keys", (batch, keys, 8)).requires_grad_()
        seen = None
        if real is not None:
            seen = torch.zeros(batch, keys, dtype=torch.bool)
            for row, (start, end) in enumerate(real):
                seen[row, start:end] = True
        if role == "cross":
            output = peer(inputs["queries"], context=inputs["keys"], context_mask=seen)
        else:
            # Said as a mask of the sequence, padding would also empty the rows of the queries that are padding.
            pairs = None if seen is None else seen[:, None, None, :].expand(batch, 1, queries, keys)
            output = peer(inputs["queries"], attn_mask=pairs)
        output = output[0] if isinstance(output, tuple) else output
        names = {"query": peer.to_q, "key": peer.to_k, "value": peer.to_v, "output": peer.to_out}
        parameters = {f"{part}.weight": module.weight for part, module in names.items()}
        config = {"kind": "argmax", "heads": 2}
        yield case(name, config, role, parameters, inputs, output, 8, real)


def linformer() -> Iterator[Case]:
    for name, role, sharing, queries, keys in [
        ("linformer.whole", "bidirectional", "separate", 9, 9),
        ("linformer.shorter", "bidirectional", "separate", 6, 6),
        ("linformer.one_map", "bidirectional", "key_value", 7, 7),
        ("linformer.cross", "cross", "separate", 4, 8),
    ]:
        shared = sharing == "key_value"
        peer = redraw(LinformerSelfAttention(8, seq_len=9, k=4, heads=2, share_kv=shared), name)
        inputs = {"queries": drawn(f"{name} queries", (2, queries, 8)).requires_grad_()}
        context = None
        if role == "cross":
            context = inputs["keys"] = drawn(f"{name} keys", (2, keys, 8)).requires_grad_()
        output = peer(inputs["queries"], context=context)
        parameters = {
            "query.weight": peer.to_q.weight,
            "key.weight": peer.to_k.weight,
            "output.weight": peer.to_out.weight,
            "output.bias": peer.to_out.bias,
            "pattern.key_map": peer.proj_k,
        }
        if not shared:
            parameters |= {"value.weight": peer.to_v.weight, "pattern.value_map": peer.proj_v}
        config = {"kind": "linformer", "heads": 2, "projected_length": 4, "sharing": sharing, "output_bias": True}
        made = case(name, config, role, parameters, inputs, output, 9, None)
        # Ours is kept `[projected_length, length]`.
        for part in [it for it in parameters if it.endswith("_map")]:
            made.parameters[part] = made.parameters[part].T
            made.gradients[part] = made.gradients[part].T
        if shared:
            # This peer shares the maps to keys and values too, not only those along the length.
            made.parameters["value.weight"] = made.parameters["key.weight"]
            made.tied = ["key.weight", "value.weight"]
        yield made


KERNELS = {
    "gaussian": lambda u: torch.exp(-(u**2) / 2),
    "boxcar": lambda u: (u < 1).double(),
    "epanechnikov": lambda u: 0.75 * (1 - u**2) * (u < 1),
    "constant": lambda u: torch.ones_like(u),
}


def nadaraya_watson() -> Iterator[Case]:
    for kernel, role, learned, left_out in [
        ("gaussian", "bidirectional", True, False),
        ("gaussian", "bidirectional", True, True),
        ("gaussian", "causal", False, False),
        ("gaussian", "cross", True, False),
        ("epanechnikov", "bidirectional", True, True),
        ("epanechnikov", "causal", True, False),
        ("epanechnikov", "cross", False, False),
        ("boxcar", "causal", False, False),
        ("boxcar", "cross", False, False),
        ("constant", "bidirectional", False, True),
        ("constant", "cross", False, False),
    ]:
        name = f"nadaraya_watson.{kernel}.{role}" + (".left_out" if left_out else "")
        width = torch.tensor([math.log(1.6)], dtype=torch.float64).float().double().requires_grad_()
        inputs = {"queries": drawn(f"{name} queries", (2, 6, 3)).requires_grad_()}
        if role == "cross":
            inputs["keys"] = drawn(f"{name} keys", (2, 7, 3)).requires_grad_()
            inputs["values"] = drawn(f"{name} values", (2, 7, 5)).requires_grad_()
        queries, keys = inputs["queries"], inputs.get("keys", inputs["queries"])
        values = inputs.get("values", inputs["queries"])
        squares = ((queries[:, :, None] - keys[:, None]) ** 2).sum(-1)
        # The root has no slope at zero, where a query is its own key.
        own = squares == 0
        distances = torch.where(own, 0.0, torch.sqrt(torch.where(own, 1.0, squares)))
        weights = KERNELS[kernel](distances / (torch.exp(width) if learned else 1.6))
        if role == "causal":
            weights = weights.tril()
        if left_out:
            weights = weights * (1 - torch.eye(6))
        sums = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(sums == 0, 1.0, sums)
        config = {"kind": "nadaraya_watson", "kernel": kernel, "width": 1.6}
        config |= {"learn_width": "learned"} if learned else {}
        config |= {"own": "left_out"} if left_out else {}
        yield case(name, config, role, {"log_width": width} if learned else {}, inputs, weights @ values, 7, None)


def case(
    name: str,
    config: dict,
    role: str,
    parameters: Tensors,
    inputs: Tensors,
    output: torch.Tensor,
    length: int,
    real: list[list[int]] | None,
) -> Case:
    upstream = drawn(f"{name} upstream", tuple(output.shape))
    leaves = parameters | inputs
    gradients = torch.autograd.grad((output * upstream).sum(), list(leaves.values()), allow_unused=True)
    gradients = [torch.zeros_like(leaf) if it is None else it for leaf, it in zip(leaves.values(), gradients, strict=True)]
    gradients = dict(zip(leaves, gradients, strict=True))
    parameters = {part: it.detach() for part, it in parameters.items()}
    return Case(name, config, role, parameters, inputs, output, upstream, gradients, length, real)


if __name__ == "__main__":
    main()
