"""Encoder-decoders: `EncoderDecoderModel`, which joins an encoder and a decoder, BART, Marian and T5.

`encoder_hidden_states`, `encoder_attentions`, `decoder_hidden_states`, `decoder_attentions` and `cross_attentions` are as
transformers returns them. Cross-attention uses the encoder's mask. The padded batch has an encoder row padded on the left
and one on the right, and a decoder row padded on the right.
"""

import json

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertGenerationConfig,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    MarianConfig,
    MarianMTModel,
    PretrainedConfig,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from folder import (
    EVERYTHING,
    IGNORED,
    Tensors,
    beams,
    case,
    draw_ids,
    exact,
    generator,
    given,
    gradients,
    greedy,
    loaded,
    reloaded,
    saved,
    searched,
    three_rows,
    write_golden,
)

BATCH, SOURCE, TARGET = 2, 11, 9


def bert_generation_both(name: str) -> None:
    """Widths differ here, so `enc_to_dec_proj`, with a bias, projects the encoder's states; with equal widths there is none.

    The encoder's and the decoder's embeddings are separate. Nothing of `config.json` but its two parts, the start token and
    the pad token is used.
    """
    shared = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 0, "bos_token_id": 2}
    shared |= {"eos_token_id": 1}
    encoder = BertGenerationConfig(
        vocab_size=63, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=26,
        max_position_embeddings=22, **shared,
    )  # fmt: skip
    decoder = BertGenerationConfig(
        vocab_size=67, hidden_size=20, num_hidden_layers=2, num_attention_heads=2, intermediate_size=30,
        max_position_embeddings=40, is_decoder=True, add_cross_attention=True, **shared,
    )  # fmt: skip
    config = EncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, pad_token_id=0, decoder_start_token_id=2, eos_token_id=1
    )
    model = EncoderDecoderModel(config)
    model.generation_config.update(decoder_start_token_id=2, pad_token_id=0, eos_token_id=1, bos_token_id=2)
    folder, model = reloaded(name, model, 502, positions=1.0, boosted=1)
    golden = outputs(model, 501, 63, 67)
    golden |= searched(701, lambda it: greedy(model, draw_ids(63, (1, SOURCE), it, (0, 1, 2))))
    golden |= searched(507, lambda it: beams(model, draw_ids(63, (BATCH, SOURCE), it, (0, 1, 2)), 3))
    write_golden(folder, golden)


BERT_SETTINGS = {
    "num_hidden_layers": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 1,
}  # fmt: skip


def bert_bert(name: str) -> None:
    """BERT twice, of one width, hence without `enc_to_dec_proj`; the decoder is a BertLMHeadModel, its head a transform.

    The encoder has an unused pooler. Token types are 0 on both sides where none are given.
    """
    encoder = BertConfig(
        vocab_size=61, hidden_size=16, num_attention_heads=4, intermediate_size=26, max_position_embeddings=22, **BERT_SETTINGS
    )
    decoder = BertConfig(
        vocab_size=65, hidden_size=16, num_attention_heads=2, intermediate_size=22, max_position_embeddings=40,
        hidden_act="gelu_new", is_decoder=True, add_cross_attention=True, **BERT_SETTINGS,
    )  # fmt: skip
    write_encoder_decoder(name, encoder, decoder, 510, 766)


def roberta_roberta(name: str) -> None:
    """RoBERTa twice: the position ids of each skip its pad tokens and start at its pad_token_id + 1."""
    settings = BERT_SETTINGS | {"num_hidden_layers": 1}
    encoder = RobertaConfig(
        vocab_size=61, hidden_size=16, num_attention_heads=2, intermediate_size=26, max_position_embeddings=23,
        type_vocab_size=1, **settings,
    )  # fmt: skip
    decoder = RobertaConfig(
        vocab_size=63, hidden_size=12, num_attention_heads=3, intermediate_size=22, max_position_embeddings=41,
        type_vocab_size=1, is_decoder=True, add_cross_attention=True, **settings,
    )  # fmt: skip
    write_encoder_decoder(name, encoder, decoder, 520, 720)


