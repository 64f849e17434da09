"""The random generator of configs, and how each model class of transformers is sampled."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig

Tensors = dict[str, torch.Tensor]
ConfigKwargs = dict[str, object]

ACTIVATIONS = ["gelu", "relu", "gelu_new", "silu", "gelu_pytorch_tanh", "gelu_fast", "swish", "sigmoid"]
UNSUPPORTED_ACTIVATIONS = ["tanh", "quick_gelu", "mish", "gelu_10", "relu2", "leaky_relu", "gelu_python"]


class Draws(random.Random):
    """A seeded generator. `include_unsupported`: also samples settings that attentive does not support."""

    def __init__(self, seed: str, deep: bool = False, include_unsupported: bool = False) -> None:
        super().__init__(seed)
        self.deep, self.include_unsupported = deep, include_unsupported

    def flip(self, chance: float = 0.5) -> bool:
        return self.random() < chance

    def unsupported(self, chance: float = 0.3) -> bool:
        """Whether to sample a value of a setting that attentive does not support."""
        sampled = self.random()  # Always, so that `include_unsupported` changes little else.
        return self.include_unsupported and sampled < chance

    def depth(self) -> int:
        return self.randint(8, 24) if self.deep else self.randint(1, 4)

    def heads(self, even: bool = False) -> tuple[int, int]:
        """The number of heads and their width: together at least 5, as a norm of fewer elements magnifies every error."""
        heads = self.choice([1, 2, 3, 4, 5, 8])
        widths = [4, 6, 8, 16] if even else [1, 2, 3, 5, 7, 8, 16]
        return heads, self.choice([it for it in widths if heads * it >= 5])

    def epsilon(self) -> float:
        return self.choice([1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 0.1])

    def activation(self) -> str:
        return self.choice(UNSUPPORTED_ACTIVATIONS) if self.unsupported() else self.choice(ACTIVATIONS)

    def vocabulary(self) -> int:
        return self.choice([self.randint(11, 40), self.randint(41, 300), 128])

    def max_positions(self) -> int:
        return self.randint(4, 64)

    def divisor(self, number: int) -> int:
        return self.choice([it for it in range(1, number + 1) if number % it == 0])

    def labels(self) -> int:
        return self.choice([1, 2, 3, 7, 12])

    def torch_seed(self) -> int:
        return self.randrange(2**31)


@dataclass(frozen=True)
class ModelClass:
    """A model class of transformers, and how its configs and inputs are sampled."""

    name: str
    config: Callable[[Draws], PretrainedConfig]
    inputs: Callable[[Draws, PretrainedConfig, bool], Tensors]
    #: Whether the last token is pooled: rows in which it is padding are not compared.
    pools_last: bool = False
    #: Whether rounding cannot change a discrete choice for these inputs; otherwise others are sampled.
    has_margin: Callable[[torch.nn.Module, Tensors], bool] | None = None


def with_two_labels(config: Callable[[Draws], PretrainedConfig]) -> Callable[[Draws], PretrainedConfig]:
    """Configs with two labels, for the start and the end of an answer."""

    def two(draws: Draws) -> PretrainedConfig:
        found = config(draws)
        found.num_labels = 2
        return found

    return two


def family(prefix: str, heads: list[str], config: Callable, inputs: Callable) -> list[ModelClass]:
    answers = with_two_labels(config)
    return [ModelClass(prefix + head, answers if head == ANSWERS else config, inputs) for head in heads]


ANSWERS = "ForQuestionAnswering"
TASKS = ["ForSequenceClassification", "ForTokenClassification", ANSWERS]
