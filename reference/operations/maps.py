"""Cases of operations on rows and elements: linear layers, residual sums and norms, activations, softmax, rotary positions,
embeddings, cross-entropy."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from case import MINUS_INFINITY, Case, draw, softmax

IGNORED = -100

ACTIVATIONS = {
    "relu": lambda x: F.relu(x),
    "gelu": lambda x: F.gelu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": lambda x: F.silu(x),
    "sigmoid": lambda x: torch.sigmoid(x),
}


def linears() -> Iterator[Case]:
    # Tiles of the product are six rows by sixteen or thirty-two columns; up to four rows use GEMV.
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
    for activation, function in ACTIVATIONS.items():
        settings = {"activation": activation}
        for name, x, output, bias in [("bias", (2, 5, 7), 9, True), ("plain", (7, 3), 17, False), ("row", (1, 5), 33, True)]:
            name = f"activated_linear.{activation}.{name}"
            yield linear(name, "activated_linear", x, output, bias, settings, function)
        for gated, title in [(False, "plain"), (True, "gated")]:
            name = f"feed_forward.{title}.{activation}"
            first = ["gate", "up"] if gated else ["up"]
            yield feed_forward(f"{name}.biases", activation, (2, 5, 7), 9, 5, gated, [*first, "down"])
            yield feed_forward(f"{name}.no_biases", activation, (7, 3), 17, 2, gated, [])
            yield feed_forward(f"{name}.one_row", activation, (1, 5), 33, 7, gated, first)
            yield feed_forward(f"{name}.one_number", activation, (1, 1), 1, 1, gated, [*first, "down"])
    # Every other choice of biases, around the GEMV limit and the tiles of the two products.
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
    yield three_linears("three_linears.second_unread", (5, 7), (5, 7, 3), [0, 1, 2], unused=(1,))
    yield three_linears("three_linears.only_third_read", (3, 7), (5, 7, 3), [2], unused=(0, 1))


def linear(name: str, operation: str, x: tuple, output: int, bias: bool, settings: dict, function: Callable) -> Case:
    shapes = {"x": x, "weight": (output, x[-1])}
    if bias:
        shapes["bias"] = (output,)

    def mapped(x, weight, bias=None):
        return function(F.linear(x, weight, bias))

    return Case(name, operation, draw(name, shapes), mapped, settings)


def feed_forward(name: str, activation: str, x: tuple, hidden: int, output: int, gated: bool, biases: list[str]) -> Case:
    maps = {"gate": (hidden, x[-1])} if gated else {}
    maps |= {"up": (hidden, x[-1]), "down": (output, hidden)}
    shapes = {"x": x, **maps} | {f"{map}_bias": maps[map][:1] for map in biases}

    def function(x, up, down, gate=None, gate_bias=None, up_bias=None, down_bias=None):
        activate, first = ACTIVATIONS[activation], F.linear(x, up, up_bias)
        activated = activate(first) if gate is None else activate(F.linear(x, gate, gate_bias)) * first
        return F.linear(activated, down, down_bias)

    return Case(name, "feed_forward", draw(name, shapes), function, {"activation": activation})


def three_linears(name: str, x: tuple, outputs: tuple, biases: list[int], unused: tuple[int, ...] = ()) -> Case:
    shapes = {"x": x}
    shapes |= {f"weight{i}": (output, x[-1]) for i, output in enumerate(outputs)}
    shapes |= {f"bias{i}": (outputs[i],) for i in biases}

    def function(x, **maps):
        return tuple(F.linear(x, maps[f"weight{i}"], maps.get(f"bias{i}")) for i in range(3))

    return Case(name, "three_linears", draw(name, shapes), function, unused=unused)


def sums_and_norms() -> Iterator[Case]:
    for name, shape in [("one_number", (1, 1)), ("primes", (2, 3, 17)), ("one_row", (1, 65))]:
        inputs = draw(f"add.{name}", {"x": shape, "y": shape})
        yield Case(f"add.{name}", "add", inputs, lambda x, y: x + y)
    for kind, bias in [("layer", True), ("layer", False), ("rms", False)]:
        title = kind + ("" if bias or kind == "rms" else "_without_bias")
        # A single element is divided by its own magnitude: with a small epsilon, its gradient is a difference that cancels.
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
        yield norm(f"norm_beside.{title}.input_unread", "norm_beside", kind, (5, 7), bias, unused=(0,))
        yield norm(f"norm_beside.{title}.norm_unread", "norm_beside", kind, (5, 7), bias, unused=(1,))
        yield norm(f"norm_beside_sum.{title}.primes", "norm_beside_sum", kind, (2, 3, 17), bias)
        yield norm(f"norm_beside_sum.{title}.sum_unread", "norm_beside_sum", kind, (5, 7), bias, unused=(0,))
        yield norm(f"norm_beside_sum.{title}.norm_unread", "norm_beside_sum", kind, (5, 7), bias, unused=(1,))
        yield norm(f"norm_of_sum.{title}.primes", "norm_of_sum", kind, (2, 3, 17), bias)
        yield norm(f"norm_of_sum.{title}.past_vectors", "norm_of_sum", kind, (3, 33), bias)
    for kind in ["layer", "rms"]:
        case = norm(f"norm.{kind}.far_from_zero", "norm", kind, (4, 23), False, epsilon=1e-6)
        case.inputs["x"] += 4
        yield case
        # The denominator is epsilon alone.
        case = norm(f"norm.{kind}.a_row_of_zeros", "norm", kind, (3, 11), False)
        case.inputs["x"][1] = 0
        yield case


def norm(
    name: str, operation: str, kind: str, shape: tuple, bias: bool, epsilon: float = 1e-5, unused: tuple[int, ...] = ()
) -> Case:
    shapes = {"x": shape, "weight": shape[-1:]}
    if bias:
        shapes["bias"] = shape[-1:]
    if operation in ("norm_of_sum", "norm_beside_sum"):
        shapes["branch"] = shape

    def normed(x, weight, bias):
        if kind == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, bias, epsilon)
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)

    def function(x, weight, bias=None, branch=None):
        x = x if branch is None else x + branch
        y = normed(x, weight, bias)
        return (x, y) if operation in ("norm_beside", "norm_beside_sum") else y

    settings = {"kind": kind, "epsilon": epsilon}
    return Case(name, operation, draw(name, shapes), function, settings, unused)


def activations() -> Iterator[Case]:
    for activation, function in ACTIVATIONS.items():
        settings = {"activation": activation}
        for name, shape in [("one_number", (1, 1)), ("primes", (5, 13)), ("past_vectors", (2, 3, 23))]:
            name = f"activate.{activation}.{name}"
            yield Case(name, "activate", draw(name, {"x": shape}), function, settings)
            name = name.replace("activate", "gated")
            inputs = draw(name, {"gate": shape, "up": shape})
            yield Case(name, "gated", inputs, lambda gate, up, function=function: function(gate) * up, settings)
        # Large values, where the function is constant or linear; zero, ReLU's kink, lies between the points of the grid.
        tails = torch.linspace(-30, 30, 62).reshape(2, 31)
        yield Case(f"activate.{activation}.tails", "activate", {"x": tails}, function, settings)
    at_zero = torch.tensor([[0.0, -0.0, 1.0], [-1.0, 0.0, 2.0]])
    yield Case(
        "activate.relu.at_zero", "activate", {"x": at_zero}, ACTIVATIONS["relu"], {"activation": "relu"}, smooth=False
    )


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
    # Masked tokens: their logits are minus infinity.
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
        # By sum and division: PyTorch's own mean is NaN where all targets are ignored; ours is zero.
        loss = F.cross_entropy(
            logits, torch.tensor(targets), ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
        )
        return (loss / max(counted, 1)).reshape(1)

    inputs = draw(name, {"logits": (len(targets), vocabulary)})
    return Case(name, "cross_entropy", inputs, function, {"targets": targets, "label_smoothing": smoothing})