def bert_gpt2(name: str) -> None:
    """GPT-2 with cross-attention to a BERT: `ln_cross_attn` before, `q_attn` for queries, keys and values in one `c_attn`."""
    encoder = BertConfig(
        vocab_size=61, hidden_size=12, num_attention_heads=2, intermediate_size=26, max_position_embeddings=22, **BERT_SETTINGS
    )
    decoder = GPT2Config(
        vocab_size=65, n_embd=16, n_head=4, n_layer=2, n_positions=40, n_inner=30, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, add_cross_attention=True, bos_token_id=2, eos_token_id=1,
    )  # fmt: skip
    write_encoder_decoder(name, encoder, decoder, 530, 877)


def write_encoder_decoder(name: str, encoder: PretrainedConfig, decoder: PretrainedConfig, seed: int, greedy_seed: int) -> None:
    config = EncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, pad_token_id=0, decoder_start_token_id=2, eos_token_id=1
    )
    model = EncoderDecoderModel(config)
    model.generation_config.update(decoder_start_token_id=2, pad_token_id=0, eos_token_id=1, bos_token_id=2)
    folder, model = reloaded(name, model, seed, positions=1.0)
    golden = outputs(model, seed + 1, encoder.vocab_size, decoder.vocab_size)
    golden |= searched(greedy_seed, lambda it: greedy(model, draw_ids(encoder.vocab_size, (1, SOURCE), it, (0, 1, 2))))
    write_golden(folder, golden)


def bart(name: str) -> None:
    """Post-norm, exact GELU, epsilons 1e-5. Learned positions are at an offset of two: position 0 is row 2 of the matrix.

    A norm follows the sum of embedding and position; there is none at the end. `final_logits_bias`, zeros in published
    files and so often left out of them, is added to the logits. `embed_tokens` of both sides and `lm_head` are `shared`.
    `beams.forced`: the end token is forced at the maximum length, as in published BART.
    """
    config = BartConfig(
        vocab_size=73, d_model=20, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=5, encoder_ffn_dim=34, decoder_ffn_dim=28, max_position_embeddings=42, dropout=0.0,
        activation_function="gelu", scale_embedding=False, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=None, num_labels=3,
    )  # fmt: skip
    folder, model = reloaded(name, BartForConditionalGeneration(config), 553, positions=1.0, scores=0.3, boosted=2)
    golden = outputs(model, 551, 73, 73)
    forced = {"beams.forced": {"length_penalty": 1.0, "early_stopping": True, "forced_eos_token_id": 2}}
    golden |= searched(664, lambda it: greedy(model, draw_ids(73, (1, SOURCE), it, (0, 1, 2))))
    golden |= searched(521, lambda it: beams(model, draw_ids(73, (BATCH, SOURCE), it, (0, 1, 2)), 3, forced))
    write_golden(folder, golden)


