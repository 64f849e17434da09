"""Cases of linear attention and of its feature maps."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from case import Case, draw
from heads import Heads


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
        numerator = products @ repeated[1] + query @ repeated[2]
        denominator = products.sum(-1, keepdim=True) + query @ repeated[3][..., None]
        empty = denominator == 0
        context = (numerator / denominator.masked_fill(empty, 1.0)).masked_fill(empty, 0.0)
        unpadded = torch.ones(heads.batch, 1, heads.keys, 1, dtype=torch.float64)
        for row, (first, end) in enumerate(heads.ranges or []):
            unpadded[row, :, :first] = 0
            unpadded[row, :, end:] = 0
        key = key * unpadded
        return context, sums + key.transpose(2, 3) @ value, totals + key.sum(2)

    numbers = {part: it.flatten().tolist() for part, it in start.items()} if has_start else None
    settings = {"causal": heads.causal, "keys": heads.ranges, "start": numbers}
    # No gradient flows through a state.
    return Case(name, "linear_attention", inputs, function, settings, unused=(1, 2))


FEATURE_MAPS = {
    "elu_plus_one": lambda x: F.elu(x) + 1,
    "relu": lambda x: F.relu(x) + 1e-6,
    "exp": torch.exp,
    "softplus": F.softplus,
}


def features() -> Iterator[Case]:
    for feature_map, function in FEATURE_MAPS.items():
        for name, shape in [("one_number", (1, 1, 1, 1)), ("primes", (2, 3, 5, 7)), ("past_vectors", (1, 2, 3, 23))]:
            name = f"positive_features.{feature_map}.{name}"
            yield Case(name, "positive_features", draw(name, {"x": shape}), function, {"map": feature_map})
        # Large values of both signs; zero lies between the points of the grid.
        tails = torch.linspace(-12, 12, 62).reshape(1, 1, 2, 31)
        name = f"positive_features.{feature_map}.tails"
        yield Case(name, "positive_features", {"x": tails}, function, {"map": feature_map})
    for stabilizer in ["row_maximum", "keys_maximum", "constant"]:
        for name, x, count in [
            ("one_number", (1, 1, 1, 1), 1),
            ("primes", (2, 3, 5, 7), 11),
            ("past_vectors", (1, 2, 3, 17), 33),
            ("long", (1, 1, 50, 4), 6),
        ]:
            name = f"random_features.{stabilizer}.{name}"
            inputs = draw(name, {"x": x, "projection": (count, x[-1])})
            # The maxima are detached, so finite differences give another gradient.
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
        maximum = 0.0 if axes is None else scores.amax(axes, keepdim=True).detach()
        return projection.shape[0] ** -0.5 * (torch.exp(scores - half - maximum) + 1e-4)

    return function
