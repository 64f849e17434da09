"""Inputs of models that read texts: ids, token types, positions, masks, and the states of an encoder."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PretrainedConfig

from .draws import Draws, Tensors

MAX_LENGTH = 24


def ids(draws: Draws, vocabulary: int, shape: tuple[int, int], avoided: int | None = None) -> torch.Tensor:
    allowed = torch.tensor([it for it in range(vocabulary) if it != avoided])
    generator = torch.Generator().manual_seed(draws.torch_seed())
    return allowed[torch.randint(len(allowed), shape, generator=generator)]


def noise(draws: Draws, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(draws.torch_seed()))


def mask(draws: Draws, rows: int, length: int) -> torch.Tensor:
    """Row 0 is unpadded; the others are padded on the right, on the left, or on both sides."""
    found = torch.ones(rows, length, dtype=torch.long)
    for row in range(1, rows):
        unpadded = draws.randint(1, length)
        start = draws.randint(0, length - unpadded) if draws.flip() else 0
        found[row] = 0
        found[row, start : start + unpadded] = 1
    return found


def length_of(draws: Draws, max_length: int, limit: int = MAX_LENGTH) -> int:
    max_length = min(max_length, limit)
    return draws.choice([max_length, draws.randint(1, max_length), draws.randint(1, max_length)])


def text(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """Ordinary ids at padding, so that a leaking mask shows."""
    return text_inputs(draws, config, padded, config.max_position_embeddings)


def text_inputs(
    draws: Draws,
    config: PretrainedConfig,
    padded: bool,
    max_length: int,
    explicit_positions: bool = True,
    limit: int = MAX_LENGTH,
) -> Tensors:
    """Ids; token types where the model has them, sometimes explicit position ids."""
    shape = draws.randint(2, 4), length_of(draws, max_length, limit)
    found = {"input_ids": ids(draws, config.vocab_size, shape, config.pad_token_id)}
    types = getattr(config, "type_vocab_size", 0)
    if types and draws.flip(0.7):
        found["token_type_ids"] = ids(draws, types, shape)
    if padded:
        found["attention_mask"] = mask(draws, *shape)
    if explicit_positions and draws.flip(0.25):
        found["position_ids"] = positions(draws, shape, max_length, padded)
    return found


def positions(draws: Draws, shape: tuple[int, int], max_length: int, padded: bool) -> torch.Tensor:
    """Consecutive from any start, or arbitrary.

    Without a mask transformers' decoders treat a gap in the positions as the start of another packed sequence; attentive
    does not.
    """
    if padded:
        return ids(draws, max_length, shape)
    starts = ids(draws, max_length - shape[1] + 1, (shape[0], 1))
    return starts + torch.arange(shape[1])


def text_with_pads(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """The pad token at padding, as transformers finds a row's last token by it."""
    found = text(draws, config, padded)
    if padded:
        found["input_ids"][found["attention_mask"] == 0] = config.pad_token_id
    return found


def roberta_text(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """RoBERTa's position ids skip pad tokens and start at pad_token_id + 1, so it has that many fewer usable positions."""
    max_length = config.max_position_embeddings - config.pad_token_id - 1
    found = text_inputs(draws, config, padded, max_length, explicit_positions=False)
    if padded:
        found["input_ids"][found["attention_mask"] == 0] = config.pad_token_id
    elif draws.flip():
        found["input_ids"][0, -1] = config.pad_token_id
    return found


def plain_text(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """DistilBERT's, which takes no explicit position ids."""
    return text_inputs(draws, config, padded, config.max_position_embeddings, explicit_positions=False)


def with_encoder_states(
    base: Callable[[Draws, PretrainedConfig, bool], Tensors],
) -> Callable[[Draws, PretrainedConfig, bool], Tensors]:
    """Adds encoder states where the model has cross-attention; sometimes none."""

    def inputs(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
        found = base(draws, config, padded)
        if config.add_cross_attention and draws.flip(0.8):
            rows, length = len(found["input_ids"]), draws.randint(1, 12)
            found["encoder_hidden_states"] = noise(draws, rows, length, config.hidden_size)
            if padded:
                found["encoder_attention_mask"] = mask(draws, rows, length)
        return found

    return inputs


def source_target_inputs(
    draws: Draws, source: tuple[int, int], target: tuple[int, int], padded: bool, pad: int | None
) -> Tensors:
    """Ids of the encoder and of the decoder, each from its vocabulary size and maximum length."""
    rows = draws.randint(2, 4)
    lengths = length_of(draws, source[1]), length_of(draws, target[1])
    found = {
        "input_ids": ids(draws, source[0], (rows, lengths[0]), pad),
        "decoder_input_ids": ids(draws, target[0], (rows, lengths[1]), pad),
    }
    if padded:
        found["attention_mask"] = mask(draws, rows, lengths[0])
        found["decoder_attention_mask"] = mask(draws, rows, lengths[1])
    return found
