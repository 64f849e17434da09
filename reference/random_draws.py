"""Random tiny configs of each class that attentive loads, and inputs for them: what random_configs.py compares.

To add a class: write a function from `Draws` to its config, or take one that is there, and name both in `KINDS`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from transformers import PreTrainedConfig

Tensors = dict[str, torch.Tensor]
Words = dict[str, object]

ACTIVATIONS = ["gelu", "relu", "gelu_new", "silu", "gelu_pytorch_tanh", "gelu_fast", "swish", "sigmoid"]
ODD_ACTIVATIONS = ["tanh", "quick_gelu", "mish", "gelu_10", "relu2", "leaky_relu", "gelu_python"]
LONGEST = 24


class Draws(random.Random):
    """Chance, repeatable by its seed. `odd` draws settings as well that attentive is known to refuse."""

    def __init__(self, seed: str, deep: bool = False, odd: bool = False) -> None:
        super().__init__(seed)
        self.deep, self.odd = deep, odd

    def flip(self, chance: float = 0.5) -> bool:
        return self.random() < chance

    def oddly(self, chance: float = 0.3) -> bool:
        """Whether a setting takes a value that is known to be refused."""
        drawn = self.random()  # Always, so that `odd` changes little else.
        return self.odd and drawn < chance

    def depth(self) -> int:
        return self.randint(8, 24) if self.deep else self.randint(1, 4)

    def heads(self, even: bool = False) -> tuple[int, int]:
        """How many heads, and how wide each is: 5 numbers together at least, as a norm of fewer magnifies every error."""
        heads = self.choice([1, 2, 3, 4, 5, 8])
        widths = [4, 6, 8, 16] if even else [1, 2, 3, 5, 7, 8, 16]
        return heads, self.choice([it for it in widths if heads * it >= 5])

    def epsilon(self) -> float:
        return self.choice([1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 0.1])

    def activation(self) -> str:
        return self.choice(ODD_ACTIVATIONS) if self.oddly() else self.choice(ACTIVATIONS)

    def vocabulary(self) -> int:
        return self.choice([self.randint(11, 40), self.randint(41, 300), 128])

    def longest(self) -> int:
        return self.randint(4, 64)

    def divisor(self, number: int) -> int:
        return self.choice([it for it in range(1, number + 1) if number % it == 0])

    def labels(self) -> int:
        return self.choice([1, 2, 3, 7, 12])

    def torch_seed(self) -> int:
        return self.randrange(2**31)


@dataclass(frozen=True)
class Kind:
    """A class of transformers: how its configs are drawn, and what it reads."""

    name: str
    config: Callable[[Draws], PreTrainedConfig]
    inputs: Callable[[Draws, PreTrainedConfig, bool], Tensors]
    #: Which token's state makes a vector of a whole row, so that rows in which it is padding are not compared.
    pools_last: bool = False


# Configs.


def gpt2(draws: Draws) -> PreTrainedConfig:
    heads, each = draws.heads()
    vocabulary = draws.vocabulary()
    return transformers.GPT2Config(
        vocab_size=vocabulary, n_positions=draws.longest(), n_embd=heads * each, n_layer=draws.depth(), n_head=heads,
        n_inner=draws.choice([None, draws.randint(3, 90)]), activation_function=draws.activation(),
        layer_norm_epsilon=draws.epsilon(), tie_word_embeddings=draws.flip(0.7), num_labels=draws.labels(),
        scale_attn_weights=not draws.oddly(), scale_attn_by_inverse_layer_idx=draws.oddly(),
        pad_token_id=draws.randrange(vocabulary), bos_token_id=0, eos_token_id=1, summary_use_proj=draws.flip(),
    )  # fmt: skip


def rope(draws: Draws, longest: int) -> Words:
    """Every scaling, each with and without the settings that have defaults."""
    kinds = ["default", "default", "linear", "dynamic", "yarn", "yarn", "llama3"]
    kind = "longrope" if draws.oddly(0.1) else draws.choice(kinds)
    words: Words = {"rope_type": kind, "rope_theta": draws.choice([10000.0, 1e6, 500.0, 12345.0])}
    if kind != "default":
        words["factor"] = draws.choice([1.0, 2.0, 4.0, 1.5, 8])
    if kind == "longrope":
        words |= {"original_max_position_embeddings": longest, "short_factor": [1.0], "long_factor": [2.0]}
    if kind in ("yarn", "llama3"):
        words["original_max_position_embeddings"] = draws.choice([max(2, longest // 2), max(2, longest // 4), longest])
    if kind == "llama3":
        low = draws.choice([1.0, 2.0])
        words |= {"low_freq_factor": low, "high_freq_factor": low * draws.choice([2.0, 4.0])}
    if kind == "yarn":
        optional = {
            "attention_factor": draws.choice([1.0, 0.7, 1.3]), "beta_fast": draws.choice([32, 16.0, 4]),
            "beta_slow": draws.choice([1, 2.0]), "truncate": draws.flip(), "mscale": draws.choice([0.7, 1.0]),
            "mscale_all_dim": draws.choice([0.5, 1.0]),
        }  # fmt: skip
        words |= {name: value for name, value in optional.items() if draws.flip(0.4)}
    return words


def llama_words(draws: Draws) -> Words:
    """What Llama and all of its kin have."""
    heads, each = draws.heads(even=True)
    longest = draws.longest()
    width = heads * each
    words: Words = {"head_dim": None}
    if draws.flip():
        words["head_dim"] = draws.choice([4, 6, 10, 16])
        width = heads * draws.randint(math.ceil(5 / heads), 70 // heads)  # Llama's config wants a multiple all the same.
    return words | {
        "vocab_size": draws.vocabulary(), "hidden_size": width, "num_hidden_layers": draws.depth(),
        "num_attention_heads": heads, "num_key_value_heads": draws.divisor(heads),
        "intermediate_size": draws.randint(3, 90), "max_position_embeddings": longest, "rms_norm_eps": draws.epsilon(),
        "rope_parameters": rope(draws, longest), "tie_word_embeddings": draws.flip(), "hidden_act": draws.activation(),
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def llama(draws: Draws) -> PreTrainedConfig:
    words = llama_words(draws)
    return transformers.LlamaConfig(attention_bias=draws.flip(0.3), mlp_bias=draws.flip(0.3), **words)


def window(draws: Draws) -> int | None:
    return draws.choice([None, 1, 2, 3, draws.randint(4, 20), 4096])


def mistral(draws: Draws) -> PreTrainedConfig:
    return transformers.MistralConfig(sliding_window=window(draws), **llama_words(draws))


def qwen_words(draws: Draws) -> Words:
    """Windows by all the ways that Qwen has to say them."""
    words = llama_words(draws)
    words |= {"use_sliding_window": draws.flip(), "sliding_window": draws.randint(1, 10)}
    words["max_window_layers"] = draws.choice([0, 1, 2, 28])
    if words["use_sliding_window"] and draws.flip():
        kinds = ["full_attention", "sliding_attention"]
        words["layer_types"] = [draws.choice(kinds) for _ in range(words["num_hidden_layers"])]
    return words


def qwen2(draws: Draws) -> PreTrainedConfig:
    words = qwen_words(draws)
    if words["head_dim"] is None:
        del words["head_dim"]  # Not a word of Qwen2's own.
    return transformers.Qwen2Config(**words)


def qwen3(draws: Draws) -> PreTrainedConfig:
    words = qwen_words(draws)
    if words["head_dim"] is None:
        words["head_dim"] = draws.choice([4, 6, 8])
    return transformers.Qwen3Config(attention_bias=draws.flip(0.3), **words)


def mixtral(draws: Draws) -> PreTrainedConfig:
    experts, words = draws.randint(1, 6), llama_words(draws)
    # transformers cannot scale rotations where the width of a head is not said.
    words["head_dim"] = words["head_dim"] or words["hidden_size"] // words["num_attention_heads"]
    return transformers.MixtralConfig(
        num_local_experts=experts, num_experts_per_tok=draws.randint(1, experts), sliding_window=window(draws),
        router_jitter_noise=0.1 if draws.oddly() else 0.0, **words,
    )  # fmt: skip


def bert_words(draws: Draws) -> Words:
    """What BERT and all of its kin have."""
    heads, each = draws.heads()
    vocabulary = draws.vocabulary()
    return {
        "vocab_size": vocabulary, "hidden_size": heads * each, "num_hidden_layers": draws.depth(),
        "num_attention_heads": heads, "intermediate_size": draws.randint(3, 90), "hidden_act": draws.activation(),
        "max_position_embeddings": draws.longest(), "layer_norm_eps": draws.epsilon(),
        "tie_word_embeddings": draws.flip(0.7), "pad_token_id": draws.randint(0, 3), "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


def bert(draws: Draws) -> PreTrainedConfig:
    types, labels = draws.randint(1, 4), draws.labels()
    return transformers.BertConfig(**bert_words(draws), type_vocab_size=types, num_labels=labels)


def bert_writer(draws: Draws) -> PreTrainedConfig:
    config = bert(draws)
    config.is_decoder, config.add_cross_attention = True, draws.flip()
    return config


def roberta(draws: Draws) -> PreTrainedConfig:
    words = bert_words(draws)
    words["max_position_embeddings"] += words["pad_token_id"] + 1
    types, labels = draws.randint(1, 3), draws.labels()
    return transformers.RobertaConfig(**words, type_vocab_size=types, num_labels=labels)


def roberta_writer(draws: Draws) -> PreTrainedConfig:
    config = roberta(draws)
    config.is_decoder, config.add_cross_attention = True, draws.flip()
    return config


def distilbert(draws: Draws) -> PreTrainedConfig:
    heads, each = draws.heads()
    return transformers.DistilBertConfig(
        vocab_size=draws.vocabulary(), dim=heads * each, n_layers=draws.depth(), n_heads=heads,
        hidden_dim=draws.randint(3, 90), max_position_embeddings=draws.longest(), activation=draws.activation(),
        sinusoidal_pos_embds=draws.flip(0.3), tie_word_embeddings=draws.flip(0.7), num_labels=draws.labels(),
        pad_token_id=draws.randint(0, 3),
    )  # fmt: skip


def albert(draws: Draws) -> PreTrainedConfig:
    layers = draws.depth()
    return transformers.AlbertConfig(
        **bert_words(draws) | {"num_hidden_layers": layers}, type_vocab_size=draws.randint(1, 4),
        num_labels=draws.labels(), embedding_size=draws.randint(5, 40), num_hidden_groups=draws.randint(1, layers),
        inner_group_num=draws.randint(1, 3),
    )  # fmt: skip


def bert_generation(draws: Draws) -> PreTrainedConfig:
    return transformers.BertGenerationConfig(**bert_words(draws))


def bert_generation_writer(draws: Draws) -> PreTrainedConfig:
    config = bert_generation(draws)
    config.is_decoder = draws.flip(0.8)
    config.add_cross_attention = config.is_decoder and draws.flip()
    return config


def bert_generation_pair(draws: Draws) -> PreTrainedConfig:
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


def bart(draws: Draws) -> PreTrainedConfig:
    return transformers.BartConfig(**bart_words(draws))


def marian(draws: Draws) -> PreTrainedConfig:
    """Marian's embedding is scaled by a small weight in published files; `scale_embedding` is drawn all the same."""
    words = bart_words(draws)
    words |= {"pad_token_id": words["vocab_size"] - 1, "decoder_start_token_id": words["vocab_size"] - 1}
    words |= {"share_encoder_decoder_embeddings": not draws.oddly()}
    if words["d_model"] % 2 and not draws.oddly():
        words["d_model"] *= 2  # attentive's sinusoids are pairs.
    return transformers.MarianConfig(**words)


