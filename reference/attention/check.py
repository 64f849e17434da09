"""Checks fixtures/attention/ against naive implementations of the definitions in the docstrings here.

    python reference/attention/check.py [CASE…]

Needs requirements.txt only. The implementations work on whole attention matrices and use none of the libraries, so that a
file that passes is self-contained. Prints, per case, the maximum errors of the output and of the gradients, relative to
the largest value of the tensor: in float64, which must be the rounding to float32, and in float32, as a hint for
tolerances.
"""

import json
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open

FOLDER = Path(__file__).resolve().parent.parent.parent / "fixtures" / "attention"
MINUS_INFINITY = -math.inf


class GoldenCase:
    """A case as read: tensors of the given dtype, inputs and parameters as leaves that require gradients."""

    def __init__(self, path: Path, dtype: torch.dtype) -> None:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        self.config, self.role = json.loads(metadata["config"]), metadata["role"]
        self.epsilons = json.loads(metadata.get("epsilons", "{}"))
        self.positions = json.loads(metadata.get("positions", "null"))
        self.tensors = {name: it.to(dtype) if it.is_floating_point() else it for name, it in tensors.items()}
        self.leaves = {
            name.removeprefix("gradient."): self.tensors[name.removeprefix("gradient.")].requires_grad_()
            for name in tensors
            if name.startswith("gradient.")
        }
        queries = self["queries"]
        self.batch, self.length, _ = queries.shape
        self.key_length = self.tensors.get("keys", queries).shape[1]
        lengths = self.tensors.get("lengths", torch.full((self.batch,), self.key_length))
        self.is_unpadded = torch.arange(self.key_length) < lengths[:, None]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def parameter(self, name: str) -> torch.Tensor | None:
        return self.tensors.get(f"parameter.{name}")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias"))

    def heads(self, x: torch.Tensor, name: str, heads: int | None = None) -> torch.Tensor:
        return self.linear(x, name).unflatten(-1, (heads or self.config["heads"], -1)).transpose(1, 2)

    def qkv(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        queries = self["queries"]
        kv_heads = self.config.get("key_value_heads", self.config["heads"])
        q = self.heads(queries, "query")
        k = self.heads(self.tensors.get("keys", queries), "key", kv_heads)
        v = self.heads(self.tensors.get("values", queries), "value", kv_heads)
        return q, *(it.repeat_interleave(self.config["heads"] // kv_heads, 1) for it in (k, v))

    def mask(self) -> torch.Tensor:
        """The mask, [batch, 1, queries, keys]: unpadded keys; if causal, no later ones."""
        mask = self.is_unpadded[:, None, None, :].expand(-1, 1, self.length, -1)
        return mask.tril() if self.role == "causal" else mask

    def out(self, context: torch.Tensor) -> torch.Tensor:
        return self.linear(context.transpose(1, 2).flatten(2), "output")


def softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over the visible keys; zeros where there are none."""
    weights = scores.masked_fill(~mask, MINUS_INFINITY).softmax(-1)
    return torch.where(mask, weights, 0.0)


def scaled(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def full(golden: GoldenCase):
    q, k, v = golden.qkv()
    scores = scaled(q, k)
    if golden.positions == {"kind": "alibi"}:
        positions = torch.arange(golden.length)
        scores = scores - golden["slopes"][:, None, None] * (positions[:, None] - positions).abs()
    weights = softmax(scores, golden.mask())
    return golden.out(weights @ v), weights


def cosine(golden: GoldenCase):
    q, k, v = golden.qkv()
    cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    weights = softmax(golden.parameter("log_factor").exp()[:, None, None] * cosines, golden.mask())
    return golden.out(weights @ v), weights


def argmax(golden: GoldenCase):
    q, k, v = golden.qkv()
    scores = scaled(q, k).masked_fill(~golden.mask(), MINUS_INFINITY)
    soft, best = scores.softmax(-1), F.one_hot(scores.argmax(-1), golden.key_length)
    weights = best + soft - soft.detach()
    return golden.out(weights @ v), weights


def scored(golden: GoldenCase):
    queries, keys = golden["queries"], golden["keys"]
    match golden.config["score"]["kind"]:
        case "additive":
            hidden = golden.linear(queries, "query")[:, :, None] + golden.linear(keys, "key")[:, None]
            scores = golden.linear(hidden.tanh(), "score")[..., 0]
        case "scaled_dot":
            scores = scaled(queries, keys)
        case "bilinear":
            scores = queries @ golden.parameter("bilinear") @ keys.mT
    weights = softmax(scores[:, None], golden.mask())
    return weights[:, 0] @ golden["values"], weights


def linformer(golden: GoldenCase):
    q, k, v = golden.qkv()
    k, v = (torch.where(golden.is_unpadded[:, None, :, None], it, 0.0) for it in (k, v))
    key_map = golden.parameter("pattern.key_map")
    value_map = golden.parameter("pattern.value_map")
    weights = scaled(q, key_map @ k).softmax(-1)
    return golden.out(weights @ ((key_map if value_map is None else value_map) @ v)), None


def performer(golden: GoldenCase):
    q, k, v = golden.qkv()
    features = golden.parameter("pattern.features")
    root = q.shape[-1] ** 0.25
    dash_q, dash_k = (it / root @ features.T for it in (q, k))
    unpadded = golden.is_unpadded[:, None, :, None]
    largest_k = dash_k.masked_fill(~unpadded, MINUS_INFINITY).amax((-2, -1), keepdim=True).detach()

    def features_of(x, dash, stabilizer):
        exponents = dash - (x * x).sum(-1, keepdim=True) / (2 * root**2) - stabilizer
        return (exponents.exp() + golden.epsilons["features"]) / math.sqrt(len(features))

    phi_q = features_of(q, dash_q, dash_q.amax(-1, keepdim=True).detach())
    phi_k = torch.where(unpadded, features_of(k, dash_k, largest_k), 0.0)
    products = (phi_q @ phi_k.mT) * golden.mask()
    denominator = products.sum(-1, keepdim=True)
    if golden.role == "causal":
        denominator = denominator + golden.epsilons["denominator"] * phi_q.sum(-1, keepdim=True)
    return golden.out(products / denominator @ v), None


def linear(golden: GoldenCase):
    q, k, v = golden.qkv()
    products = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT) * golden.mask()
    weights = products / products.sum(-1, keepdim=True)
    return golden.out(weights @ v), weights


def longformer(golden: GoldenCase):
    positions = torch.arange(golden.length)
    half_window = golden.config["window"] // 2
    is_global = golden.tensors.get("globals", torch.zeros(golden.batch, golden.length)).bool()
    in_window = ((positions[:, None] - positions).abs() <= half_window)[None, None]
    q, k, v = golden.qkv()
    weights = softmax(scaled(q, k), (in_window | is_global[:, None, None]) & golden.mask())
    context = weights @ v
    if "globals" in golden.tensors:
        q, k, v = (golden.heads(golden["queries"], f"global_{part}") for part in ("query", "key", "value"))
        global_weights = softmax(scaled(q, k), golden.mask())
        is_global_query = is_global[:, None, :, None]
        context = torch.where(is_global_query, global_weights @ v, context)
        weights = torch.where(is_global_query, global_weights, weights)
    return golden.out(context), weights


def big_bird(golden: GoldenCase):
    block, random_blocks = golden.config["block"], golden["random_blocks"]
    heads, blocks = len(random_blocks), golden.length // block
    block_mask = torch.zeros(heads, blocks, blocks, dtype=torch.bool)
    for i in range(blocks):
        block_mask[:, i, [0, i, blocks - 1]] = True
        block_mask[:, i, [max(i - 1, 0), min(i + 1, blocks - 1)]] = True
    block_mask[:, [0, blocks - 1]] = True
    for head in range(heads):
        for i in range(1, blocks - 1):
            block_mask[head, i, random_blocks[head, i - 1]] = True
    q, k, v = golden.qkv()
    mask = block_mask.repeat_interleave(block, 1).repeat_interleave(block, 2)[None] & golden.mask()
    weights = softmax(scaled(q, k), mask)
    return golden.out(weights @ v), weights


def reformer(golden: GoldenCase):
    """Per hash, a softmax that counts each key as often as the query attends to it (`attention_counts`)."""
    x, v = golden.heads(golden["queries"], "query_key"), golden.heads(golden["queries"], "value")
    keys = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() / math.sqrt(x.shape[-1])
    scores = x @ keys.mT
    counts = attention_counts(golden, x.detach())
    itself = torch.eye(golden.length, dtype=torch.bool)
    usable = counts * golden.mask() * ~itself
    self_only = (usable.sum(-1, keepdim=True) == 0) & itself
    scores = torch.where(self_only, -1e5, scores)
    scores = scores + torch.where(self_only, counts, usable).to(scores.dtype).log()
    z = scores.logsumexp(-1, keepdim=True)
    context = ((scores - z).exp() @ v * z.softmax(0)).sum(0)
    return golden.out(context), None


def attention_counts(golden: GoldenCase, x: torch.Tensor) -> torch.Tensor:
    """[hashes, batch, heads, queries, keys]: how often each query attends to each key; chunks can list a key twice."""
    config, length = golden.config, golden.length
    if length <= config["chunk"]:
        return torch.ones(1, *x.shape[:2], length, length)
    hashed = torch.einsum("bhtd,hdrn->bhrtn", x, golden["rotations"])
    buckets = torch.cat([hashed, -hashed], -1).argmax(-1)
    buckets = torch.where(golden.is_unpadded[:, None, None], buckets, config["buckets"])
    order = buckets.sort(dim=-1, stable=True).indices  # [batch, heads, hashes, length], each hash separately
    chunks = order.flatten(2).unflatten(2, (-1, config["chunk"]))
    counts = torch.zeros(config["hashes"], *x.shape[:2], length, length)
    chunk_count = chunks.shape[2]
    for row in range(x.shape[0]):
        for head in range(x.shape[1]):
            for chunk in range(chunk_count):
                for offset in range(-config["chunks_before"], config["chunks_after"] + 1):
                    keys = chunks[row, head, (chunk + offset) % chunk_count]
                    for query in chunks[row, head, chunk]:
                        counts[chunk * config["hashes"] // chunk_count, row, head, query, keys] += 1
    return counts


def transformer_xl(golden: GoldenCase):
    x = golden["queries"]
    memory_and_segment = torch.cat([golden["memory"], x], 1) if "memory" in golden.tensors else x
    key_length = memory_and_segment.shape[1]
    memory_length, positions = key_length - golden.length, torch.arange(key_length)
    q = golden.heads(x, "query")
    k, v = (golden.heads(memory_and_segment, part) for part in ("key", "value"))
    p = golden.heads(golden["sinusoids"][None], "positions")
    distances = positions[memory_length:, None] - positions
    content = (q + golden.parameter("content_bias")[:, None]) @ k.mT
    position = (q + golden.parameter("position_bias")[:, None]) @ p.mT
    position = position.gather(-1, distances.clamp(min=0).expand_as(content))
    weights = softmax((content + position) / math.sqrt(q.shape[-1]), distances >= 0)
    return golden.out(weights @ v), weights


def nadaraya_watson(golden: GoldenCase):
    queries = golden["queries"]
    keys, values = golden.tensors.get("keys", queries), golden.tensors.get("values", queries)
    log_width = golden.parameter("log_width")
    width = golden.config["width"] if log_width is None else log_width.exp()
    squares = ((queries[:, :, None] - keys[:, None]) ** 2).sum(-1)[:, None] / width**2
    mask = golden.mask()
    if golden.config.get("query_position") == "left_out":
        mask = mask & ~torch.eye(golden.length, dtype=torch.bool)
    if golden.config["kernel"] == "gaussian":
        weights = softmax(-squares / 2, mask)
    else:
        kernels = {"boxcar": squares < 1, "epanechnikov": F.relu(1 - squares), "constant": squares >= 0}
        weights = kernels[golden.config["kernel"]] * mask.to(squares.dtype)
        sums = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(sums == 0, 1.0, sums)
    return weights[:, 0] @ values, weights


DEFINITIONS = [
    full,
    scored,
    cosine,
    argmax,
    linformer,
    performer,
    linear,
    longformer,
    big_bird,
    reformer,
    transformer_xl,
    nadaraya_watson,
]


def max_errors(path: Path, dtype: torch.dtype) -> tuple[float, float]:
    """The maximum relative error of output and weights, and of the gradients."""
    golden = GoldenCase(path, dtype)
    definition = {it.__name__: it for it in DEFINITIONS}[golden.config["kind"]]
    output, weights = definition(golden)
    # A piecewise constant kernel has no gradient for queries and keys.
    gradients = torch.autograd.grad(
        (output * golden["upstream"]).sum(), list(golden.leaves.values()), allow_unused=True, materialize_grads=True
    )
    rows = golden.tensors.get("rows_compared", torch.full((golden.batch,), golden.length))
    compared = torch.arange(golden.length) < rows[:, None]
    forward = [relative_error(output[compared], golden["output"][compared])]
    if "weights" in golden.tensors:
        forward.append(relative_error(weights.transpose(1, 2)[compared], golden["weights"].transpose(1, 2)[compared]))
    backward = [relative_error(it, golden[f"gradient.{name}"]) for name, it in zip(golden.leaves, gradients, strict=True)]
    return max(forward), max(backward)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} instead of {tuple(expected.shape)}"
    scale = expected.abs().max().item()
    # Zero in exact arithmetic: rounding errors are compared with a scale of one.
    return (actual - expected).abs().max().item() / (scale or 1.0)


def main() -> None:
    paths = [FOLDER / f"{name}.safetensors" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.safetensors"))
    wrong = []
    for path in paths:
        output_error, gradient_error = max_errors(path, torch.float64)
        output_error_32, gradient_error_32 = max_errors(path, torch.float32)
        float64, float32 = f"{output_error:.1e} {gradient_error:.1e}", f"{output_error_32:.1e} {gradient_error_32:.1e}"
        print(f"{path.stem:<34}float64 {float64}   float32 {float32}")
        if not (output_error < 2e-7 and gradient_error < 2e-7):
            wrong.append(path.stem)
    if wrong:
        sys.exit(f"{', '.join(wrong)}: fixtures differ from the naive implementations")


if __name__ == "__main__":
    main()
