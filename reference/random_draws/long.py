"""Models of long texts: Longformer, BigBird and Reformer.

Reformer's rotations are sampled by PyTorch from `hash_seed`, which every draw has, so hashing can be compared; a text in which
a vector is so near to two buckets that rounding decides is resampled. Without a seed transformers samples other rotations in
every pass, and there is nothing to compare.
"""

from __future__ import annotations

import math

import torch
import transformers
from transformers import PretrainedConfig

from .draws import TASKS, Draws, ModelClass, Tensors, family, with_two_labels
from .encoders import bert_kwargs
from .texts import ids, length_of, mask, positions, roberta_text, text_inputs

#: The minimum margin of a vector from another bucket.
MARGIN = 1e-5


def longformer(draws: Draws) -> PretrainedConfig:
    """Windows of one size, or of two. transformers fails on those of 2, and on those that do not divide the largest."""
    kwargs = bert_kwargs(draws)
    kwargs["max_position_embeddings"] += kwargs["pad_token_id"] + 1
    window = draws.choice([4, 6, 8, 10])
    windows = [window * draws.randint(1, 2) for _ in range(kwargs["num_hidden_layers"])]
    return transformers.LongformerConfig(
        **kwargs, attention_window=windows if draws.flip() else windows[0], type_vocab_size=draws.randint(1, 3),
        sep_token_id=draws.randint(4, 10), num_labels=draws.labels(),
    )  # fmt: skip


def text_with_globals(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """RoBERTa's text. Some rows may have no globals; padding may be marked global, which has no effect."""
    found = roberta_text(draws, config, padded)
    if draws.flip(0.7):
        chance = draws.choice([0.1, 0.3, 0.9])
        shape = found["input_ids"].shape
        flips = [int(draws.flip(chance)) for _ in range(shape.numel())]
        found["global_attention_mask"] = torch.tensor(flips).view(shape)
    return found


def question_with_globals(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """transformers finds the globals itself where a row has exactly three separators."""
    found = text_with_globals(draws, config, padded)
    separator, texts = config.sep_token_id, found["input_ids"]
    texts[texts == separator] = 3 if config.pad_token_id != 3 else 2
    for row, text in enumerate(texts):
        unpadded = (found["attention_mask"][row] if padded else torch.ones_like(text)).nonzero().flatten().tolist()
        if len(unpadded) < 3:
            found.setdefault("global_attention_mask", torch.zeros_like(texts))
        else:
            text[draws.sample(unpadded, 3)] = separator
    return found


def big_bird(draws: Draws) -> PretrainedConfig:
    """Small blocks, so that some texts are long enough for sparse attention; shorter ones get full attention."""
    kwargs = bert_kwargs(draws)
    block = draws.choice([1, 2, 2, 3, 4])
    kwargs["max_position_embeddings"] = block * draws.randint(4, 64 // block)
    return transformers.BigBirdConfig(
        **kwargs, attention_type=draws.choice(["block_sparse"] * 3 + ["original_full"]), block_size=block,
        num_random_blocks=draws.choice([1, 1, 2, 3]), use_bias=draws.flip(0.8), rescale_embeddings=draws.flip(0.3),
        type_vocab_size=draws.randint(2, 4), sep_token_id=draws.randint(4, 10), num_labels=draws.labels(),
    )  # fmt: skip


def long_text(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    return text_inputs(draws, config, padded, config.max_position_embeddings, limit=64)


def reformer(draws: Draws) -> PretrainedConfig:
    """Layers of both kinds in any order. A text is padded to a multiple of both chunks, which positions must reach."""
    layers = [draws.choice(["local", "lsh"]) for _ in range(draws.depth())]
    local, lsh = draws.randint(2, 6), draws.randint(2, 6)
    multiple = math.lcm(local, lsh)
    chunks = multiple * draws.randint(1, max(1, 64 // multiple))
    columns = draws.divisor(chunks)
    width = draws.randint(5, 40)
    part = draws.randint(1, width - 1)
    buckets = draws.choice([2, 4, 6, 8, [2, 2], [2, 4], [4, 2], [4, 4], [2, 6, 2]])
    return transformers.ReformerConfig(
        vocab_size=draws.vocabulary(), hidden_size=width, num_attention_heads=draws.randint(1, 4),
        attention_head_size=draws.randint(2, 9), feed_forward_size=draws.randint(3, 90), hidden_act=draws.activation(),
        attn_layers=layers, axial_pos_embds=draws.flip(), axial_pos_shape=[chunks // columns, columns],
        axial_pos_embds_dim=[part, width - part], max_position_embeddings=chunks, local_attn_chunk_length=local,
        local_num_chunks_before=draws.randint(0, 1), local_num_chunks_after=draws.randint(0, 1),
        lsh_attn_chunk_length=lsh, lsh_num_chunks_before=draws.randint(0, 1), lsh_num_chunks_after=draws.randint(0, 1),
        num_buckets=None if draws.unsupported() else buckets, num_hashes=draws.randint(1, 4), hash_seed=draws.randrange(10**6),
        layer_norm_eps=draws.epsilon(), is_decoder=draws.flip(), pad_token_id=0, eos_token_id=2,
    )  # fmt: skip


def causal_reformer(draws: Draws) -> PretrainedConfig:
    """transformers refuses later chunks in a causal model."""
    found = reformer(draws)
    found.is_decoder, found.local_num_chunks_after, found.lsh_num_chunks_after = True, 0, 0
    return found


def masked_reformer(draws: Draws) -> PretrainedConfig:
    found = reformer(draws)
    found.is_decoder = False
    return found


def chunked_text(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """Explicit position ids only for texts of whole chunks, as transformers fails to pad them."""
    max_length = config.max_position_embeddings
    shape = draws.randint(2, 4), length_of(draws, max_length, limit=48)
    found = {"input_ids": ids(draws, config.vocab_size, shape, config.pad_token_id)}
    if padded:
        found["attention_mask"] = mask(draws, *shape)
    multiple = math.lcm(config.local_attn_chunk_length, config.lsh_attn_chunk_length)
    if draws.flip(0.25) and shape[1] % multiple == 0:
        found["position_ids"] = positions(draws, shape, max_length, padded)
    return found


def far_from_other_buckets(model: torch.nn.Module, inputs: Tensors) -> bool:
    from reformer import margins

    with margins() as found, torch.no_grad():
        model(**inputs)
    return min(found, default=math.inf) > MARGIN


MODEL_CLASSES = [
    *family("Longformer", ["Model", "ForMaskedLM", *TASKS[:2]], longformer, text_with_globals),
    ModelClass("LongformerForQuestionAnswering", with_two_labels(longformer), question_with_globals),
    *family("BigBird", ["Model", "ForMaskedLM", "ForPreTraining", *TASKS], big_bird, long_text),
    ModelClass("ReformerModel", reformer, chunked_text, has_margin=far_from_other_buckets),
    ModelClass("ReformerModelWithLMHead", causal_reformer, chunked_text, has_margin=far_from_other_buckets),
    ModelClass("ReformerForMaskedLM", masked_reformer, chunked_text, has_margin=far_from_other_buckets),
]