def t5(draws: Draws, tied: bool = True) -> PreTrainedConfig:
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


def t5_untied(draws: Draws) -> PreTrainedConfig:
    return t5(draws, tied=False)


def vit_words(draws: Draws) -> Words:
    heads, each = draws.heads()
    patch = draws.choice([1, 2, 3, 4, 5, 8])
    rows, columns = draws.randint(1, 5), draws.randint(1, 5)
    spare = draws.randrange(patch) if draws.oddly() else 0
    size = [rows * patch, columns * patch] if draws.flip(0.3) else rows * patch + spare
    return {
        "hidden_size": heads * each, "num_hidden_layers": draws.depth(), "num_attention_heads": heads,
        "intermediate_size": draws.randint(3, 90), "hidden_act": draws.activation(), "layer_norm_eps": draws.epsilon(),
        "image_size": size, "patch_size": patch, "num_channels": draws.choice([1, 2, 3, 4]), "qkv_bias": draws.flip(0.7),
        "num_labels": draws.labels(), "pooler_output_size": draws.choice([None, draws.randint(2, 30)]),
        "pooler_act": draws.choice(["tanh", "tanh", "relu", "gelu"]),
    }  # fmt: skip


def vit(draws: Draws) -> PreTrainedConfig:
    return transformers.ViTConfig(**vit_words(draws))


