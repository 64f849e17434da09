"""Encoder-decoders: BART, Marian, T5, and pairs of two models."""

from __future__ import annotations

from collections.abc import Callable

import transformers
from transformers import PretrainedConfig

from .decoders import gpt2
from .draws import ConfigKwargs, Draws, Kind, Tensors, family
from .encoders import bert, bert_generation, roberta
from .texts import MAX_LENGTH, pair_of


def two_models(
    encoder_of: Callable[[Draws], PretrainedConfig], decoder_of: Callable[[Draws], PretrainedConfig]
) -> Callable[[Draws], PretrainedConfig]:
    """Two models as one. Widths are equal in about a third."""

    def config(draws: Draws) -> PretrainedConfig:
        encoder, decoder = encoder_of(draws), decoder_of(draws)
        if draws.flip(0.3):
            decoder.hidden_size, decoder.num_attention_heads = encoder.hidden_size, encoder.num_attention_heads
        decoder.is_decoder = decoder.add_cross_attention = True
        return transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
            encoder, decoder, pad_token_id=0, decoder_start_token_id=1, tie_word_embeddings=decoder.tie_word_embeddings
        )

    return config


def any_encoder(draws: Draws) -> PretrainedConfig:
    return draws.choice([bert, roberta, bert_generation])(draws)


def bart_kwargs(draws: Draws) -> ConfigKwargs:
    heads, head_width = draws.heads()
    other, vocabulary = draws.divisor(heads), draws.vocabulary()
    return {
        "vocab_size": vocabulary, "d_model": heads * head_width, "encoder_layers": draws.depth(),
        "decoder_layers": draws.depth(), "encoder_attention_heads": heads, "decoder_attention_heads": other,
        "encoder_ffn_dim": draws.randint(3, 90), "decoder_ffn_dim": draws.randint(3, 90),
        "max_position_embeddings": draws.max_positions(), "activation_function": draws.activation(),
        "scale_embedding": draws.flip(), "tie_word_embeddings": draws.flip(0.7), "pad_token_id": draws.randint(0, 3),
        "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
    }  # fmt: skip


def bart(draws: Draws) -> PretrainedConfig:
    return transformers.BartConfig(**bart_kwargs(draws))


def marian(draws: Draws) -> PretrainedConfig:
    """Marian's embedding is scaled by a small weight in published files; `scale_embedding` is sampled nevertheless."""
    kwargs = bart_kwargs(draws)
    kwargs |= {"pad_token_id": kwargs["vocab_size"] - 1, "decoder_start_token_id": kwargs["vocab_size"] - 1}
    kwargs |= {"share_encoder_decoder_embeddings": not draws.oddly()}
    if kwargs["d_model"] % 2 and not draws.oddly():
        kwargs["d_model"] *= 2  # attentive's sinusoids are pairs.
    return transformers.MarianConfig(**kwargs)


def t5(draws: Draws, tied: bool = True) -> PretrainedConfig:
    heads, head_width = draws.heads()
    gated = draws.flip(0.3 if tied else 0.8)
    activation = draws.choice(["relu", "silu", "gelu_new", "gelu"])
    return transformers.T5Config(
        vocab_size=draws.vocabulary(), d_model=draws.randint(5, 64), d_kv=head_width, num_heads=heads,
        d_ff=draws.randint(3, 90), num_layers=draws.depth(), num_decoder_layers=draws.choice([None, draws.depth()]),
        relative_attention_num_buckets=draws.choice([4, 6, 8, 10, 16, 32]),
        relative_attention_max_distance=draws.choice([17, 20, 33, 64, 128]), layer_norm_epsilon=draws.epsilon(),
        feed_forward_proj="gated-" * gated + activation, tie_word_embeddings=tied, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0,
    )  # fmt: skip


def t5_untied(draws: Draws) -> PretrainedConfig:
    return t5(draws, tied=False)


def pair(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    side = config.vocab_size, getattr(config, "max_position_embeddings", MAX_LENGTH)
    return pair_of(draws, side, side, padded, config.pad_token_id)


def two_configs(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """RoBERTa counts positions from the ids that are not the pad token's, and from that token's on."""
    sides = []
    for it in (config.encoder, config.decoder):
        unused = it.pad_token_id + 1 if it.model_type == "roberta" else 0
        sides.append((it.vocab_size, it.max_position_embeddings - unused))
    return pair_of(draws, *sides, padded, config.pad_token_id)


KINDS = [
    Kind("EncoderDecoderModel", two_models(bert_generation, bert_generation), two_configs),
    Kind("EncoderDecoderModel bert", two_models(any_encoder, bert), two_configs),
    Kind("EncoderDecoderModel roberta", two_models(any_encoder, roberta), two_configs),
    Kind("EncoderDecoderModel gpt2", two_models(any_encoder, gpt2), two_configs),
    *family("Bart", ["ForConditionalGeneration", "Model"], bart, pair),
    Kind("MarianMTModel", marian, pair),
    Kind("T5ForConditionalGeneration", t5, pair),
    Kind("T5ForConditionalGeneration untied", t5_untied, pair),
]
