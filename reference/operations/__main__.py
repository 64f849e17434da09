"""Makes fixtures/operations/golden.safetensors: what PyTorch computes for each operation of the crate `tensor`.

A case is an operation with its settings, its inputs, the upstream gradient of each output, and PyTorch's results: the
outputs, and the gradient of every input. Inputs are float32, the arithmetic is float64, and the results are rounded to
float32 once, at the end. Every case is sampled from a seed derived from its name, so that a new case leaves the others
unchanged. Two runs write the same bytes.

Tensors are `CASE.input.NAME`, `CASE.output.0`, `CASE.upstream.0` and `CASE.gradient.NAME`. The settings are JSON under the
key `cases` of the file's metadata: one key, because safetensors writes several in no fixed order.

Run as `python reference/operations`. A module per kind of operation; a function there makes a family of cases.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import attentions
import linear_attentions
import maps
from case import Case, Tensors, generator

FILE = Path(__file__).resolve().parent.parent.parent / "fixtures" / "operations" / "golden.safetensors"

FAMILIES = [
    maps.linears,
    maps.sums_and_norms,
    maps.activations,
    maps.softmaxes,
    maps.rotaries,
    maps.embeddings,
    maps.cross_entropies,
    attentions.attentions,
    attentions.weights,
    attentions.log_sums,
    attentions.masked,
    linear_attentions.linear_attentions,
    linear_attentions.features,
]


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    cases = [case for family in FAMILIES for case in family()]
    assert len({case.name for case in cases}) == len(cases), "two cases have the same name"
    tensors: Tensors = {}
    for case in cases:
        assert case.name.startswith(f"{case.operation}."), f"{case.name} does not begin with {case.operation}"
        tensors |= compute(case)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FILE, {"cases": json.dumps([description(case) for case in cases])})
    print(f"{'operations':<16}{FILE.stat().st_size:>10,} bytes: {len(cases)} cases, {len(tensors)} tensors")


def description(case: Case) -> dict:
    return {
        "name": case.name,
        "operation": case.operation,
        "inputs": list(case.inputs),
        "smooth": case.smooth,
        **case.settings,
    }


def compute(case: Case) -> Tensors:
    leaves = {name: tensor.double().requires_grad_() for name, tensor in case.inputs.items()}
    outputs = case.function(**leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    draws = generator(f"{case.name} upstream")
    upstream = [torch.randn(output.shape, generator=draws) for output in outputs]
    upstream = [torch.zeros_like(it) if i in case.unused else it for i, it in enumerate(upstream)]
    loss = sum((output * it.double()).sum() for output, it in zip(outputs, upstream, strict=True))
    gradients = torch.autograd.grad(loss, list(leaves.values()))

    tensors = {f"input.{name}": tensor for name, tensor in case.inputs.items()}
    tensors |= {f"output.{i}": output for i, output in enumerate(outputs)}
    tensors |= {f"upstream.{i}": it for i, it in enumerate(upstream)}
    tensors |= {f"gradient.{name}": snap_to_zero(it) for name, it in zip(leaves, gradients, strict=True)}
    for name in tensors.keys() - {f"input.{name}" for name in case.inputs}:
        assert tensors[name].isfinite().all(), f"{case.name}.{name} is not finite"
    return {f"{case.name}.{name}": tensor.detach().float().clone().contiguous() for name, tensor in tensors.items()}


def snap_to_zero(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that is zero in exact arithmetic is stored as zero, without its rounding errors."""
    return torch.zeros_like(gradient) if gradient.abs().max() < 1e-12 else gradient


if __name__ == "__main__":
    main()
