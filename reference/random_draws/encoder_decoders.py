"""Encoder-decoders: BART, Marian, T5, and `EncoderDecoderModel`, which joins an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Callable

import transformers
from transformers import PretrainedConfig

from .decoders import gpt2
from .draws import ConfigKwargs, Draws, ModelClass, Tensors, family
from .encoders import bert, bert_generation, roberta
from .texts import MAX_LENGTH, source_target_inputs


def encoder_decoder_config(
    encoder_of: Callable[[Draws], PretrainedConfig], decoder_of: Callable[[Draws], PretrainedConfig]
) -> Callable[[Draws], PretrainedConfig]:
    """The config of an `EncoderDecoderModel`. Widths are equal in about a third."""

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
    decoder_heads, vocabulary = draws.divisor(heads), draws.vocabulary()
    return {
        "vocab_size": vocabulary, "d_model": heads * head_width, "encoder_layers": draws.depth(),
        "decoder_layers": draws.depth(), "encoder_attention_heads": heads, "decoder_attention_heads": decoder_heads,
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
    kwargs |= {"share_encoder_decoder_embeddings": not draws.unsupported()}
    if kwargs["d_model"] % 2 and not draws.unsupported():
        kwargs["d_model"] *= 2  # attentive's sinusoidal positions need an even width.
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


def seq2seq_inputs(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    vocabulary_and_length = config.vocab_size, getattr(config, "max_position_embeddings", MAX_LENGTH)
    return source_target_inputs(draws, vocabulary_and_length, vocabulary_and_length, padded, config.pad_token_id)


def encoder_decoder_inputs(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    """RoBERTa's position ids start at pad_token_id + 1, so it has that many fewer usable positions."""
    vocabularies_and_lengths = []
    for it in (config.encoder, config.decoder):
        unused = it.pad_token_id + 1 if it.model_type == "roberta" else 0
        vocabularies_and_lengths.append((it.vocab_size, it.max_position_embeddings - unused))
    return source_target_inputs(draws, *vocabularies_and_lengths, padded, config.pad_token_id)


MODEL_CLASSES = [
    ModelClass("EncoderDecoderModel", encoder_decoder_config(bert_generation, bert_generation), encoder_decoder_inputs),
    ModelClass("EncoderDecoderModel bert", encoder_decoder_config(any_encoder, bert), encoder_decoder_inputs),
    ModelClass("EncoderDecoderModel roberta", encoder_decoder_config(any_encoder, roberta), encoder_decoder_inputs),
    ModelClass("EncoderDecoderModel gpt2", encoder_decoder_config(any_encoder, gpt2), encoder_decoder_inputs),
    *family("Bart", ["ForConditionalGeneration", "Model"], bart, seq2seq_inputs),
    ModelClass("MarianMTModel", marian, seq2seq_inputs),
    ModelClass("T5ForConditionalGeneration", t5, seq2seq_inputs),
    ModelClass("T5ForConditionalGeneration untied", t5_untied, seq2seq_inputs),
]
