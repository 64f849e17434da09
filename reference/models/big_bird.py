"""BigBird's block-sparse attention: blocks at both ends, neighbours, and random blocks.

reference/attention/from_big_bird.py documents the attention and how its blocks are sampled.

- In evaluation transformers samples nothing: every random block is block 0, which is visible anyway and then counts once
  more per random block. So do the goldens without a prefix, and every use of a published checkpoint.
- In training (`drawn`, here without dropout) layer i sets numpy's global seed to i on every call and samples with
  numpy.random.permutation, hence the same blocks each time: `drawn.random_blocks.i` [heads, blocks - 2, random blocks] lists
  those of the blocks 1 .. blocks - 2. The layer's index is the seed.
- A text of at most (5 + 2 random blocks) * block tokens gets full attention (`short`), and so does every later text.
- A text is padded to a multiple of the block (`uneven`).
- `drawn.attentions.i` are [batch, heads, queries, keys]. In evaluation transformers keeps one of the equal weights of a block
  that counts several times; `dense_attentions.i` have them all (dense.py), and sum to one.
- Masked scores get -10000 added, in full attention float32's minimum. Sparse attention is zero at padding.
- Otherwise BERT, with gelu_new in layers and head, dropout before the embedding's norm and, with
  `rescale_embeddings`, token embeddings times sqrt(width). `hidden_states` but the last have the padded length.
"""

from unittest.mock import patch

import numpy
import torch
from transformers import BigBirdConfig, BigBirdForMaskedLM
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from dense import dense
from folder import Tensors, base, case, draw_ids, loaded, reloaded, write_golden

BATCH, BLOCK, BLOCKS, RANDOM = 2, 2, 11, 2
LENGTH = BLOCK * BLOCKS


def big_bird(name: str) -> None:
    config = BigBirdConfig(
        vocab_size=66, hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=28,
        max_position_embeddings=40, type_vocab_size=2, attention_type="block_sparse", block_size=BLOCK,
        num_random_blocks=RANDOM, hidden_act="gelu_new", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-12, use_bias=True, rescale_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        sep_token_id=3,
    )  # fmt: skip
    folder, model = reloaded(name, BigBirdForMaskedLM(config), 850)
    inputs = {"input_ids": draw_ids(66, (BATCH, LENGTH), 851, (0,)), "token_type_ids": draw_ids(2, (BATCH, LENGTH), 852)}
    golden = case(model, inputs, output_hidden_states=True)
    golden |= base(model, inputs, only=("last_hidden_state",))
    golden |= dense(model, inputs)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[0, -5:] = mask[1, :3] = 0
    padded = {"input_ids": draw_ids(66, (BATCH, LENGTH), 853, (0,)), "attention_mask": mask}
    golden |= case(model, padded, "padded.", ("logits",))
    golden |= case(model, {"input_ids": draw_ids(66, (BATCH, LENGTH - 1), 854, (0,))}, "uneven.", ("logits",))
    golden |= training_case(model, inputs)
    model = loaded(folder, BigBirdForMaskedLM)
    golden |= case(model, {"input_ids": draw_ids(66, (BATCH, 12), 855, (0,))}, "short.", ("logits",))
    assert model.bert.attention_type == "original_full"
    write_golden(folder, golden)


def training_case(model: torch.nn.Module, inputs: Tensors) -> Tensors:
    blocks = []
    draw = BigBirdBlockSparseAttention._bigbird_block_rand_mask_with_head

    def keeping(self, **settings):
        blocks.append(torch.from_numpy(numpy.stack(draw(self, **settings))))
        return list(blocks[-1].numpy())

    model.train()
    with patch.object(BigBirdBlockSparseAttention, "_bigbird_block_rand_mask_with_head", keeping):
        golden = case(model, inputs, "drawn.", ("logits", "attentions"), output_attentions=True)
    model.eval()
    layers = model.config.num_hidden_layers
    blocks, again = blocks[:layers], blocks[layers:]  # `case` computes in float32 and in float64.
    assert all(map(torch.equal, blocks, again)) and len(again) == layers and (blocks[0] != 0).all()
    return golden | {f"drawn.random_blocks.{i}": it for i, it in enumerate(blocks)}
