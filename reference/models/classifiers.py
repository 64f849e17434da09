"""Sequence classifiers on the last token of a decoder: the last that is not the pad token, whatever the mask says.

Row 0 of the padded batch ends with the pad token though the mask says that it is real, row 1 is padded on the right with
another token than the pad token, row 2 on the left with the pad token, and row 3 has only pad tokens, of which
transformers takes the first. Without a pad token a batch has one row, of which the last position counts.
"""

import torch
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    MistralConfig,
    MistralForSequenceClassification,
)

from folder import EVERYTHING, Tensors, case, draw_ids, reloaded, write_golden

LENGTH = 9


def gpt2_classifier(name: str) -> None:
    """GPT-2, with a pad token that is also one of the vocabulary's."""
    config = GPT2Config(
        vocab_size=57, n_positions=24, n_embd=20, n_layer=2, n_head=4, num_labels=4, pad_token_id=7, bos_token_id=3,
        eos_token_id=3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    folder, model = reloaded(name, GPT2ForSequenceClassification(config), 810)
    golden = case(model, {"input_ids": draw_ids(57, (2, LENGTH), 811, (7,))}, use_cache=False, **EVERYTHING)
    golden |= case(model, padded(57, 812, 7), "padded.", ("logits",), use_cache=False)
    write_golden(folder, golden)


def mistral_classifier(name: str) -> None:
    """Mistral, of the Llama family, without a pad token: one row at a time."""
    config = MistralConfig(
        vocab_size=59, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=26, max_position_embeddings=32, num_labels=3, problem_type="multi_label_classification",
        pad_token_id=None, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    folder, model = reloaded(name, MistralForSequenceClassification(config), 820)
    golden = case(model, {"input_ids": draw_ids(59, (1, LENGTH), 821)}, use_cache=False, **EVERYTHING)
    write_golden(folder, golden)


def padded(vocabulary: int, seed: int, padding: int) -> Tensors:
    ids = draw_ids(vocabulary, (4, LENGTH), seed, (padding,))
    mask = torch.ones_like(ids)
    ids[0, -1] = padding
    mask[1, -3:] = 0
    ids[2, :4], mask[2, :4] = padding, 0
    ids[3] = padding
    return {"input_ids": ids, "attention_mask": mask}
