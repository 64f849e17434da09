"""A Llama in numpy, straight from a GGUF file: what llama.cpp computes, with the weights that gguf-py dequantizes.

RoPE rotates interleaved pairs and no rows are permuted, so that a mistake in the permutation cannot hide.
"""

from pathlib import Path

import numpy as np
from gguf import GGUFReader, quants


class Llama:
    """A model with a KV cache; `forward` returns the logits of the given ids."""

    def __init__(self, path: Path, precision=np.float64) -> None:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        self.fields = fields
        self.weights = {
            it.name: quants.dequantize(it.data, it.tensor_type).astype(precision) for it in reader.tensors
        }
        self.layers = fields["llama.block_count"]
        self.heads = fields["llama.attention.head_count"]
        self.kv_heads = fields.get("llama.attention.head_count_kv", self.heads)
        self.width = fields.get("llama.attention.key_length", fields["llama.embedding_length"] // self.heads)
        self.epsilon = fields["llama.attention.layer_norm_rms_epsilon"]
        pairs = np.arange(self.width // 2)
        self.frequencies = fields.get("llama.rope.freq_base", 10000.0) ** (-2.0 * pairs / self.width)
        if "rope_freqs.weight" in self.weights:
            self.frequencies = self.frequencies / self.weights["rope_freqs.weight"]
        self.cache = [[] for _ in range(self.layers)]
        self.length = 0

    def forward(self, ids: list[int]) -> np.ndarray:
        x = self.weights["token_embd.weight"][np.asarray(ids)]
        positions = np.arange(self.length, self.length + len(ids))
        for layer in range(self.layers):
            x = x + self.attend(layer, self.norm(x, f"blk.{layer}.attn_norm"), positions)
            y = self.norm(x, f"blk.{layer}.ffn_norm")
            gate, up = self.linear(y, f"blk.{layer}.ffn_gate"), self.linear(y, f"blk.{layer}.ffn_up")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")
        self.length += len(ids)
        head = "output" if "output.weight" in self.weights else "token_embd"
        return self.linear(self.norm(x, "output_norm"), head)

    def attend(self, layer: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        def split(name: str, heads: int) -> np.ndarray:
            return self.linear(x, f"blk.{layer}.{name}").reshape(len(x), heads, self.width).swapaxes(0, 1)

        query = self.rotate(split("attn_q", self.heads), positions)
        key = self.rotate(split("attn_k", self.kv_heads), positions)
        self.cache[layer].append((key, split("attn_v", self.kv_heads)))
        key, value = (np.concatenate(parts, 1) for parts in zip(*self.cache[layer]))
        self.cache[layer] = [(key, value)]
        key, value = (it.repeat(self.heads // self.kv_heads, 0) for it in (key, value))
        scores = query @ key.swapaxes(1, 2) / np.sqrt(self.width)
        scores = np.where(np.arange(key.shape[1]) <= positions[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        context = weights / weights.sum(-1, keepdims=True) @ value
        return self.linear(context.swapaxes(0, 1).reshape(len(x), -1), f"blk.{layer}.attn_output")

    def rotate(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        angles = positions[:, None] * self.frequencies
        cosine, sine = np.cos(angles), np.sin(angles)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).reshape(x.shape)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt(np.mean(x * x, -1, keepdims=True) + self.epsilon)
        return x / scale * self.weights[f"{name}.weight"]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)


def greedy(model: Llama, prompt: list[int], count: int, end: int | None = None) -> tuple[list[int], float]:
    """Greedy decoding: the tokens, and the smallest margin between the two largest logits."""
    ids, margin, new = [], np.inf, prompt
    while len(ids) < count:
        scores = model.forward(new)[-1]
        second, first = np.sort(scores)[-2:]
        margin = min(margin, float(first - second))
        new = [int(scores.argmax())]
        if new[0] == end:
            break
        ids += new
    return ids, margin
