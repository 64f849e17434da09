"""BigBird's block-sparse attention from transformers. Zaheer et al. 2020.

What BigBirdBlockSparseAttention computes, with n blocks of keys and queries, numbered from 0, and scale 1 / sqrt(head width):

- Queries of block 0 and of block n - 1 see every key.
- Queries of block 1 see the blocks 0, 1, 2 and n - 1, and their random blocks.
- Queries of block i in 2 .. n - 3 see the blocks 0, i - 1, i, i + 1 and n - 1, and their random blocks.
- Queries of block n - 2 see the blocks 0, n - 3, n - 2 and n - 1, and their random blocks.
- All of these in one softmax. Padded keys get -10000 added: exactly zero weight in float64. At padding, queries have zeros
  before the output projection, so the output is its bias.

So block 1 and block n - 2 follow the general rule, each block counted once, although their window overlaps a global
block. `random_blocks` [heads, n - 2, random blocks] lists the blocks 1 .. n - 2; all rows of a batch share it. A sampled
block that is visible anyway would count twice; the library never samples one. How it samples (only in training; in evaluation
every random block is block 0, which then counts once more per random block), for a head and a block i, from blocks below
`end`: not 0, not end - 1, not i - 1, i, i + 1; for block 1 not end - 2, for block end - 2 not 1. `end` is 2 r + 5 when there
are more blocks than that, so that later blocks are never sampled, and else n. (With at most 2 r + 5 but more than r + 5 blocks
half of the samples come from the first r + 5 blocks and half from the others.)
"""

from collections.abc import Iterator
from unittest.mock import patch

import numpy
import torch
import transformers
from torch.func import functional_call
from transformers import BigBirdConfig, BigBirdModel
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from case import Case, Result, Tensors, attention_mask, draw, linear, linears

BATCH, HEADS, WIDTH = 2, 2, 16
PARTS = ("query", "key", "value")
SOURCE = f"transformers {transformers.__version__} BigBirdBlockSparseAttention"


def cases() -> Iterator[Case]:
    yield case("big_bird", 12, 3, 2, None)
    # Row 0 ends within block 7, so its last block, which is global, is padding.
    yield case("big_bird_padded", 10, 4, 2, [30, 40])
    # The library's minimum of blocks: every block is visible, by the fixed pattern or as a random one.
    yield case("big_bird_few_blocks", 6, 3, 1, [18, 16])


def case(name: str, blocks: int, block: int, random_blocks: int, lengths: list[int] | None) -> Case:
    length = blocks * block
    parameters = linears(name, {part: (WIDTH, WIDTH) for part in (*PARTS, "output")}, (*PARTS, "output"))
    padding = None if lengths is None else torch.tensor(lengths)
    mask = attention_mask(torch.full((BATCH,), length) if padding is None else padding, length).double()
    module = BigBirdBlockSparseAttention(
        BigBirdConfig(hidden_size=WIDTH, num_attention_heads=HEADS, block_size=block, num_random_blocks=random_blocks),
        seed=0,
    ).double().train()  # fmt: skip
    numpy.random.seed(0)
    plan = module._get_rand_attn_plan(length, block, random_blocks)
    sampled_blocks = module._bigbird_block_rand_mask_with_head(length, length, block, block, HEADS, *plan)

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        blocked, band, from_mask, to_mask = BigBirdModel.create_masks_for_block_sparse_attn(mask, block)
        settings = {"band_mask": band, "from_mask": from_mask, "to_mask": to_mask}
        settings |= {"from_blocked_mask": blocked, "to_blocked_mask": blocked}
        state = {f"{part}.{it}": parameters[f"{part}.{it}"] for part in PARTS for it in ("weight", "bias")}
        with patch.object(module, "_bigbird_block_rand_mask_with_head", lambda **_: sampled_blocks):
            context, weights = functional_call(module, state, (inputs["queries"],), settings)
        return Result(linear(context, parameters, "output"), weights)

    config = {
        "kind": "big_bird", "heads": HEADS, "block": block, "random_blocks": random_blocks, "seed": 0,
        "bias": True, "output_bias": True,
    }  # fmt: skip
    made = Case(
        name, SOURCE, "bidirectional", config, draw(name, {"queries": (BATCH, length, WIDTH)}), parameters, function,
        padding,
    )  # fmt: skip
    made.given["random_blocks"] = torch.from_numpy(numpy.stack(sampled_blocks)).long()
    return made
