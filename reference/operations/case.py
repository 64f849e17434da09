"""A case of an operation, and what all cases share."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

MINUS_INFINITY = -math.inf

Tensors = dict[str, torch.Tensor]


@dataclass
class Case:
    name: str
    operation: str
    inputs: Tensors
    # Takes the inputs by name, in float64, and returns a tensor or a tuple of them.
    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    settings: dict = field(default_factory=dict)
    # Outputs without an upstream gradient, as when they are unused.
    unused: tuple[int, ...] = ()
    # Whether the function has a derivative at these inputs that finite differences can find.
    smooth: bool = True


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def draw(name: str, shapes: dict[str, tuple[int, ...]]) -> Tensors:
    draws = generator(name)
    return {part: torch.randn(shape, generator=draws) for part, shape in shapes.items()}


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax that gives zeros, without a gradient, where a row has only minus infinity."""
    empty = (x == MINUS_INFINITY).all(-1, keepdim=True)
    return torch.softmax(x.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
