"""Encoders: the BERT family, and the decoders derived from it."""

from __future__ import annotations

import transformers
from transformers import PretrainedConfig

from .draws import TASKS, ConfigKwargs, Draws, ModelClass, family
from .texts import plain_text, roberta_text, text, with_encoder_states


def bert_kwargs(draws: Draws) -> ConfigKwargs:
    """The settings of the BERT family."""
    heads, head_width = draws.heads()
    vocabulary = draws.vocabulary()
    return {
        "vocab_size": vocabulary, "hidden_size": heads * head_width, "num_hidden_layers": draws.depth(),
        "num_attention_heads": heads, "intermediate_size": draws.randint(3, 90), "hidden_act": draws.activation(),
        "max_position_embeddings": draws.max_positions(), "layer_norm_eps": draws.epsilon(),
        "tie_word_embeddings": draws.flip(0.7), "pad_token_id": draws.randint(0, 3), "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def bert(draws: Draws) -> PretrainedConfig:
    types, labels = draws.randint(1, 4), draws.labels()
    return transformers.BertConfig(**bert_kwargs(draws), type_vocab_size=types, num_labels=labels)


def bert_decoder(draws: Draws) -> PretrainedConfig:
    config = bert(draws)
    config.is_decoder, config.add_cross_attention = True, draws.flip()
    return config


def roberta(draws: Draws) -> PretrainedConfig:
    kwargs = bert_kwargs(draws)
    kwargs["max_position_embeddings"] += kwargs["pad_token_id"] + 1
    types, labels = draws.randint(1, 3), draws.labels()
    return transformers.RobertaConfig(**kwargs, type_vocab_size=types, num_labels=labels)


def roberta_decoder(draws: Draws) -> PretrainedConfig:
    config = roberta(draws)
    config.is_decoder, config.add_cross_attention = True, draws.flip()
    return config


def distilbert(draws: Draws) -> PretrainedConfig:
    heads, head_width = draws.heads()
    return transformers.DistilBertConfig(
        vocab_size=draws.vocabulary(), dim=heads * head_width, n_layers=draws.depth(), n_heads=heads,
        hidden_dim=draws.randint(3, 90), max_position_embeddings=draws.max_positions(), activation=draws.activation(),
        sinusoidal_pos_embds=draws.flip(0.3), tie_word_embeddings=draws.flip(0.7), num_labels=draws.labels(),
        pad_token_id=draws.randint(0, 3),
    )  # fmt: skip


def albert(draws: Draws) -> PretrainedConfig:
    layers = draws.depth()
    return transformers.AlbertConfig(
        **bert_kwargs(draws) | {"num_hidden_layers": layers}, type_vocab_size=draws.randint(1, 4),
        num_labels=draws.labels(), embedding_size=draws.randint(5, 40), num_hidden_groups=draws.randint(1, layers),
        inner_group_num=draws.randint(1, 3),
    )  # fmt: skip


def bert_generation(draws: Draws) -> PretrainedConfig:
    return transformers.BertGenerationConfig(**bert_kwargs(draws))


def bert_generation_decoder(draws: Draws) -> PretrainedConfig:
    config = bert_generation(draws)
    config.is_decoder = draws.flip(0.8)
    config.add_cross_attention = config.is_decoder and draws.flip()
    return config


MODEL_CLASSES = [
    *family("Bert", ["Model", "ForMaskedLM", "ForPreTraining", "ForNextSentencePrediction", *TASKS], bert, text),
    ModelClass("BertLMHeadModel", bert_decoder, with_encoder_states(text)),
    *family("Roberta", ["Model", "ForMaskedLM", *TASKS], roberta, roberta_text),
    ModelClass("RobertaForCausalLM", roberta_decoder, with_encoder_states(roberta_text)),
    *family("DistilBert", ["Model", "ForMaskedLM", *TASKS], distilbert, plain_text),
    *family("Albert", ["Model", "ForMaskedLM", "ForPreTraining", *TASKS], albert, text),
    ModelClass("BertGenerationEncoder", bert_generation, text),
    ModelClass("BertGenerationDecoder", bert_generation_decoder, with_encoder_states(text)),
]
