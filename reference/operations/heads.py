"""The sizes of an attention, its inputs, and attention by PyTorch."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from case import MINUS_INFINITY, Tensors, draw, softmax


@dataclass
class Heads:
    """The sizes of an attention, and its mask."""

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
    # The block size and, for each head or for all, for each block of queries, the visible blocks of keys.
    blocks: tuple[int, list[list[list[int]]]] | None = None
    # The batch and the heads of the bias, each one or all.
    bias: tuple[int, int] | None = None
    # What the elements of the bias belong to: "pairs", "keys" or "distances" (shared by all sequences).
    bias_of: str = "pairs"
    # (query, key) pairs whose bias is minus infinity.
    forbidden: list[tuple[int, int]] = field(default_factory=list)
    # Columns of the bias (keys or distances) that are minus infinity, of the first sequence and head.
    forbidden_columns: list[int] = field(default_factory=list)

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
        for column in self.forbidden_columns:
            inputs["bias"].reshape(-1, shapes["bias"][-1])[0, column] = MINUS_INFINITY
        for query, key in self.forbidden:
            inputs["bias"][:, :, query, key] = MINUS_INFINITY
        return inputs

    def allowed(self) -> torch.Tensor:
        """The allowed pairs, `[batch, heads or 1, queries, keys]`. The queries are the last of the keys' positions."""
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
