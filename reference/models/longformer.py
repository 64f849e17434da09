"""Longformer: RoBERTa's embeddings and head, sliding windows and global tokens.

reference/attention/from_longformer.py documents the attention. The window counts both sides and differs by layer: here 4 and
8, half windows of 2 and of 4. Global queries use `query_global`, `key_global` and `value_global`.

- Positions are counted from the ids, as RoBERTa's. A text is padded with the config's `pad_token_id` to a multiple of
  the largest window: `uneven`. The padding is masked and removed again.
- Attention is zero at padding, not a mean of values.
- `attentions.i` is [batch, heads, length, globals + window + 1]: first the weights on the row's globals in their order, then
  on i - half_window .. i + half_window. The rows of global queries are zeros; `global_attentions.i` [batch, heads, length,
  globals] has theirs, by key. `dense_attentions.i` [batch, heads, queries, keys] is both in one matrix (dense.py).
"""

import torch
from transformers import LongformerConfig, LongformerForMaskedLM

from dense import dense
from folder import EVERYTHING, base, case, draw_ids, reloaded, write_golden

BATCH, LENGTH = 2, 16


def longformer(name: str) -> None:
    config = LongformerConfig(
        vocab_size=83, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, intermediate_size=34,
        attention_window=[4, 8], max_position_embeddings=35, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1,
        bos_token_id=0, eos_token_id=2, sep_token_id=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    folder, model = reloaded(name, LongformerForMaskedLM(config), 800)
    global_mask = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    global_mask[0, [0, 9]] = global_mask[1, 6] = 1
    inputs = {"input_ids": draw_ids(83, (BATCH, LENGTH), 801, (1,)), "global_attention_mask": global_mask}
    golden = case(model, inputs, **EVERYTHING)
    golden |= base(model, inputs)
    golden |= dense(model, inputs)
    golden |= case(model, {"input_ids": inputs["input_ids"]}, "local.", ("logits",))
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[0, 11:] = mask[1, :3] = 0
    ids = draw_ids(83, (BATCH, LENGTH), 802, (1,))
    ids[mask == 0] = config.pad_token_id
    ids[1, 8] = config.pad_token_id
    padded = {"input_ids": ids, "attention_mask": mask, "global_attention_mask": global_mask}
    golden |= case(model, padded, "padded.", ("logits",))
    uneven = {"input_ids": draw_ids(83, (BATCH, 13), 803, (1,)), "global_attention_mask": global_mask[:, :13]}
    golden |= case(model, uneven, "uneven.", ("logits",))
    write_golden(folder, golden)
