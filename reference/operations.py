"""Makes fixtures/operations/golden.safetensors: what PyTorch computes for each operation of the room `tensor`.

A case is an operation with its settings, its inputs, what flows back into each output, and what PyTorch makes of them:
the outputs, and the gradient of every input. Inputs are float32 numbers, the arithmetic is float64, and the results are
rounded to float32 once, at the end. Every case draws from a seed of its own, made of its name, so that a new case leaves
the others as they are. Two runs write the same bytes.

Tensors are `CASE.input.NAME`, `CASE.output.0`, `CASE.upstream.0` and `CASE.gradient.NAME`. The settings are JSON under the
key `cases` of the file's metadata: one key, because safetensors writes several in no fixed order.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

FILE = Path(__file__).resolve().parent.parent / "fixtures" / "operations" / "golden.safetensors"
IGNORED = -100
MINUS_INFINITY = -math.inf

Tensors = dict[str, torch.Tensor]

ACTIVATIONS = {
    "relu": lambda x: F.relu(x),
    "gelu": lambda x: F.gelu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": lambda x: F.silu(x),
    "sigmoid": lambda x: torch.sigmoid(x),
}


@dataclass
class Case:
    name: str
    operation: str
    inputs: Tensors
    # Takes the inputs by name, in float64, and returns a tensor or a tuple of them.
    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    settings: dict = field(default_factory=dict)
    # Outputs into which nothing flows back, as when nobody reads them.
    unread: tuple[int, ...] = ()
    # Whether the function has a derivative at these inputs that finite differences can find.
    smooth: bool = True


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    families = [linears, sums_and_norms, activations, softmaxes, rotaries, embeddings, cross_entropies, attentions, weights]
    families += [log_sums, masked, linear_attentions, features]
    cases = [case for family in families for case in family()]
    assert len({case.name for case in cases}) == len(cases), "two cases have one name"
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
    upstream = [torch.zeros_like(it) if i in case.unread else it for i, it in enumerate(upstream)]
    loss = sum((output * it.double()).sum() for output, it in zip(outputs, upstream, strict=True))
    gradients = torch.autograd.grad(loss, list(leaves.values()))

    tensors = {f"input.{name}": tensor for name, tensor in case.inputs.items()}
    tensors |= {f"output.{i}": output for i, output in enumerate(outputs)}
    tensors |= {f"upstream.{i}": it for i, it in enumerate(upstream)}
    tensors |= {f"gradient.{name}": settled(it) for name, it in zip(leaves, gradients, strict=True)}
    for name in tensors.keys() - {f"input.{name}" for name in case.inputs}:
        assert tensors[name].isfinite().all(), f"{case.name}.{name} is not finite"
    return {f"{case.name}.{name}": tensor.detach().float().clone().contiguous() for name, tensor in tensors.items()}


def settled(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that is zero in exact arithmetic is stored as zero, not as what rounding left of it."""
    return torch.zeros_like(gradient) if gradient.abs().max() < 1e-12 else gradient


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def draw(name: str, shapes: dict[str, tuple[int, ...]]) -> Tensors:
    draws = generator(name)
    return {part: torch.randn(shape, generator=draws) for part, shape in shapes.items()}


def linears() -> Iterator[Case]:
    # Tiles of the product are six rows by sixteen or thirty-two columns; up to four rows have a kernel of their own.
    for name, x, output, bias in [
        ("one_number", (1, 1), 1, True),
        ("one_row", (1, 33), 37, True),
        ("few_rows", (4, 17), 9, False),
        ("one_more_than_few", (5, 17), 31, True),
        ("one_tile", (6, 16), 32, True),
        ("past_a_tile", (7, 5), 33, True),
        ("past_two_tiles", (13, 3), 65, False),
        ("primes", (2, 7, 13), 11, True),
        ("one_output", (3, 5, 7), 1, True),
        ("one_input", (5, 1), 7, True),
    ]:
        yield linear(f"linear.{name}", "linear", x, output, bias, {}, lambda y: y)
    for kind, function in ACTIVATIONS.items():
        settings = {"activation": kind}
        for name, x, output, bias in [("bias", (2, 5, 7), 9, True), ("plain", (7, 3), 17, False), ("row", (1, 5), 33, True)]:
            name = f"activated_linear.{kind}.{name}"
            yield linear(name, "activated_linear", x, output, bias, settings, function)
        for gated, title in [(False, "plain"), (True, "gated")]:
            name = f"feed_forward.{title}.{kind}"
            first = ["gate", "up"] if gated else ["up"]
            yield feed_forward(f"{name}.biases", kind, (2, 5, 7), 9, 5, gated, [*first, "down"])
            yield feed_forward(f"{name}.no_biases", kind, (7, 3), 17, 2, gated, [])
            yield feed_forward(f"{name}.one_row", kind, (1, 5), 33, 7, gated, first)
            yield feed_forward(f"{name}.one_number", kind, (1, 1), 1, 1, gated, [*first, "down"])
    # Every other choice of biases, around the few rows and the tiles of the two products.
    for name, x, hidden, output, biases in [
        ("few_rows", (4, 17), 9, 31, ["up"]),
        ("one_more_than_few", (5, 5), 31, 17, ["down"]),
        ("one_tile", (6, 16), 32, 16, ["up", "down"]),
        ("past_a_tile", (7, 5), 33, 17, ["up"]),
        ("one_hidden", (5, 7), 1, 3, ["up", "down"]),
        ("one_input", (3, 5, 1), 7, 11, ["down"]),
        ("one_output", (2, 3, 13), 11, 1, ["up", "down"]),
    ]:
        yield feed_forward(f"feed_forward.plain.gelu.{name}", "gelu", x, hidden, output, False, biases)
    for name, x, hidden, output, biases in [
        ("few_rows", (4, 17), 9, 31, ["gate"]),
        ("one_more_than_few", (5, 5), 31, 17, ["up"]),
        ("one_tile", (6, 16), 32, 16, ["down"]),
        ("past_a_tile", (7, 5), 33, 17, ["gate", "down"]),
        ("one_hidden", (5, 7), 1, 3, ["up", "down"]),
        ("one_input", (3, 5, 1), 7, 11, ["gate", "up"]),
        ("one_output", (2, 3, 13), 11, 1, ["gate", "up", "down"]),
    ]:
        yield feed_forward(f"feed_forward.gated.silu.{name}", "silu", x, hidden, output, True, biases)
    yield three_linears("three_linears.plain", (7, 5), (9, 9, 9), [])
    yield three_linears("three_linears.biases", (2, 3, 11), (8, 8, 8), [0, 1, 2])
    yield three_linears("three_linears.grouped", (2, 5, 8), (12, 4, 4), [0, 2])
    yield three_linears("three_linears.one_row", (1, 13), (33, 17, 1), [1])
    yield three_linears("three_linears.second_unread", (5, 7), (5, 7, 3), [0, 1, 2], unread=(1,))
    yield three_linears("three_linears.only_third_read", (3, 7), (5, 7, 3), [2], unread=(0, 1))


