"""Transformer-XL, which transformers 4 has and 5 has not.

The first segment alone is compared: attentive does not return the memory. There are no masks, so both texts are unpadded.
"""

from __future__ import annotations

import transformers
from transformers import PretrainedConfig

from .draws import Draws, ModelClass, Tensors
from .texts import MAX_LENGTH, ids, length_of


def transformer_xl(draws: Draws) -> PretrainedConfig:
    vocabulary = draws.randint(30, 200)
    divisor, clusters = draws.choice([2, 2, 3, 4]), draws.randint(1, 3)
    return transformers.TransfoXLConfig(
        vocab_size=vocabulary, cutoffs=sorted(draws.sample(range(5, vocabulary - 1), clusters)),
        d_model=2 * draws.randint(3, 20), d_embed=draws.randint(divisor**clusters, 40 + divisor**clusters),
        n_head=draws.randint(1, 5), d_head=draws.randint(1, 9), d_inner=draws.randint(3, 90), div_val=divisor,
        n_layer=draws.depth(), mem_len=draws.randint(1, 20), clamp_len=draws.choice([-1, 0, draws.randint(1, 30)]),
        same_length=draws.flip(), proj_share_all_but_first=draws.flip(0.7), layer_norm_epsilon=draws.epsilon(),
        pre_lnorm=draws.unsupported(), untie_r=not draws.unsupported(), eos_token_id=0,
    )  # fmt: skip


def segment(draws: Draws, config: PretrainedConfig, padded: bool) -> Tensors:
    return {"input_ids": ids(draws, config.vocab_size, (draws.randint(1, 4), length_of(draws, MAX_LENGTH)))}


MODEL_CLASSES = [
    ModelClass("TransfoXLLMHeadModel", transformer_xl, segment),
    ModelClass("TransfoXLModel", transformer_xl, segment),
]