def marian(name: str) -> None:
    """Nearest to the original Transformer: post-norm, sinusoids, embeddings times sqrt(width), tied; no norm on embeddings.

    The sinusoids are not interleaved: sin(p / 10000^(2f / width)) for f = 0 .. width / 2 - 1, then the cosines. They are not
    in the file. `final_logits_bias` is added to the logits and is not zero in published files. The decoder starts with
    the pad token, which published generation settings forbid as output (`bad_words_ids`); here it is not forbidden.
    """
    config = MarianConfig(
        vocab_size=65, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=34, decoder_ffn_dim=28, max_position_embeddings=44, dropout=0.0,
        activation_function="swish", scale_embedding=True, pad_token_id=64, eos_token_id=0, bos_token_id=None,
        decoder_start_token_id=64, forced_eos_token_id=None, share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    folder, model = reloaded(name, MarianMTModel(config), 605, scale=0.15, embedding=0.03)
    golden = outputs(model, 601, 64, 64)
    golden |= searched(621, lambda it: greedy(model, draw_ids(64, (1, SOURCE), it, (0,))))
    write_golden(folder, golden)


def t5(name: str) -> None:
    """T5 1.0: ReLU, and the tied head takes the states times 1 / sqrt(width), as `tie_word_embeddings` is true.

    Attention scores are not scaled. Only block 0 of each side has `relative_attention_bias`, added in all blocks;
    cross-attention has none. Encoder: bidirectional buckets, decoder: causal ones.
    RMS norms (1e-6) before each sublayer and at the end, no biases anywhere. The last of the hidden states is after the norm.
    """
    config = T5Config(
        vocab_size=61, d_model=16, d_kv=6, d_ff=26, num_layers=2, num_decoder_layers=2, num_heads=3,
        relative_attention_num_buckets=8, relative_attention_max_distance=12, dropout_rate=0.0,
        feed_forward_proj="relu", decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, tie_word_embeddings=True,
    )  # fmt: skip
    folder, model = reloaded(name, T5ForConditionalGeneration(config), 650, scale=0.5, scores=0.25, boosted=1)
    golden = outputs(model, 651, 61, 61)
    mask = torch.ones(BATCH, SOURCE, dtype=torch.long)
    mask[1, -4:] = 0
    inputs = {"input_ids": draw_ids(61, (BATCH, SOURCE), 654, (0, 1)), "attention_mask": mask}
    labels = draw_ids(61, (BATCH, TARGET), 655, (0, 1))
    labels[0, -3:] = labels[1, 2] = IGNORED
    golden |= loss(model, inputs, labels)
    golden |= searched(954, lambda it: greedy(model, draw_ids(61, (1, SOURCE), it, (0, 1))))
    golden |= searched(504, lambda it: beams(model, draw_ids(61, (BATCH, SOURCE), it, (0, 1)), 3))
    write_golden(folder, golden)


def t5_v1_1(name: str) -> None:
    """T5 1.1: gelu_new(wi_0 x) * wi_1 x, an untied head, and no factor before it, as `tie_word_embeddings` is false.

    transformers 5 says that T5 is always tied and keeps the head apart only because the file has both; it would save such
    a model without its head. Hence the head is put into the file here, and the config is written as published files have it.
    """
    config = T5Config(
        vocab_size=85, d_model=18, d_kv=5, d_ff=24, num_layers=3, num_decoder_layers=2, num_heads=4,
        relative_attention_num_buckets=6, relative_attention_max_distance=10, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
        tie_word_embeddings=False,
    )  # fmt: skip
    folder = saved(name, T5ForConditionalGeneration(config), 700, scores=0.2)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = 0.25 * torch.randn(tensors["shared.weight"].shape, generator=generator(701))
    tensors["lm_head.weight"][config.eos_token_id] *= 2
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("scale_decoder_outputs", None)
    settings["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    model = loaded(folder, T5ForConditionalGeneration)
    assert torch.equal(model.lm_head.weight, tensors["lm_head.weight"]) and not model.config.scale_decoder_outputs
    assert torch.equal(model.shared.weight, tensors["shared.weight"])
    golden = outputs(model, 702, 85, 85)
    golden |= searched(766, lambda it: greedy(model, draw_ids(85, (1, SOURCE), it, (0, 1))))
    golden |= searched(751, lambda it: beams(model, draw_ids(85, (BATCH, SOURCE), it, (0, 1)), 3))
    write_golden(folder, golden)


@exact
def loss(model: torch.nn.Module, inputs: Tensors, labels: torch.Tensor) -> Tensors:
    value = model(**inputs, labels=labels).loss
    # The decoder's input is the start token and then the labels, the ignored ones as the pad token.
    inputs = inputs | {"labels": labels, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)}
    return given(inputs, "loss.") | {"loss.value": value.reshape(1)} | gradients(model, value)


def outputs(model: torch.nn.Module, seed: int, source_vocabulary: int, target_vocabulary: int) -> Tensors:
    def ids(vocabulary: int, rows: int, length: int, seed: int) -> torch.Tensor:
        return draw_ids(vocabulary, (rows, length), seed, (0, 1, 2))

    inputs = {
        "input_ids": ids(source_vocabulary, BATCH, SOURCE, seed),
        "decoder_input_ids": ids(target_vocabulary, BATCH, TARGET, seed + 1),
    }
    mask = three_rows(SOURCE)
    decoder_mask = torch.ones(3, TARGET, dtype=torch.long)
    decoder_mask[0, -2:] = 0
    padded = {
        "input_ids": ids(source_vocabulary, 3, SOURCE, seed + 2),
        "attention_mask": mask,
        "decoder_input_ids": ids(target_vocabulary, 3, TARGET, seed + 3),
        "decoder_attention_mask": decoder_mask,
    }
    golden = case(model, inputs, use_cache=False, **EVERYTHING)
    return golden | case(model, padded, "padded.", ("logits",), use_cache=False)
