"""The sparse attention weights that transformers returns, as dense matrices: [batch, heads, queries, keys].

- Longformer returns weights on a row's globals and on a window, and those of global queries separately.
- BigBird in evaluation has block 0 as every random block, and returns only one of the equal weights of a repeated block.
  Here they are summed, so that a query's weights sum to one.
- Reformer returns weights by chunk; LSH layers in sorted order and for each hash, without the weights of
  the hashes. Here each weight is scattered to its pair of positions, times the weight of its hash. Where there
  are so few chunks that a query sees a key twice, both are summed.

Rows of padding are undefined.
"""

from unittest.mock import patch

import torch
from folder import Tensors, as_the_model, exact

Matrices = list[torch.Tensor]


@torch.no_grad()
def matrices(model: torch.nn.Module, inputs: Tensors) -> Matrices:
    """Those of one pass, one per layer; none for a model whose attentions are dense."""
    by_model_type = {"longformer": longformer, "big_bird": big_bird, "reformer": reformer}
    dense_attentions = by_model_type.get(model.config.model_type)
    if dense_attentions is None:
        return []
    length = inputs["input_ids"].shape[1]
    layers = dense_attentions(model, as_the_model(model, inputs))
    return [summing_to_one(it[:, :, :length, :length], inputs) for it in layers]


def summing_to_one(weights: torch.Tensor, inputs: Tensors) -> torch.Tensor:
    sums = weights.sum(-1)
    if "attention_mask" in inputs:
        sums = sums.transpose(1, 2)[inputs["attention_mask"].bool()]
    bound = 1e-9 if sums.dtype == torch.float64 else 1e-2  # Of transformers' float32, Reformer's sum to 0.998.
    assert (sums - 1).abs().max() < bound, "a query's weights do not sum to one"
    return weights


@exact
def dense(model: torch.nn.Module, inputs: Tensors, prefix: str = "") -> Tensors:
    """The same under the names of the goldens."""
    return {f"{prefix}dense_attentions.{i}": it for i, it in enumerate(matrices(model, inputs))}


def longformer(model: torch.nn.Module, inputs: Tensors) -> Matrices:
    """The sign of the encoder's mask determines the kind of position: positive is global."""
    captured: dict[str, torch.Tensor] = {}
    encoder = model.base_model.encoder
    hook = encoder.register_forward_pre_hook(lambda _, given, named: captured.update(named), with_kwargs=True)
    output = model(**inputs, output_attentions=True)
    hook.remove()
    is_global = captured["attention_mask"] > 0
    by_globals = output.global_attentions or [None] * len(output.attentions)
    return [of_window(*it, is_global) for it in zip(output.attentions, by_globals, strict=True)]


def of_window(local: torch.Tensor, by_globals: torch.Tensor | None, is_global: torch.Tensor) -> torch.Tensor:
    """Columns are the row's globals in their order, then the keys from i - half_window to i + half_window."""
    batch, heads, length, columns = local.shape
    extra = 0 if by_globals is None else by_globals.shape[-1]
    half_window = (columns - extra) // 2
    dense_weights = local.new_zeros(batch, heads, length, length)
    for row in range(batch):
        positions = is_global[row].nonzero().flatten().tolist()
        for slot, j in enumerate(positions):
            dense_weights[row, :, :, j] += local[row, :, :, slot]
        for i in range(length):
            first, last = max(0, i - half_window), min(length, i + half_window + 1)
            start = extra + half_window + first - i
            dense_weights[row, :, i, first:last] += local[row, :, i, start : start + last - first]
        for slot, i in enumerate(positions):
            dense_weights[row, :, i] = by_globals[row, :, :length, slot]
    return dense_weights


def big_bird(model: torch.nn.Module, inputs: Tensors) -> Matrices:
    output = model(**inputs, output_attentions=True)
    if model.base_model.attention_type == "original_full" or model.training:
        return list(output.attentions)
    config, found = model.config, []
    for it in output.attentions:
        dense_weights = it.clone()
        block = config.block_size
        dense_weights[:, :, block:-block, :block] *= 1 + config.num_random_blocks
        found.append(dense_weights)
    return found


def reformer(model: torch.nn.Module, inputs: Tensors) -> Matrices:
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    hashed: list[tuple[torch.Tensor, torch.Tensor]] = []
    attend = LSHSelfAttention._attend

    def kept(layer, **named):
        found = attend(layer, **named)
        hashed.append((named["sorted_bucket_idx_per_hash"], found[1]))
        return found

    with patch.object(LSHSelfAttention, "_attend", kept):
        output = model(**inputs, output_attentions=True, use_cache=False)
    layers = [it.attention.self_attention for it in model.base_model.encoder.layers]
    found, hashed = [], iter(hashed)
    for layer, weights in zip(layers, output.attentions, strict=True):
        positions, logits = next(hashed) if isinstance(layer, LSHSelfAttention) else (None, None)
        found.append(weights if weights.dim() == 4 else of_chunks(layer, weights, positions, logits))
    return found


def of_chunks(
    layer: torch.nn.Module, weights: torch.Tensor, positions: torch.Tensor | None, logits: torch.Tensor | None
) -> torch.Tensor:
    """From [batch, heads, hashes * chunks, chunk, keys], the sorted positions and their log-sum-exps."""
    batch, heads, chunks, chunk, _ = weights.shape
    places = chunks * chunk
    if positions is None:
        positions, logits = torch.arange(places).expand(batch, heads, places), weights.new_zeros(batch, heads, places)
    length = int(positions.max()) + 1
    by_chunk = positions.reshape(batch, heads, chunks, chunk)
    keys = layer._look_adjacent(by_chunk, layer.num_chunks_before, layer.num_chunks_after)
    rows = weights.new_zeros(batch, heads, chunks, chunk, length)
    rows.scatter_add_(-1, keys.unsqueeze(-2).expand(weights.shape), weights)
    # One hash after the other; each has every position once.
    hashes = positions.reshape(batch, heads, -1, length)
    by_hash = torch.zeros_like(logits).view(hashes.shape).scatter(-1, hashes, logits.view(hashes.shape))
    shares = by_hash.softmax(2).gather(-1, hashes)
    rows = rows.view(*hashes.shape, length) * shares.unsqueeze(-1)
    queries = positions.unsqueeze(-1).expand(batch, heads, places, length)
    return weights.new_zeros(batch, heads, length, length).scatter_add_(2, queries, rows.flatten(2, 3))