def deit(draws: Draws) -> PreTrainedConfig:
    return transformers.DeiTConfig(**vit_words(draws))


# Inputs.


def ids(draws: Draws, vocabulary: int, shape: tuple[int, int], avoided: int | None = None) -> torch.Tensor:
    allowed = torch.tensor([it for it in range(vocabulary) if it != avoided])
    generator = torch.Generator().manual_seed(draws.torch_seed())
    return allowed[torch.randint(len(allowed), shape, generator=generator)]


def noise(draws: Draws, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(draws.torch_seed()))


def mask(draws: Draws, rows: int, length: int) -> torch.Tensor:
    """Row 0 is all real; the others are padded on the right, on the left, or on both sides."""
    found = torch.ones(rows, length, dtype=torch.long)
    for row in range(1, rows):
        real = draws.randint(1, length)
        start = draws.randint(0, length - real) if draws.flip() else 0
        found[row] = 0
        found[row, start : start + real] = 1
    return found


def length_of(draws: Draws, longest: int) -> int:
    longest = min(longest, LONGEST)
    return draws.choice([longest, draws.randint(1, longest), draws.randint(1, longest)])


def text(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
    """Ordinary ids below the padding, so that a mask that leaks shows."""
    return read(draws, config, padded, config.max_position_embeddings)


def read(draws: Draws, config: PreTrainedConfig, padded: bool, longest: int, positioned: bool = True) -> Tensors:
    """Ids; token types where there are some, positions of one's own now and then."""
    shape = draws.randint(2, 4), length_of(draws, longest)
    found = {"input_ids": ids(draws, config.vocab_size, shape, config.pad_token_id)}
    types = getattr(config, "type_vocab_size", 0)
    if types and draws.flip(0.7):
        found["token_type_ids"] = ids(draws, types, shape)
    if padded:
        found["attention_mask"] = mask(draws, *shape)
    if positioned and draws.flip(0.25):
        found["position_ids"] = positions(draws, shape, longest, padded)
    return found


def positions(draws: Draws, shape: tuple[int, int], longest: int, padded: bool) -> torch.Tensor:
    """In a row from anywhere on, or any at all.

    Without a mask transformers' decoders take a gap in the positions for the start of another text, which the tokens after
    it do not see beyond; attentive does not.
    """
    if padded:
        return ids(draws, longest, shape)
    starts = ids(draws, longest - shape[1] + 1, (shape[0], 1))
    return starts + torch.arange(shape[1])


def text_with_pads(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
    """The pad token stands below the padding, as transformers finds a row's last token by it."""
    found = text(draws, config, padded)
    if padded:
        found["input_ids"][found["attention_mask"] == 0] = config.pad_token_id
    return found


def counted_text(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
    """RoBERTa counts positions from the ids that are not the pad token's."""
    found = read(draws, config, padded, config.max_position_embeddings - config.pad_token_id - 1, positioned=False)
    if padded:
        found["input_ids"][found["attention_mask"] == 0] = config.pad_token_id
    elif draws.flip():
        found["input_ids"][0, -1] = config.pad_token_id
    return found


def plain_text(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
    """DistilBERT's, which takes positions only where they are its own."""
    return read(draws, config, padded, config.max_position_embeddings, positioned=False)


def seeing(base: Callable[[Draws, PreTrainedConfig, bool], Tensors]) -> Callable[[Draws, PreTrainedConfig, bool], Tensors]:
    """Adds the states of an encoder where the model looks at one; now and then it is left alone all the same."""

    def inputs(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
        found = base(draws, config, padded)
        if config.add_cross_attention and draws.flip(0.8):
            rows, length = len(found["input_ids"]), draws.randint(1, 12)
            found["encoder_hidden_states"] = noise(draws, rows, length, config.hidden_size)
            if padded:
                found["encoder_attention_mask"] = mask(draws, rows, length)
        return found

    return inputs


def pair_of(draws: Draws, source: tuple[int, int], target: tuple[int, int], padded: bool, pad: int | None) -> Tensors:
    """Ids for both sides, from each side's size of vocabulary and longest text."""
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


def pair(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
    side = config.vocab_size, getattr(config, "max_position_embeddings", LONGEST)
    return pair_of(draws, side, side, padded, config.pad_token_id)


def two_configs(draws: Draws, config: PreTrainedConfig, padded: bool) -> Tensors:
    sides = [(it.vocab_size, it.max_position_embeddings) for it in (config.encoder, config.decoder)]
    return pair_of(draws, *sides, padded, config.pad_token_id)


def pictures(draws: Draws, config: PreTrainedConfig, other_size: bool) -> Tensors:
    """Pictures of the config's size, or of another, for which positions are interpolated.

    transformers can do that only where the config's pictures are square.
    """
    size, patch = config.image_size, config.patch_size
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    if other_size and height == width:
        height, width = (draws.randint(1, 6) * patch for _ in range(2))
    return {"pixel_values": noise(draws, draws.randint(1, 3), config.num_channels, height, width)}


def answering(config: Callable[[Draws], PreTrainedConfig]) -> Callable[[Draws], PreTrainedConfig]:
    """Configs of two labels, as the start and the end of an answer are."""

    def two(draws: Draws) -> PreTrainedConfig:
        found = config(draws)
        found.num_labels = 2
        return found

    return two


def family(prefix: str, heads: list[str], config: Callable, inputs: Callable) -> list[Kind]:
    answers = answering(config)
    return [Kind(prefix + head, answers if head == ANSWERS else config, inputs) for head in heads]


ANSWERS = "ForQuestionAnswering"
TASKS = ["ForSequenceClassification", "ForTokenClassification", ANSWERS]

KINDS: list[Kind] = [
    Kind("GPT2LMHeadModel", gpt2, lambda draws, config, padded: read(draws, config, padded, config.n_positions)),
    Kind("GPT2ForSequenceClassification", gpt2, text_with_pads, pools_last=True),
    Kind("LlamaForCausalLM", llama, text),
    Kind("MistralForCausalLM", mistral, text),
    Kind("Qwen2ForCausalLM", qwen2, text),
    Kind("Qwen3ForCausalLM", qwen3, text),
    Kind("MixtralForCausalLM", mixtral, text),
    *family("Bert", ["Model", "ForMaskedLM", "ForPreTraining", "ForNextSentencePrediction", *TASKS], bert, text),
    Kind("BertLMHeadModel", bert_writer, seeing(text)),
    *family("Roberta", ["Model", "ForMaskedLM", *TASKS], roberta, counted_text),
    Kind("RobertaForCausalLM", roberta_writer, seeing(counted_text)),
    *family("DistilBert", ["Model", "ForMaskedLM", *TASKS], distilbert, plain_text),
    *family("Albert", ["Model", "ForMaskedLM", "ForPreTraining", *TASKS], albert, text),
    Kind("BertGenerationEncoder", bert_generation, text),
    Kind("BertGenerationDecoder", bert_generation_writer, seeing(text)),
    Kind("EncoderDecoderModel", bert_generation_pair, two_configs),
    *family("Bart", ["ForConditionalGeneration", "Model"], bart, pair),
    Kind("MarianMTModel", marian, pair),
    Kind("T5ForConditionalGeneration", t5, pair),
    Kind("T5ForConditionalGeneration untied", t5_untied, pair),
    *family("ViT", ["Model", "ForImageClassification"], vit, pictures),
    *family("DeiT", ["Model", "ForImageClassification", "ForImageClassificationWithTeacher"], deit, pictures),
]