def linear(name: str, operation: str, x: tuple, output: int, bias: bool, settings: dict, function: Callable) -> Case:
    shapes = {"x": x, "weight": (output, x[-1])}
    if bias:
        shapes["bias"] = (output,)


    def mapped(x, weight, bias=None):
        return function(F.linear(x, weight, bias))

    return Case(name, operation, draw(name, shapes), mapped, settings)


def feed_forward(name: str, kind: str, x: tuple, hidden: int, output: int, gated: bool, biases: list[str]) -> Case:
    maps = {"gate": (hidden, x[-1])} if gated else {}
    maps |= {"up": (hidden, x[-1]), "down": (output, hidden)}
    shapes = {"x": x, **maps} | {f"{map}_bias": maps[map][:1] for map in biases}

    def function(x, up, down, gate=None, gate_bias=None, up_bias=None, down_bias=None):
        activation, first = ACTIVATIONS[kind], F.linear(x, up, up_bias)
        between = activation(first) if gate is None else activation(F.linear(x, gate, gate_bias)) * first
        return F.linear(between, down, down_bias)

    return Case(name, "feed_forward", draw(name, shapes), function, {"activation": kind})


def three_linears(name: str, x: tuple, outputs: tuple, biases: list[int], unread: tuple[int, ...] = ()) -> Case:
    shapes = {"x": x}
    shapes |= {f"weight{i}": (output, x[-1]) for i, output in enumerate(outputs)}
    shapes |= {f"bias{i}": (outputs[i],) for i in biases}

    def function(x, **maps):
        return tuple(F.linear(x, maps[f"weight{i}"], maps.get(f"bias{i}")) for i in range(3))

    return Case(name, "three_linears", draw(name, shapes), function, unread=unread)


def sums_and_norms() -> Iterator[Case]:
    for name, shape in [("one_number", (1, 1)), ("primes", (2, 3, 17)), ("one_row", (1, 65))]:
        inputs = draw(f"add.{name}", {"x": shape, "y": shape})
        yield Case(f"add.{name}", "add", inputs, lambda x, y: x + y)
    for kind, bias in [("layer", True), ("layer", False), ("rms", False)]:
        title = kind + ("" if bias or kind == "rms" else "_without_bias")
        # One number is divided by its own size: with a small epsilon, its gradient is what rounding leaves of a difference.
        yield norm(f"norm.{title}.one_number", "norm", kind, (1, 1), bias, epsilon=0.5)
        yield norm(f"norm_of_sum.{title}.one_number", "norm_of_sum", kind, (1, 1), bias, epsilon=0.5)
        for name, shape in [
            ("one_row", (1, 31)),
            ("primes", (2, 3, 19)),
            ("vectors", (5, 16)),
            ("past_vectors", (3, 65)),
        ]:
            yield norm(f"norm.{title}.{name}", "norm", kind, shape, bias)
        yield norm(f"norm_beside.{title}.primes", "norm_beside", kind, (2, 3, 17), bias)
        yield norm(f"norm_beside.{title}.input_unread", "norm_beside", kind, (5, 7), bias, unread=(0,))
        yield norm(f"norm_beside.{title}.norm_unread", "norm_beside", kind, (5, 7), bias, unread=(1,))
        yield norm(f"norm_of_sum.{title}.primes", "norm_of_sum", kind, (2, 3, 17), bias)
        yield norm(f"norm_of_sum.{title}.past_vectors", "norm_of_sum", kind, (3, 33), bias)
    for kind in ["layer", "rms"]:
        case = norm(f"norm.{kind}.far_from_zero", "norm", kind, (4, 23), False, epsilon=1e-6)
        case.inputs["x"] += 4
        yield case
        # Nothing but epsilon is left to divide by.
        case = norm(f"norm.{kind}.a_row_of_zeros", "norm", kind, (3, 11), False)
        case.inputs["x"][1] = 0
        yield case


