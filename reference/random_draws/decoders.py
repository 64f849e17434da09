"""Decoders: GPT-2 and the Llama family."""

from __future__ import annotations

import math

import transformers
from transformers import PretrainedConfig

from .draws import ConfigKwargs, Draws, ModelClass, Tensors
from .texts import text, text_inputs, text_with_pads, with_encoder_states


def gpt2(draws: Draws) -> PretrainedConfig:
    heads, head_width = draws.heads()
    vocabulary = draws.vocabulary()
    return transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=draws.max_positions(), n_embd=heads * head_width, n_layer=draws.depth(),
        n_head=heads, n_inner=draws.choice([None, draws.randint(3, 90)]), activation_function=draws.activation(),
        layer_norm_epsilon=draws.epsilon(), tie_word_embeddings=draws.flip(0.7), num_labels=draws.labels(),
        scale_attn_weights=not draws.unsupported(), scale_attn_by_inverse_layer_idx=draws.unsupported(),
        pad_token_id=draws.randrange(vocabulary), bos_token_id=0, eos_token_id=1, summary_use_proj=draws.flip(),
    )  # fmt: skip


def gpt2_with_cross_attention(draws: Draws) -> PretrainedConfig:
    config = gpt2(draws)
    config.add_cross_attention = draws.flip()
    return config


def gpt2_text(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    return text_inputs(draws, config, padded, config.n_positions)


def rope(draws: Draws, max_positions: int) -> ConfigKwargs:
    """Every scaling, each with and without the settings that have defaults."""
    rope_types = ["default", "default", "linear", "dynamic", "yarn", "yarn", "llama3"]
    rope_type = "longrope" if draws.unsupported(0.1) else draws.choice(rope_types)
    kwargs: ConfigKwargs = {"rope_type": rope_type, "rope_theta": draws.choice([10000.0, 1e6, 500.0, 12345.0])}
    if rope_type != "default":
        kwargs["factor"] = draws.choice([1.0, 2.0, 4.0, 1.5, 8])
    if rope_type == "longrope":
        kwargs |= {"original_max_position_embeddings": max_positions, "short_factor": [1.0], "long_factor": [2.0]}
    if rope_type in ("yarn", "llama3"):
        lengths = [max(2, max_positions // 2), max(2, max_positions // 4), max_positions]
        kwargs["original_max_position_embeddings"] = draws.choice(lengths)
    if rope_type == "llama3":
        low = draws.choice([1.0, 2.0])
        kwargs |= {"low_freq_factor": low, "high_freq_factor": low * draws.choice([2.0, 4.0])}
    if rope_type == "yarn":
        optional = {
            "attention_factor": draws.choice([1.0, 0.7, 1.3]), "beta_fast": draws.choice([32, 16.0, 4]),
            "beta_slow": draws.choice([1, 2.0]), "truncate": draws.flip(), "mscale": draws.choice([0.7, 1.0]),
            "mscale_all_dim": draws.choice([0.5, 1.0]),
        }  # fmt: skip
        kwargs |= {name: value for name, value in optional.items() if draws.flip(0.4)}
    return kwargs


def llama_kwargs(draws: Draws) -> ConfigKwargs:
    """The settings of the Llama family."""
    heads, head_width = draws.heads(even=True)
    max_positions = draws.max_positions()
    width = heads * head_width
    kwargs: ConfigKwargs = {"head_dim": None}
    if draws.flip():
        kwargs["head_dim"] = draws.choice([4, 6, 10, 16])
        width = heads * draws.randint(math.ceil(5 / heads), 70 // heads)  # Llama's config requires a multiple nevertheless.
    return kwargs | {
        "vocab_size": draws.vocabulary(), "hidden_size": width, "num_hidden_layers": draws.depth(),
        "num_attention_heads": heads, "num_key_value_heads": draws.divisor(heads),
        "intermediate_size": draws.randint(3, 90), "max_position_embeddings": max_positions,
        "rms_norm_eps": draws.epsilon(), "rope_parameters": rope(draws, max_positions),
        "tie_word_embeddings": draws.flip(), "hidden_act": draws.activation(), "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def llama(draws: Draws) -> PretrainedConfig:
    kwargs = llama_kwargs(draws)
    return transformers.LlamaConfig(attention_bias=draws.flip(0.3), mlp_bias=draws.flip(0.3), **kwargs)


def window(draws: Draws) -> int | None:
    return draws.choice([None, 1, 2, 3, draws.randint(4, 20), 4096])


def mistral(draws: Draws) -> PretrainedConfig:
    return transformers.MistralConfig(sliding_window=window(draws), **llama_kwargs(draws))


def qwen_kwargs(draws: Draws) -> ConfigKwargs:
    """Sliding windows in every form of Qwen's config."""
    kwargs = llama_kwargs(draws)
    kwargs |= {"use_sliding_window": draws.flip(), "sliding_window": draws.randint(1, 10)}
    kwargs["max_window_layers"] = draws.choice([0, 1, 2, 28])
    if kwargs["use_sliding_window"] and draws.flip():
        layer_types = ["full_attention", "sliding_attention"]
        kwargs["layer_types"] = [draws.choice(layer_types) for _ in range(kwargs["num_hidden_layers"])]
    return kwargs


def qwen2(draws: Draws) -> PretrainedConfig:
    kwargs = qwen_kwargs(draws)
    if kwargs["head_dim"] is None:
        del kwargs["head_dim"]  # Not a key of Qwen2's config.
    return transformers.Qwen2Config(**kwargs)


def qwen3(draws: Draws) -> PretrainedConfig:
    kwargs = qwen_kwargs(draws)
    if kwargs["head_dim"] is None:
        kwargs["head_dim"] = draws.choice([4, 6, 8])
    return transformers.Qwen3Config(attention_bias=draws.flip(0.3), **kwargs)


def mixtral(draws: Draws) -> PretrainedConfig:
    experts, kwargs = draws.randint(1, 6), llama_kwargs(draws)
    # transformers cannot scale RoPE without `head_dim`.
    kwargs["head_dim"] = kwargs["head_dim"] or kwargs["hidden_size"] // kwargs["num_attention_heads"]
    return transformers.MixtralConfig(
        num_local_experts=experts, num_experts_per_tok=draws.randint(1, experts), sliding_window=window(draws),
        router_jitter_noise=0.1 if draws.unsupported() else 0.0, **kwargs,
    )  # fmt: skip


MODEL_CLASSES = [
    ModelClass("GPT2LMHeadModel", gpt2_with_cross_attention, with_encoder_states(gpt2_text)),
    ModelClass("GPT2ForSequenceClassification", gpt2, text_with_pads, pools_last=True),
    ModelClass("LlamaForCausalLM", llama, text),
    ModelClass("MistralForCausalLM", mistral, text),
    ModelClass("Qwen2ForCausalLM", qwen2, text),
    ModelClass("Qwen3ForCausalLM", qwen3, text),
    ModelClass("MixtralForCausalLM", mixtral, text),
]
