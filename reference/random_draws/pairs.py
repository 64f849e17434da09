"""An encoder with a decoder: BART, Marian, T5, and two models of their own."""

from __future__ import annotations

import transformers
from transformers import PretrainedConfig

from .draws import Draws, Kind, Tensors, Words, family
from .encoders import bert_generation
from .texts import LONGEST, pair_of


def bert_generation_pair(draws: Draws) -> PretrainedConfig:
    """Widths are equal in about a third."""
    encoder, decoder = bert_generation(draws), bert_generation(draws)
    if draws.flip(0.3):
        decoder.hidden_size, decoder.num_attention_heads = encoder.hidden_size, encoder.num_attention_heads
    decoder.is_decoder = decoder.add_cross_attention = True
    return transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, pad_token_id=0, decoder_start_token_id=1, tie_word_embeddings=decoder.tie_word_embeddings
    )


def bart_words(draws: Draws) -> Words:
    heads, each = draws.heads()
    other, vocabulary = draws.divisor(heads), draws.vocabulary()
    return {
        "vocab_size": vocabulary, "d_model": heads * each, "encoder_layers": draws.depth(),
        "decoder_layers": draws.depth(), "encoder_attention_heads": heads, "decoder_attention_heads": other,
        "encoder_ffn_dim": draws.randint(3, 90), "decoder_ffn_dim": draws.randint(3, 90),
        "max_position_embeddings": draws.longest(), "activation_function": draws.activation(),
        "scale_embedding": draws.flip(), "tie_word_embeddings": draws.flip(0.7), "pad_token_id": draws.randint(0, 3),
        "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
    }  # fmt: skip


def bart(draws: Draws) -> PretrainedConfig:
    return transformers.BartConfig(**bart_words(draws))


def marian(draws: Draws) -> PretrainedConfig:
    """Marian's embedding is scaled by a small weight in published files; `scale_embedding` is drawn all the same."""
    words = bart_words(draws)
    words |= {"pad_token_id": words["vocab_size"] - 1, "decoder_start_token_id": words["vocab_size"] - 1}
    words |= {"share_encoder_decoder_embeddings": not draws.oddly()}
    if words["d_model"] % 2 and not draws.oddly():
        words["d_model"] *= 2  # attentive's sinusoids are pairs.
    return transformers.MarianConfig(**words)


def t5(draws: Draws, tied: bool = True) -> PretrainedConfig:
    heads, each = draws.heads()
    gated = draws.flip(0.3 if tied else 0.8)
    activation = draws.choice(["relu", "silu", "gelu_new", "gelu"])
    return transformers.T5Config(
        vocab_size=draws.vocabulary(), d_model=draws.randint(5, 64), d_kv=each, num_heads=heads,
        d_ff=draws.randint(3, 90), num_layers=draws.depth(), num_decoder_layers=draws.choice([None, draws.depth()]),
        relative_attention_num_buckets=draws.choice([4, 6, 8, 10, 16, 32]),
        relative_attention_max_distance=draws.choice([17, 20, 33, 64, 128]), layer_norm_epsilon=draws.epsilon(),
        feed_forward_proj="gated-" * gated + activation, tie_word_embeddings=tied, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0,
    )  # fmt: skip


def t5_untied(draws: Draws) -> PretrainedConfig:
    return t5(draws, tied=False)


def pair(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    side = config.vocab_size, getattr(config, "max_position_embeddings", LONGEST)
    return pair_of(draws, side, side, padded, config.pad_token_id)


def two_configs(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    sides = [(it.vocab_size, it.max_position_embeddings) for it in (config.encoder, config.decoder)]
    return pair_of(draws, *sides, padded, config.pad_token_id)


KINDS = [
    Kind("EncoderDecoderModel", bert_generation_pair, two_configs),
    *family("Bart", ["ForConditionalGeneration", "Model"], bart, pair),
    Kind("MarianMTModel", marian, pair),
    Kind("T5ForConditionalGeneration", t5, pair),
    Kind("T5ForConditionalGeneration untied", t5_untied, pair),
]
