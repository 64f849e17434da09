"""Checks fixtures/attention/ against naive implementations of the definitions in the docstrings here.

    python reference/attention/check.py [CASE…]

Needs requirements.txt only. The implementations work on whole attention matrices and use none of the libraries, so that a
file that passes is self-contained. Prints, per case, the largest difference of the output and of the gradients, relative to
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


class File:
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
        self.keys = self.tensors.get("keys", queries).shape[1]
        lengths = self.tensors.get("lengths", torch.full((self.batch,), self.keys))
        self.is_unpadded = torch.arange(self.keys) < lengths[:, None]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def parameter(self, name: str) -> torch.Tensor | None:
        return self.tensors.get(f"parameter.{name}")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias"))

    def heads(self, x: torch.Tensor, name: str, heads: int | None = None) -> torch.Tensor:
        return self.linear(x, name).unflatten(-1, (heads or self.config["heads"], -1)).transpose(1, 2)

    def projected(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        queries = self["queries"]
        fewer = self.config.get("key_value_heads", self.config["heads"])
        q = self.heads(queries, "query")
        k = self.heads(self.tensors.get("keys", queries), "key", fewer)
        v = self.heads(self.tensors.get("values", queries), "value", fewer)
        return q, *(it.repeat_interleave(self.config["heads"] // fewer, 1) for it in (k, v))

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


def full(file: File):
    q, k, v = file.projected()
    scores = scaled(q, k)
    if file.positions == {"kind": "alibi"}:
        at = torch.arange(file.length)
        scores = scores - file["slopes"][:, None, None] * (at[:, None] - at).abs()
    weights = softmax(scores, file.mask())
    return file.out(weights @ v), weights


def cosine(file: File):
    q, k, v = file.projected()
    cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
    weights = softmax(file.parameter("log_factor").exp()[:, None, None] * cosines, file.mask())
    return file.out(weights @ v), weights


def argmax(file: File):
    q, k, v = file.projected()
    scores = scaled(q, k).masked_fill(~file.mask(), MINUS_INFINITY)
    soft, best = scores.softmax(-1), F.one_hot(scores.argmax(-1), file.keys)
    weights = best + soft - soft.detach()
    return file.out(weights @ v), weights


def scored(file: File):
    queries, keys = file["queries"], file["keys"]
    match file.config["score"]["kind"]:
        case "additive":
            hidden = file.linear(queries, "query")[:, :, None] + file.linear(keys, "key")[:, None]
            scores = file.linear(hidden.tanh(), "score")[..., 0]
        case "scaled_dot":
            scores = scaled(queries, keys)
        case "bilinear":
            scores = queries @ file.parameter("bilinear") @ keys.mT
    weights = softmax(scores[:, None], file.mask())
    return weights[:, 0] @ file["values"], weights


def linformer(file: File):
    q, k, v = file.projected()
    k, v = (torch.where(file.is_unpadded[:, None, :, None], it, 0.0) for it in (k, v))
    key_map = file.parameter("pattern.key_map")
    value_map = file.parameter("pattern.value_map")
    weights = scaled(q, key_map @ k).softmax(-1)
    return file.out(weights @ ((key_map if value_map is None else value_map) @ v)), None


def performer(file: File):
    q, k, v = file.projected()
    features = file.parameter("pattern.features")
    root = q.shape[-1] ** 0.25
    dash_q, dash_k = (it / root @ features.T for it in (q, k))
    unpadded = file.is_unpadded[:, None, :, None]
    largest_k = dash_k.masked_fill(~unpadded, MINUS_INFINITY).amax((-2, -1), keepdim=True).detach()

    def features_of(x, dash, stabilizer):
        exponents = dash - (x * x).sum(-1, keepdim=True) / (2 * root**2) - stabilizer
        return (exponents.exp() + file.epsilons["features"]) / math.sqrt(len(features))

    phi_q = features_of(q, dash_q, dash_q.amax(-1, keepdim=True).detach())
    phi_k = torch.where(unpadded, features_of(k, dash_k, largest_k), 0.0)
    products = (phi_q @ phi_k.mT) * file.mask()
    denominator = products.sum(-1, keepdim=True)
    if file.role == "causal":
        denominator = denominator + file.epsilons["denominator"] * phi_q.sum(-1, keepdim=True)
    return file.out(products / denominator @ v), None


def linear(file: File):
    q, k, v = file.projected()
    products = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT) * file.mask()
    weights = products / products.sum(-1, keepdim=True)
    return file.out(weights @ v), weights


def longformer(file: File):
    at = torch.arange(file.length)
    half_window = file.config["window"] // 2
    is_global = file.tensors.get("globals", torch.zeros(file.batch, file.length)).bool()
    near = ((at[:, None] - at).abs() <= half_window)[None, None]
    q, k, v = file.projected()
    weights = softmax(scaled(q, k), (near | is_global[:, None, None]) & file.mask())
    context = weights @ v
    if "globals" in file.tensors:
        q, k, v = (file.heads(file["queries"], f"global_{part}") for part in ("query", "key", "value"))
        global_weights = softmax(scaled(q, k), file.mask())
        choose = is_global[:, None, :, None]
        context = torch.where(choose, global_weights @ v, context)
        weights = torch.where(choose, global_weights, weights)
    return file.out(context), weights


def big_bird(file: File):
    block, drawn = file.config["block"], file["random_blocks"]
    heads, blocks = len(drawn), file.length // block
    sees = torch.zeros(heads, blocks, blocks, dtype=torch.bool)
    for i in range(blocks):
        sees[:, i, [0, i, blocks - 1]] = True
        sees[:, i, [max(i - 1, 0), min(i + 1, blocks - 1)]] = True
    sees[:, [0, blocks - 1]] = True
    for head in range(heads):
        for i in range(1, blocks - 1):
            sees[head, i, drawn[head, i - 1]] = True
    q, k, v = file.projected()
    mask = sees.repeat_interleave(block, 1).repeat_interleave(block, 2)[None] & file.mask()
    weights = softmax(scaled(q, k), mask)
    return file.out(weights @ v), weights


def reformer(file: File):
    """Counts, per hash, how often each query sees each key; a key seen twice counts twice."""
    config, length = file.config, file.length
    x, v = file.heads(file["queries"], "query_key"), file.heads(file["queries"], "value")
    keys = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() / math.sqrt(x.shape[-1])
    scores = x @ keys.mT
    counts = times_seen(file, x.detach())  # [hashes, batch, heads, queries, keys]
    itself = torch.eye(length, dtype=torch.bool)
    usable = counts * file.mask() * ~itself
    alone = (usable.sum(-1, keepdim=True) == 0) & itself
    scores = torch.where(alone, -1e5, scores)
    scores = scores + torch.where(alone, counts, usable).to(scores.dtype).log()
    z = scores.logsumexp(-1, keepdim=True)
    context = ((scores - z).exp() @ v * z.softmax(0)).sum(0)
    return file.out(context), None


def times_seen(file: File, x: torch.Tensor) -> torch.Tensor:
    config, length = file.config, file.length
    if length <= config["chunk"]:
        return torch.ones(1, *x.shape[:2], length, length)
    hashed = torch.einsum("bhtd,hdrn->bhrtn", x, file["rotations"])
    buckets = torch.cat([hashed, -hashed], -1).argmax(-1)
    buckets = torch.where(file.is_unpadded[:, None, None], buckets, config["buckets"])
    order = buckets.sort(dim=-1, stable=True).indices  # [batch, heads, hashes, length], each hash separately
    chunks = order.flatten(2).unflatten(2, (-1, config["chunk"]))
    counts = torch.zeros(config["hashes"], *x.shape[:2], length, length)
    total = chunks.shape[2]
    for row in range(x.shape[0]):
        for head in range(x.shape[1]):
            for at in range(total):
                for offset in range(-config["chunks_before"], config["chunks_after"] + 1):
                    for query in chunks[row, head, at]:
                        counts[at * config["hashes"] // total, row, head, query, chunks[row, head, (at + offset) % total]] += 1
    return counts


def transformer_xl(file: File):
    x = file["queries"]
    whole = torch.cat([file["memory"], x], 1) if "memory" in file.tensors else x
    memory_length, at = whole.shape[1] - file.length, torch.arange(whole.shape[1])
    q, k, v = file.heads(x, "query"), file.heads(whole, "key"), file.heads(whole, "value")
    p = file.heads(file["sinusoids"][None], "positions")
    distances = at[memory_length:, None] - at
    content = (q + file.parameter("content_bias")[:, None]) @ k.mT
    position = (q + file.parameter("position_bias")[:, None]) @ p.mT
    position = position.gather(-1, distances.clamp(min=0).expand_as(content))
    weights = softmax((content + position) / math.sqrt(q.shape[-1]), distances >= 0)
    return file.out(weights @ v), weights


def nadaraya_watson(file: File):
    queries = file["queries"]
    keys, values = file.tensors.get("keys", queries), file.tensors.get("values", queries)
    log_width = file.parameter("log_width")
    width = file.config["width"] if log_width is None else log_width.exp()
    squares = ((queries[:, :, None] - keys[:, None]) ** 2).sum(-1)[:, None] / width**2
    mask = file.mask()
    if file.config.get("query_position") == "left_out":
        mask = mask & ~torch.eye(file.length, dtype=torch.bool)
    if file.config["kernel"] == "gaussian":
        weights = softmax(-squares / 2, mask)
    else:
        kernels = {"boxcar": squares < 1, "epanechnikov": F.relu(1 - squares), "constant": squares >= 0}
        weights = kernels[file.config["kernel"]] * mask.to(squares.dtype)
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


def differences(path: Path, dtype: torch.dtype) -> tuple[float, float]:
    """The largest of the output and the weights, and the largest of the gradients, relative to each tensor's largest."""
    file = File(path, dtype)
    definition = {it.__name__: it for it in DEFINITIONS}[file.config["kind"]]
    output, weights = definition(file)
    # A piecewise constant kernel has no gradient for queries and keys.
    gradients = torch.autograd.grad(
        (output * file["upstream"]).sum(), list(file.leaves.values()), allow_unused=True, materialize_grads=True
    )
    rows = file.tensors.get("rows_compared", torch.full((file.batch,), file.length))
    compared = torch.arange(file.length) < rows[:, None]
    forward = [relative(output[compared], file["output"][compared])]
    if "weights" in file.tensors:
        forward.append(relative(weights.transpose(1, 2)[compared], file["weights"].transpose(1, 2)[compared]))
    backward = [relative(it, file[f"gradient.{name}"]) for name, it in zip(file.leaves, gradients, strict=True)]
    return max(forward), max(backward)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape, f"{tuple(found.shape)} instead of {tuple(expected.shape)}"
    size = expected.abs().max().item()
    # Zero in exact arithmetic: rounding errors are compared with a scale of one.
    return (found - expected).abs().max().item() / (size or 1.0)


def main() -> None:
    paths = [FOLDER / f"{name}.safetensors" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.safetensors"))
    wrong = []
    for path in paths:
        output, gradient = differences(path, torch.float64)
        output_32, gradient_32 = differences(path, torch.float32)
        print(f"{path.stem:<34}float64 {output:.1e} {gradient:.1e}   float32 {output_32:.1e} {gradient_32:.1e}")
        if not (output < 2e-7 and gradient < 2e-7):
            wrong.append(path.stem)
    if wrong:
        sys.exit(f"the definitions do not give {', '.join(wrong)}")


if __name__ == "__main__":
    main()