def norm(
    name: str, operation: str, kind: str, shape: tuple, bias: bool, epsilon: float = 1e-5, unread: tuple[int, ...] = ()
) -> Case:
    shapes = {"x": shape, "weight": shape[-1:]}
    if bias:
        shapes["bias"] = shape[-1:]
    if operation == "norm_of_sum":
        shapes["branch"] = shape

    def normed(x, weight, bias):
        if kind == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, bias, epsilon)
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)

    def function(x, weight, bias=None, branch=None):
        x = x if branch is None else x + branch
        y = normed(x, weight, bias)
        return (x, y) if operation == "norm_beside" else y

    settings = {"kind": kind, "epsilon": epsilon}
    return Case(name, operation, draw(name, shapes), function, settings, unread)


def activations() -> Iterator[Case]:
    for kind, function in ACTIVATIONS.items():
        settings = {"activation": kind}
        for name, shape in [("one_number", (1, 1)), ("primes", (5, 13)), ("past_vectors", (2, 3, 23))]:
            name = f"activate.{kind}.{name}"
            yield Case(name, "activate", draw(name, {"x": shape}), function, settings)
            name = name.replace("activate", "gated")
            inputs = draw(name, {"gate": shape, "up": shape})
            yield Case(name, "gated", inputs, lambda gate, up, function=function: function(gate) * up, settings)
        # Far out, where the function is flat or a line; between the points of the grid lies zero, and ReLU's corner.
        tails = torch.linspace(-30, 30, 62).reshape(2, 31)
        yield Case(f"activate.{kind}.tails", "activate", {"x": tails}, function, settings)
    at_zero = torch.tensor([[0.0, -0.0, 1.0], [-1.0, 0.0, 2.0]])
    yield Case(
        "activate.relu.at_zero", "activate", {"x": at_zero}, ACTIVATIONS["relu"], {"activation": "relu"}, smooth=False
    )


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax that gives zeros, and sends nothing back, where a row is nothing but minus infinity."""
    empty = (x == MINUS_INFINITY).all(-1, keepdim=True)
    return torch.softmax(x.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)


def softmaxes() -> Iterator[Case]:
    for name, shape in [("one_number", (1, 1)), ("primes", (2, 3, 13)), ("past_vectors", (5, 33)), ("one_column", (4, 1))]:
        yield Case(f"softmax.{name}", "softmax", draw(f"softmax.{name}", {"x": shape}), softmax)
    inputs = draw("softmax.masked", {"x": (5, 7)})
    inputs["x"][0, 3:] = MINUS_INFINITY
    inputs["x"][2] = MINUS_INFINITY
    inputs["x"][4, :6] = MINUS_INFINITY
    yield Case("softmax.masked", "softmax", inputs, softmax)
    inputs = draw("softmax.large", {"x": (3, 11)})
    inputs["x"] *= 10
    inputs["x"][1] += 1000
    yield Case("softmax.large", "softmax", inputs, softmax)


def rotaries() -> Iterator[Case]:
    # Angles in float32 are only as exact as position · frequency. Where positions are large, a theta is chosen whose
    # frequencies are powers of two, so that the angles are exact.
    for name, shape, theta, positions in [
        ("one_position", (1, 1, 1, 2), 10000.0, [[3]]),
        ("shared", (2, 3, 5, 8), 10000.0, [[0, 1, 2, 3, 4]]),
        ("own_positions", (2, 1, 4, 6), 100.0, [[0, 0, 1, 2], [7, 8, 5, 5]]),
        ("past_vectors", (1, 2, 3, 34), 500000.0, [[2, 3, 4]]),
        ("far", (2, 3, 3, 8), 16.0, [[1000, 1001, 1002], [0, 4096, 5003]]),
    ]:
        name = f"rotary.{name}"

        def function(x, theta=theta, positions=positions):
            return rotated(x, torch.tensor(positions, dtype=torch.float64), theta)

        settings = {"theta": theta, "positions": positions}
        yield Case(name, "rotary", draw(name, {"x": shape}), function, settings)


def rotated(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """As transformers does it: the pairs are (i, i + head_width / 2)."""
    width = x.shape[-1]
    frequencies = theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = (positions[:, :, None] * frequencies).repeat(1, 1, 2)[:, None]
    first, second = x[..., : width // 2], x[..., width // 2 :]
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def embeddings() -> Iterator[Case]:
    for name, table, ids in [
        ("one_number", (1, 1), [[0]]),
        ("repeated", (6, 5), [[0, 5, 5], [2, 0, 5]]),
        ("one_row_of_many", (13, 17), [[12]]),
        ("past_vectors", (3, 33), [[2, 1, 2, 2, 2, 2, 0]]),
    ]:
        name = f"embedding.{name}"

        def function(table, ids=ids):
            return F.embedding(torch.tensor(ids), table)

        yield Case(name, "embedding", draw(name, {"table": table}), function, {"ids": ids})


def cross_entropies() -> Iterator[Case]:
    for smoothing in [0.0, 0.1]:
        title = "smoothed" if smoothing else "plain"
        for name, vocabulary, targets in [
            ("one_row", 7, [3]),
            ("primes", 11, [3, 0, 10, 3, 5]),
            ("ignored", 13, [IGNORED, 12, IGNORED, 0, 4, 4, IGNORED]),
            ("past_vectors", 67, [66, 0, IGNORED, 33]),
            ("all_ignored", 5, [IGNORED, IGNORED, IGNORED]),
            ("one_word", 1, [0, 0, IGNORED]),
        ]:
            yield cross_entropy(f"cross_entropy.{title}.{name}", vocabulary, targets, smoothing)
    yield cross_entropy("cross_entropy.all_smoothed", 9, [3, 8], 1.0)
    # Words that cannot come: their logits are minus infinity.
    case = cross_entropy("cross_entropy.masked", 9, [3, 8, IGNORED, 1], 0.0)
    case.inputs["logits"][0, 4:] = MINUS_INFINITY
    case.inputs["logits"][1, :8] = MINUS_INFINITY
    case.inputs["logits"][2, 5] = MINUS_INFINITY
    yield case
    # Far from zero, as GPT-2's are.
    case = cross_entropy("cross_entropy.far_from_zero", 11, [3, 0, IGNORED, 5], 0.1)
    case.inputs["logits"] = case.inputs["logits"] * 5 - 60
    yield case


def cross_entropy(name: str, vocabulary: int, targets: list[int], smoothing: float) -> Case:
    counted = sum(target != IGNORED for target in targets)

    def function(logits):
        # By sum and division: PyTorch's own mean is not a number where all targets are ignored; ours is zero.
        loss = F.cross_entropy(
            logits, torch.tensor(targets), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
        )
        return (loss / max(counted, 1)).reshape(1)

    inputs = draw(name, {"logits": (len(targets), vocabulary)})
    return Case(name, "cross_entropy", inputs, function, {"targets": targets, "label_smoothing": smoothing})


@dataclass
class Heads:
    """The sizes of an attention, and who may attend to whom in it."""

    queries: int
    keys: int
    batch: int = 1
    heads: int = 2
    key_value_heads: int = 2
    width: int = 4
    value_width: int = 4
    scale: float = 0.5
    causal: bool = False
    window: int | None = None
    ranges: list[list[int]] | None = None
    # The size of a block and, for each head or for all, for each block of queries, the blocks of keys that it sees.
    blocks: tuple[int, list[list[list[int]]]] | None = None
    # Sequences and heads of the bias, each one or all of them.
    bias: tuple[int, int] | None = None
    # What the numbers of the bias are of: "pairs", "keys" or "distances" (which all sequences share).
    bias_of: str = "pairs"
    # (query, key) pairs whose bias is minus infinity.
    forbidden: list[tuple[int, int]] = field(default_factory=list)
    # Keys, or places of distances, whose bias is minus infinity, of the first sequence and head.
    forbidden_places: list[int] = field(default_factory=list)

    def settings(self) -> dict:
        settings = {"scale": self.scale, "causal": self.causal, "window": self.window, "keys": self.ranges}
        if self.blocks:
            settings["blocks"] = {"block": self.blocks[0], "rows": self.blocks[1]}
        return settings

    def inputs(self, name: str, values: bool) -> Tensors:
        shapes = {
            "query": (self.batch, self.heads, self.queries, self.width),
            "key": (self.batch, self.key_value_heads, self.keys, self.width),
        }
        if values:
            shapes["value"] = (self.batch, self.key_value_heads, self.keys, self.value_width)
        if self.bias:
            shapes["bias"] = {
                "pairs": (*self.bias, self.queries, self.keys),
                "keys": (*self.bias, self.keys),
                "distances": (self.bias[1], self.queries + self.keys - 1),
            }[self.bias_of]
        inputs = draw(name, shapes)
        for place in self.forbidden_places:
            inputs["bias"].reshape(-1, shapes["bias"][-1])[0, place] = MINUS_INFINITY
        for query, key in self.forbidden:
            inputs["bias"][:, :, query, key] = MINUS_INFINITY
        return inputs

    def allowed(self) -> torch.Tensor:
        """Pairs that may meet, `[batch, heads or 1, queries, keys]`. The queries are the last of the keys' positions."""
        query = torch.arange(self.queries)[:, None] + self.keys - self.queries
        key = torch.arange(self.keys)[None, :]
        allowed = torch.ones(self.batch, 1, self.queries, self.keys, dtype=torch.bool)
        if self.causal:
            allowed &= key <= query
        if self.window is not None:
            allowed &= (key - query).abs() < self.window
        for row, (start, end) in enumerate(self.ranges or []):
            allowed[row] &= (start <= key) & (key < end)
        if self.blocks:
            block, heads = self.blocks
            listed = torch.zeros(len(heads), self.queries, self.keys, dtype=torch.bool)
            for head, rows in enumerate(heads):
                for row, columns in enumerate(rows):
                    for column in columns:
                        here = slice(row * block, (row + 1) * block), slice(column * block, (column + 1) * block)
                        listed[head][here] = True
            allowed = allowed & listed
        return allowed

    def of_pairs(self, bias: torch.Tensor) -> torch.Tensor:
        """The bias of each pair, `[batch or 1, heads or 1, queries or 1, keys]`."""
        if self.bias_of == "keys":
            return bias[:, :, None]
        if self.bias_of == "distances":
            query = torch.arange(self.queries)[:, None]
            key = torch.arange(self.keys)[None, :]
            return bias[:, key - query + self.queries - 1][None]
        return bias

    def scores(self, query, key, bias=None) -> torch.Tensor:
        key = key.repeat_interleave(self.heads // self.key_value_heads, dim=1)
        scores = query @ key.transpose(2, 3) * self.scale
        scores = scores if bias is None else scores + self.of_pairs(bias)
        return scores.masked_fill(~self.allowed(), MINUS_INFINITY)

    def weights(self, query, key, bias=None) -> torch.Tensor:
        return softmax(self.scores(query, key, bias))

    def attention(self, query, key, value, bias=None) -> torch.Tensor:
        """PyTorch's own attention, which must agree with the weights above."""
        mask = torch.zeros(1, 1, self.queries, self.keys, dtype=torch.float64)
        mask = mask if bias is None else mask + self.of_pairs(bias)
        mask = mask.masked_fill(~self.allowed(), MINUS_INFINITY)
        context = F.scaled_dot_product_attention(query, key, value, mask, scale=self.scale, enable_gqa=True)
        value = value.repeat_interleave(self.heads // self.key_value_heads, dim=1)
        torch.testing.assert_close(context, self.weights(query, key, bias) @ value)
        return context

    def attention_with_log_sums(self, query, key, value, bias=None) -> tuple[torch.Tensor, torch.Tensor]:
        return self.attention(query, key, value, bias), self.scores(query, key, bias).logsumexp(-1)


def attentions() -> Iterator[Case]:
    for name, heads in {
        "one_number": Heads(1, 1, heads=1, key_value_heads=1, width=1, value_width=1),
        "plain": Heads(7, 7, batch=2, heads=3, key_value_heads=3, width=5, value_width=5),
        "causal": Heads(9, 9, batch=2, causal=True),
        "grouped": Heads(5, 5, batch=2, heads=6, causal=True),
        "one_key_value_head": Heads(7, 7, heads=5, key_value_heads=1),
        "narrow_values": Heads(6, 6, width=8, value_width=3, causal=True),
        "wide_values": Heads(6, 6, key_value_heads=1, width=3, value_width=11),
        "odd_widths": Heads(5, 5, heads=1, key_value_heads=1, width=17, value_width=13, scale=0.25),
        "past_vectors": Heads(3, 5, heads=1, key_value_heads=1, width=33, value_width=65, scale=0.17),
        "more_keys": Heads(5, 11, batch=2),
        "more_queries": Heads(11, 3, heads=4),
        "causal_continued": Heads(3, 11, heads=4, causal=True),
        "one_query": Heads(1, 13, batch=2, heads=4, causal=True),
        "one_key": Heads(5, 1),
        "padded": Heads(7, 7, batch=3, ranges=[[0, 7], [0, 4], [3, 6]]),
        "causal_padded": Heads(9, 9, batch=2, heads=4, causal=True, ranges=[[0, 5], [4, 9]]),
        "nothing_but_padding": Heads(3, 5, batch=2, ranges=[[2, 2], [0, 5]]),
        "window": Heads(9, 9, causal=True, window=3),
        "window_both_ways": Heads(9, 9, window=2),
        "window_of_one": Heads(5, 5, window=1),
        "window_beyond": Heads(5, 5, causal=True, window=100),
        "all_masks": Heads(4, 9, batch=2, heads=4, causal=True, window=4, ranges=[[0, 9], [5, 8]]),
        "bias": Heads(5, 7, batch=2, bias=(2, 2)),
        "bias_of_heads": Heads(7, 7, batch=3, heads=4, causal=True, bias=(1, 4)),
        "bias_of_sequences": Heads(3, 5, batch=2, heads=4, bias=(2, 1)),
        "one_bias": Heads(5, 5, batch=2, window=2, bias=(1, 1)),
        "bias_padded": Heads(5, 5, batch=2, bias=(1, 2), ranges=[[1, 5], [0, 3]]),
        # The first query has nothing left, though no mask hides anything from it.
        "bias_that_forbids": Heads(4, 3, bias=(1, 1), forbidden=[(0, 0), (0, 1), (0, 2), (2, 1)]),
        "bias_of_keys": Heads(5, 7, batch=2, heads=4, bias=(2, 4), bias_of="keys"),
        "bias_of_keys_shared": Heads(7, 5, batch=3, causal=True, bias=(1, 1), bias_of="keys"),
        "bias_of_keys_of_sequences": Heads(1, 9, batch=2, heads=4, bias=(2, 1), bias_of="keys"),
        "bias_of_keys_that_forbids": Heads(5, 6, batch=2, bias=(2, 1), bias_of="keys", forbidden_places=[0, 2, 5]),
        # All keys of the first sequence are forbidden.
        "bias_of_keys_that_forbids_all": Heads(4, 3, batch=2, bias=(2, 1), bias_of="keys", forbidden_places=[0, 1, 2]),
        "bias_of_keys_past_a_block": Heads(
            49, 129, heads=1, key_value_heads=1, width=2, value_width=2, bias=(1, 1), bias_of="keys"
        ),
        "bias_of_distances": Heads(7, 7, batch=2, heads=4, causal=True, bias=(1, 4), bias_of="distances"),
        "bias_of_distances_shared": Heads(5, 11, batch=2, bias=(1, 1), bias_of="distances"),
        "bias_of_distances_more_queries": Heads(11, 3, batch=2, bias=(1, 2), bias_of="distances"),
        "bias_of_distances_one_query": Heads(1, 13, heads=4, causal=True, bias=(1, 4), bias_of="distances"),
        "bias_of_distances_padded": Heads(
            5, 5, batch=2, bias=(1, 2), bias_of="distances", window=3, ranges=[[1, 5], [0, 3]]
        ),
        # The last query may go no distance.
        "bias_of_distances_that_forbids": Heads(
            5, 3, heads=1, key_value_heads=1, bias=(1, 1), bias_of="distances", forbidden_places=[0, 1, 2]
        ),
        "bias_of_distances_past_a_block": Heads(
            49, 129, heads=1, key_value_heads=1, width=2, value_width=2, bias=(1, 1), bias_of="distances"
        ),
        "blocks": Heads(11, 11, batch=2, blocks=(3, [[[0], [0, 1, 2], [1, 3], [0, 2, 3]]])),
        "blocks_of_heads": Heads(
            7, 9, heads=4, blocks=(4, [[[0, 2], [1]], [[0], [1, 2]], [[0, 1, 2], [2]], [[1], [0]]])
        ),
        "blocks_of_one": Heads(3, 5, heads=1, key_value_heads=1, blocks=(1, [[[0, 2, 3], [1], [0, 4]]])),
        "blocks_under_all_masks": Heads(
            8, 8, batch=2, causal=True, window=5, ranges=[[0, 8], [2, 7]], blocks=(2, [[[0], [0, 1], [0, 2], [0, 2, 3]]])
        ),
        "blocks_with_a_bias": Heads(
            7, 7, bias=(1, 2), bias_of="distances", blocks=(3, [[[0, 2], [1], [0, 1, 2]]])
        ),
        # The second block of queries sees nothing.
        "blocks_that_list_nothing": Heads(5, 6, blocks=(2, [[[0, 1], [], [2]]])),
        "blocks_past_a_block": Heads(
            67,
            131,
            heads=1,
            key_value_heads=1,
            width=2,
            value_width=3,
            blocks=(16, [[[0, 1, 8], [0, 5], [2, 3, 4, 7], [0, 3, 8], [6]]]),
        ),
        "scale_of_one": Heads(5, 5, scale=1.0),
        "large_scores": Heads(5, 7, scale=4.0),
        "scale_of_zero": Heads(3, 5, scale=0.0),
        # Blocks are 48 queries by 128 keys.
        "past_a_block": Heads(49, 129, heads=1, key_value_heads=1, width=3, value_width=2, causal=True),
        "before_a_block": Heads(47, 127, heads=2, key_value_heads=1, width=2, value_width=3),
        "window_over_blocks": Heads(131, 131, heads=1, key_value_heads=1, width=2, value_width=2, causal=True, window=5),
    }.items():
        name = f"attention.{name}"
        yield Case(name, "attention", heads.inputs(name, values=True), heads.attention, heads.settings())


def log_sums() -> Iterator[Case]:
    # Log-sums of minus infinity cannot be stored: every query sees something.
    for name, heads, unread in [
        ("one_number", Heads(1, 1, heads=1, key_value_heads=1, width=1, value_width=1), ()),
        ("plain", Heads(7, 5, batch=2, heads=3, key_value_heads=3, width=5, value_width=3), ()),
        ("grouped", Heads(9, 9, batch=2, heads=4, causal=True), ()),
        ("one_query", Heads(1, 13, batch=2, heads=4, causal=True), ()),
        ("all_masks", Heads(4, 9, batch=2, heads=4, causal=True, window=4, ranges=[[0, 9], [3, 8]]), ()),
        ("bias", Heads(5, 7, batch=2, bias=(1, 2)), ()),
        ("bias_of_keys", Heads(5, 6, batch=2, bias=(2, 1), bias_of="keys", forbidden_places=[0, 2, 5]), ()),
        ("bias_of_distances", Heads(7, 7, heads=4, causal=True, bias=(1, 4), bias_of="distances"), ()),
        ("large_scores", Heads(5, 7, scale=4.0), ()),
        ("past_a_block", Heads(49, 129, heads=1, key_value_heads=1, width=3, value_width=2, causal=True), ()),
        ("context_unread", Heads(5, 7, batch=2, heads=4), (0,)),
        ("log_sums_unread", Heads(5, 7, batch=2, heads=4), (1,)),
    ]:
        name = f"attention_with_log_sums.{name}"
        inputs = heads.inputs(name, values=True)
        function = heads.attention_with_log_sums
        yield Case(name, "attention_with_log_sums", inputs, function, heads.settings(), unread)
    for name, parts, sizes, unseen in [
        ("one_part", 1, (2, 3, 5, 4), []),
        ("two_parts", 2, (2, 3, 5, 4), []),
        ("one_number", 2, (1, 1, 1, 1), []),
        ("four_parts", 4, (1, 2, 7, 3), []),
        # (part, query) of which nothing was seen.
        ("parts_that_saw_nothing", 3, (2, 2, 5, 3), [(0, 0), (1, 0), (2, 1), (0, 3)]),
    ]:
        name = f"merge_attended.{name}"
        shapes = {f"context{part}": sizes for part in range(parts)}
        shapes |= {f"log_sums{part}": sizes[:3] for part in range(parts)}
        inputs = draw(name, shapes)
        for part, query in unseen:
            inputs[f"log_sums{part}"][:, :, query] = MINUS_INFINITY
            inputs[f"context{part}"][:, :, query] = 0

        def function(parts=parts, **inputs):
            log_sums = torch.stack([inputs[f"log_sums{part}"] for part in range(parts)])
            contexts = torch.stack([inputs[f"context{part}"] for part in range(parts)])
            shares = torch.softmax(log_sums, 0)
            return (contexts * shares[..., None]).sum(0), log_sums.logsumexp(0)

        yield Case(name, "merge_attended", inputs, function)


def weights() -> Iterator[Case]:
    for name, heads in {
        "one_number": Heads(1, 1, heads=1, key_value_heads=1, width=1),
        "plain": Heads(5, 7, batch=2, heads=3, key_value_heads=3, width=5),
        "grouped": Heads(5, 5, batch=2, heads=4, causal=True),
        "window": Heads(7, 7, causal=True, window=3),
        "padded": Heads(5, 5, batch=2, causal=True, ranges=[[0, 3], [2, 5]]),
        "bias": Heads(5, 7, batch=2, heads=4, bias=(1, 4)),
        "bias_that_forbids": Heads(4, 3, bias=(1, 1), forbidden=[(0, 0), (0, 1), (0, 2), (2, 1)]),
        "bias_of_keys": Heads(5, 7, batch=2, heads=4, bias=(2, 1), bias_of="keys", forbidden_places=[0, 2]),
        "bias_of_distances": Heads(5, 7, batch=2, heads=4, causal=True, bias=(1, 4), bias_of="distances"),
        "blocks": Heads(5, 6, batch=2, heads=4, causal=True, blocks=(2, [[[0, 1], [], [0, 2]]])),
        "one_query": Heads(1, 13, batch=2, heads=4, causal=True),
        "past_a_block": Heads(49, 129, heads=1, key_value_heads=1, width=3, causal=True),
    }.items():
        name = f"attention_weights.{name}"
        yield Case(name, "attention_weights", heads.inputs(name, values=False), heads.weights, heads.settings())
    for name, heads, shared in [("one_number", 1, 1), ("plain", 3, 3), ("grouped", 6, 2)]:
        name = f"apply_weights.{name}"
        batch, queries, keys, width = (1, 1, 1, 1) if heads == 1 else (2, 5, 7, 3)
        inputs = draw(name, {"weights": (batch, heads, queries, keys), "value": (batch, shared, keys, width)})

        def function(weights, value, repeats=heads // shared):
            return weights @ value.repeat_interleave(repeats, dim=1)

        yield Case(name, "apply_weights", inputs, function)


def masked() -> Iterator[Case]:
    for name, heads in {
        "one_number": Heads(1, 1, heads=1, scale=1.0),
        "plain": Heads(5, 7, batch=2, heads=3, scale=1.0),
        "causal": Heads(5, 5, batch=2, scale=1.0, causal=True),
        "causal_continued": Heads(3, 11, heads=4, scale=1.0, causal=True),
        "window": Heads(7, 7, scale=1.0, causal=True, window=3),
        "padded": Heads(5, 5, batch=3, scale=1.0, ranges=[[0, 5], [0, 3], [2, 4]]),
        "nothing_but_padding": Heads(3, 5, batch=2, scale=1.0, causal=True, ranges=[[2, 2], [4, 5]]),
    }.items():
        name = f"masked_softmax.{name}"
        inputs = draw(name, {"scores": (heads.batch, heads.heads, heads.queries, heads.keys)})

        def function(scores, heads=heads):
            return softmax(scores.masked_fill(~heads.allowed(), MINUS_INFINITY))

        yield Case(name, "masked_softmax", inputs, function, heads.settings())
def linear_attentions() -> Iterator[Case]:
    for name, heads, has_start in [
        ("one_number", Heads(1, 1, heads=1, key_value_heads=1, width=1, value_width=1), False),
        ("plain", Heads(7, 7, batch=2, heads=3, key_value_heads=3, width=5, value_width=5), False),
        ("causal", Heads(9, 9, batch=2, causal=True), False),
        ("grouped", Heads(5, 5, batch=2, heads=6, causal=True), False),
        ("one_key_value_head", Heads(7, 7, heads=5, key_value_heads=1), False),
        ("odd_widths", Heads(7, 7, heads=1, key_value_heads=1, width=17, value_width=13, causal=True), False),
        ("more_keys", Heads(5, 11, batch=2), False),
        ("causal_continued", Heads(3, 11, heads=4, causal=True), False),
        ("more_queries", Heads(7, 3, heads=4, causal=True), False),
        ("padded", Heads(7, 7, batch=3, ranges=[[0, 7], [0, 4], [3, 6]]), False),
        ("causal_padded", Heads(9, 9, batch=2, heads=4, causal=True, ranges=[[0, 5], [4, 9]]), False),
        ("nothing_but_padding", Heads(3, 5, batch=2, ranges=[[2, 2], [0, 5]]), False),
        ("from_a_state", Heads(5, 5, batch=2, heads=4, causal=True), True),
        ("one_query_from_a_state", Heads(1, 1, batch=2, heads=4, causal=True), True),
        ("both_ways_from_a_state", Heads(3, 5, batch=2, ranges=[[1, 5], [0, 2]]), True),
        # Chunks are 48 queries.
        ("past_a_chunk", Heads(49, 49, heads=2, key_value_heads=1, width=3, value_width=2, causal=True), False),
        ("before_a_chunk", Heads(47, 47, heads=1, key_value_heads=1, width=2, value_width=3, causal=True), True),
    ]:
        yield linear_attention(f"linear_attention.{name}", heads, has_start)


def linear_attention(name: str, heads: Heads, has_start: bool) -> Case:
    inputs = heads.inputs(name, values=True)
    # Features are positive.
    inputs |= {part: inputs[part].abs() + 0.1 for part in ["query", "key"]}
    size = (heads.batch, heads.key_value_heads, heads.width)
    start = draw(f"{name} start", {"sums": (*size, heads.value_width), "totals": size})
    start["totals"] = start["totals"].abs() + 0.1
    if not has_start:
        start = {part: torch.zeros_like(it) for part, it in start.items()}
    sums, totals = start["sums"].double(), start["totals"].double()

    def function(query, key, value):
        repeats = heads.heads // heads.key_value_heads
        repeated = [it.repeat_interleave(repeats, dim=1) for it in (key, value, sums, totals)]
        products = (query @ repeated[0].transpose(2, 3)).masked_fill(~heads.allowed(), 0.0)
        above = products @ repeated[1] + query @ repeated[2]
        below = products.sum(-1, keepdim=True) + query @ repeated[3][..., None]
        empty = below == 0
        context = (above / below.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)
        real = torch.ones(heads.batch, 1, heads.keys, 1, dtype=torch.float64)
        for row, (first, end) in enumerate(heads.ranges or []):
            real[row, :, :first] = 0
            real[row, :, end:] = 0
        key = key * real
        return context, sums + key.transpose(2, 3) @ value, totals + key.sum(2)

    numbers = {part: it.flatten().tolist() for part, it in start.items()} if has_start else None
    settings = {"causal": heads.causal, "keys": heads.ranges, "start": numbers}
    # A state carries no gradient.
    return Case(name, "linear_attention", inputs, function, settings, unread=(1, 2))


FEATURE_MAPS = {
    "elu_plus_one": lambda x: F.elu(x) + 1,
    "relu": lambda x: F.relu(x) + 1e-6,
    "exp": torch.exp,
    "softplus": F.softplus,
}


def features() -> Iterator[Case]:
    for kind, function in FEATURE_MAPS.items():
        for name, shape in [("one_number", (1, 1, 1, 1)), ("primes", (2, 3, 5, 7)), ("past_vectors", (1, 2, 3, 23))]:
            name = f"positive_features.{kind}.{name}"
            yield Case(name, "positive_features", draw(name, {"x": shape}), function, {"map": kind})
        # Far out on both sides; between the points of the grid lies zero.
        tails = torch.linspace(-12, 12, 62).reshape(1, 1, 2, 31)
        name = f"positive_features.{kind}.tails"
        yield Case(name, "positive_features", {"x": tails}, function, {"map": kind})
    for stabilizer in ["row_maximum", "keys_maximum", "constant"]:
        for name, x, count in [
            ("one_number", (1, 1, 1, 1), 1),
            ("primes", (2, 3, 5, 7), 11),
            ("past_vectors", (1, 2, 3, 17), 33),
            ("long", (1, 1, 50, 4), 6),
        ]:
            name = f"random_features.{stabilizer}.{name}"
            inputs = draw(name, {"x": x, "projection": (count, x[-1])})
            # The maxima are detached, so finite differences see another slope.
            smooth = stabilizer == "constant"
            function = random_features(stabilizer)
            settings = {"stabilizer": stabilizer}
            yield Case(name, "random_features", inputs, function, settings, smooth=smooth)


def random_features(stabilizer: str) -> Callable[..., torch.Tensor]:
    """As `softmax_kernel` of the PyPI package performer-pytorch 1.1.4, which has the first two stabilizers."""

    def function(x, projection):
        normalizer = x.shape[-1] ** -0.25
        scores = (normalizer * x) @ projection.T
        half = (x**2).sum(-1, keepdim=True) / 2 * normalizer**2
        axes = {"row_maximum": (-1,), "keys_maximum": (-1, -2), "constant": None}[stabilizer]
        most = 0.0 if axes is None else scores.amax(axes, keepdim=True).detach()
        return projection.shape[0] ** -0.5 * (torch.exp(scores - half - most) + 1e-4)

    return function


if __name__ == "__main__":
    main()
