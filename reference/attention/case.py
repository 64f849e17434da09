"""One golden case of attention: its inputs, the reference that computes it, and its file.

Inputs and parameters are float32, the reference computes in float64, and its results are rounded to float32
once, at the end. Every case is sampled from a seed derived from its name, so that a new case leaves the others
unchanged. The header of a file is written here, sorted, since safetensors' own writer gives metadata no fixed order; two
runs write the same bytes.
"""

import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import torch

FOLDER = Path(__file__).resolve().parent.parent.parent / "fixtures" / "attention"

Tensors = dict[str, torch.Tensor]


@dataclass
class Result:
    output: torch.Tensor
    # [batch, heads, queries, keys], where the reference has them.
    weights: torch.Tensor | None = None


@dataclass
class Case:
    name: str
    source: str
    role: str
    config: dict
    # `queries`, and for cross-attention `keys` and `values`.
    inputs: Tensors
    # Under attentive's names.
    parameters: Tensors
    # Takes inputs and parameters by name, in float64.
    function: Callable[[Tensors, Tensors], Result]
    # The unpadded length of each row.
    lengths: torch.Tensor | None = None
    # Further inputs, sampled or chosen: rotations, random blocks, globals, memory. Stored under their own names.
    given: Tensors = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def write(case: Case) -> int:
    """Computes the case and writes its file; returns the size of the file."""
    tensors = {name: it.detach().contiguous() for name, it in compute(case).items()}
    tensors = {name: it.float() if it.is_floating_point() else it.long() for name, it in tensors.items()}
    for name, tensor in tensors.items():
        assert tensor.isfinite().all(), f"{case.name}: {name} is not finite"
    metadata = {"config": json.dumps(case.config), "role": case.role, "source": case.source, **case.metadata}
    FOLDER.mkdir(parents=True, exist_ok=True)
    contents = serialized(tensors, metadata)
    (FOLDER / f"{case.name}.safetensors").write_bytes(contents)
    return len(contents)


def compute(case: Case) -> Tensors:
    inputs = {name: it.double().requires_grad_() for name, it in case.inputs.items()}
    parameters = {name: it.double().requires_grad_() for name, it in case.parameters.items()}
    result = case.function(inputs, parameters)
    assert result.output.dtype == torch.float64, f"{case.name} left float64"
    upstream = torch.randn(result.output.shape, generator=generator(f"{case.name} upstream"))
    tensors = {**case.inputs, **case.given}
    if case.lengths is not None:
        tensors["lengths"] = case.lengths
        if case.role != "cross":
            # Outputs at padding differ between libraries and are unused: they get no upstream gradient.
            upstream = upstream * attention_mask(case.lengths, upstream.shape[1])[:, :, None]
            tensors["rows_compared"] = case.lengths
    leaves = {name: it for name, it in inputs.items()} | {f"parameter.{name}": it for name, it in parameters.items()}
    gradients = torch.autograd.grad(
        (result.output * upstream.double()).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    tensors |= {"output": result.output, "upstream": upstream}
    tensors |= {f"parameter.{name}": it for name, it in case.parameters.items()}
    tensors |= {f"gradient.{name}": snap_to_zero(it) for name, it in zip(leaves, gradients, strict=True)}
    if result.weights is not None:
        tensors["weights"] = result.weights
    return tensors


def snap_to_zero(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that is zero in exact arithmetic is stored as zero, without its rounding errors."""
    return torch.zeros_like(gradient) if gradient.abs().max() < 1e-12 else gradient


def serialized(tensors: Tensors, metadata: dict[str, str]) -> bytes:
    """The safetensors format: the length of the header, the header as JSON, the data."""
    names = sorted(tensors, key=lambda name: (tensors[name].dtype != torch.int64, name))
    dtypes = {torch.int64: "I64", torch.float32: "F32"}
    header: dict = {"__metadata__": dict(sorted(metadata.items()))}
    body = b""
    for name in names:
        tensor = tensors[name]
        data = tensor.numpy().tobytes()
        header[name] = {
            "dtype": dtypes[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def draw(name: str, shapes: dict[str, tuple[int, ...]], scale: float = 1.0) -> Tensors:
    draws = generator(name)
    return {part: scale * torch.randn(shape, generator=draws) for part, shape in shapes.items()}


def linears(name: str, shapes: dict[str, tuple[int, int]], bias: tuple[str, ...] = ()) -> Tensors:
    """`NAME.weight` as [output, input], and `NAME.bias` for the names in `bias`.

    Weights are large enough that scores differ by a few units, so that a softmax is far from uniform.
    """
    draws = generator(f"{name} parameters")
    tensors: Tensors = {}
    for part, (outputs, inputs) in shapes.items():
        tensors[f"{part}.weight"] = 1.4 * torch.randn((outputs, inputs), generator=draws) / math.sqrt(inputs)
        if part in bias:
            tensors[f"{part}.bias"] = 0.3 * torch.randn((outputs,), generator=draws)
    return tensors


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[batch, length, heads * head width] as [batch, heads, length, head width]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def linear(x: torch.Tensor, parameters: Tensors, name: str) -> torch.Tensor:
    return torch.nn.functional.linear(x, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))


def attention_mask(lengths: torch.Tensor, length: int) -> torch.Tensor:
    """The padding mask, [batch, length]: whether a position is not padding."""
    return torch.arange(length)[None, :] < lengths[:, None]


def row_by_row(function: Callable[[torch.Tensor], Result], queries: torch.Tensor, lengths: torch.Tensor) -> Result:
    """Padding for references without support for it: each row alone at its unpadded length, followed by zeros."""
    length = queries.shape[1]
    outputs, weights = [], []
    for row, unpadded_length in zip(queries, lengths.tolist(), strict=True):
        result = function(row[None, :unpadded_length])
        missing = length - unpadded_length
        outputs.append(torch.nn.functional.pad(result.output, (0, 0, 0, missing)))
        if result.weights is not None:
            weights.append(torch.nn.functional.pad(result.weights, (0, missing, 0, missing)))
    return Result(torch.cat(outputs), torch.cat(weights) if weights else None)


@contextmanager
def staying_in_float64() -> Iterator[None]:
    """Keeps libraries in float64 that cast to float32 for a softmax or a mask."""
    softmax = torch.nn.functional.softmax

    def without_type(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return softmax(x, dim=dim)

    with patch.object(torch.nn.functional, "softmax", without_type), patch.object(torch.Tensor, "float", lambda x: x):
        yield
