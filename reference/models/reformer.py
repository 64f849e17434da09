"""Reformer: reversible layers, axial positions, local attention and LSH attention.

reference/attention/from_reformer.py documents LSH attention.

Layers. Two streams start as the same embedding: a += attention(norm(h)), then h += mlp(norm(a)). At the end a and h are
concatenated, normalized over twice the width, and the head projects 2 width to the vocabulary. `hidden_states.i` is
the stream h before layer i, the last of them h after the last layer; `last_hidden_state`, twice as wide, is after the norm.

Positions. The embedding of position p is row p / n of `weights.0` [m, 1, d0] concatenated with row p % n of `weights.1`
[1, n, d1], for `axial_pos_shape` (m, n); d0 + d1 is the width.

Local attention. Chunks in order; a query sees its chunk, `local_num_chunks_before` before it and `.._after` after it. The
chunks are circular: the first chunk sees the last one too, unless the mask is causal. Scores are q k / sqrt(head
width); a token sees itself. A text that fits into one chunk is not split.

Hashing. The rotations are sampled in every layer and call from torch.manual_seed(`hash_seed`): the same for all
layers, `rotations` [heads, head width, hashes, sum of bucket factors / 2]. With factors of buckets [b0, b1] the first b0 / 2
columns give the bucket's remainder modulo b0 and the others its quotient: bucket = i0 + b0 i1.

Padding. A text longer than the smaller chunk is padded to a multiple of both chunks (`uneven`), with a mask.

Other. The MLP's activation is ReLU by config. No biases in attention. `lm_head.bias` is in the file, and transformers before 5
adds it; 5.22.2 does not. `logits` have it, `logits_without_bias` do not.
transformers' attentions are by chunk, [batch, heads, (hashes *) chunks, chunk, keys], for LSH in sorted
order; `dense_attentions.i` [batch, heads, queries, keys] are by position (dense.py).

A token that sees only itself. transformers gives its score -1e5, and a token may see itself once per hash: float32 cannot
represent -1e5 + log 2 to better than 4e-3, so weights that should be 1/2 become 0.499. Here the score is -30, which
changes no weight by more than 1e-13 and which float32 represents.
"""

import math
from unittest.mock import patch

import torch
from transformers import ReformerConfig, ReformerForMaskedLM, ReformerModelWithLMHead
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from dense import dense
from folder import NEW_TOKENS, Tensors, base, case, draw_ids, exact, reloaded, repeats, searched, write_golden

BATCH, LENGTH, SEED = 2, 16, 11


def reformer(name: str) -> None:
    """Causal. Its greedy tokens come from passes over the whole padded text; the cache of transformers is not used.

    A cached query attends only within its own bucket, so it may find other keys.
    """
    config = ReformerConfig(
        attn_layers=["local", "lsh", "lsh"], num_buckets=6, num_hashes=2, is_decoder=True, lsh_attn_chunk_length=4,
        local_attn_chunk_length=8, axial_pos_shape=[6, 8], **shared(vocab_size=72),
    )  # fmt: skip
    folder, model = reloaded(name, ReformerModelWithLMHead(config), 900)
    set_self_mask_value(model)
    golden = outputs(model, 901)
    golden |= searched(911, lambda it: greedy(model, draw_ids(72, (1, 5), it, (0, 2))))
    write_golden(folder, golden)


def reformer_masked(name: str) -> None:
    """Bidirectional: also attends to later chunks. Buckets in two factors."""
    config = ReformerConfig(
        attn_layers=["lsh", "local"], num_buckets=[2, 4], num_hashes=2, is_decoder=False, lsh_attn_chunk_length=4,
        local_attn_chunk_length=4, lsh_num_chunks_after=1, local_num_chunks_after=1, axial_pos_shape=[4, 6],
        **shared(vocab_size=68),
    )  # fmt: skip
    folder, model = reloaded(name, ReformerForMaskedLM(config), 950)
    set_self_mask_value(model)
    write_golden(folder, outputs(model, 951))


def set_self_mask_value(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, LSHSelfAttention):
            module.self_mask_value_float32.fill_(-30.0)


def shared(**more) -> dict:
    return {
        "hidden_size": 20, "num_attention_heads": 2, "attention_head_size": 6, "feed_forward_size": 28,
        "axial_pos_embds_dim": [8, 12], "hash_seed": SEED, "hidden_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
        "lsh_attention_probs_dropout_prob": 0.0, "local_attention_probs_dropout_prob": 0.0, "pad_token_id": 0,
        "eos_token_id": 2, "max_position_embeddings": 48, **more,
    }  # fmt: skip


def outputs(model: torch.nn.Module, seed: int) -> Tensors:
    config = model.config
    inputs = {"input_ids": draw_ids(config.vocab_size, (BATCH, LENGTH), seed, (0, 2))}
    golden = checked(model, inputs, "logits_without_bias")
    golden |= base(model, inputs)
    # As transformers 4 has it.
    model.lm_head.decoder.bias = model.lm_head.bias
    golden |= checked(model, inputs, "logits", output_hidden_states=True)
    golden |= dense(model, inputs)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[0, -5:] = 0
    if not config.is_decoder:
        mask[1, :3] = 0
    padded = {"input_ids": draw_ids(config.vocab_size, (BATCH, LENGTH), seed + 1, (0, 2)), "attention_mask": mask}
    golden |= checked(model, padded, "logits", "padded.")
    uneven = {"input_ids": draw_ids(config.vocab_size, (BATCH, 13), seed + 2, (0, 2))}
    golden |= checked(model, uneven, "logits", "uneven.")
    short = {"input_ids": draw_ids(config.vocab_size, (BATCH, 4), seed + 3, (0, 2))}
    golden |= checked(model, short, "logits", "short.")
    size = config.num_buckets if isinstance(config.num_buckets, int) else sum(config.num_buckets)
    torch.manual_seed(SEED)
    shape = (config.num_attention_heads, config.attention_head_size, config.num_hashes, size // 2)
    return golden | {"rotations": torch.randn(shape)}


def checked(model: torch.nn.Module, inputs: Tensors, logits: str, prefix: str = "", **settings) -> Tensors:
    with margins() as found:
        golden = case(model, inputs, prefix, **settings)
    assert min(found, default=1.0) > 1e-4, f"{prefix}: a vector is within {min(found):.1e} of another bucket; draw again"
    golden[prefix + logits] = golden.pop(prefix + "logits")
    return golden


class margins:
    """The margin between a vector's bucket and the next best."""

    def __enter__(self) -> list[float]:
        found: list[float] = []
        hashing = LSHSelfAttention._hash_vectors

        def measured(layer, vectors, num_hashes, mask, *rest):
            factors = [layer.num_buckets] if isinstance(layer.num_buckets, int) else layer.num_buckets
            torch.manual_seed(layer.hash_seed)
            rotations = torch.randn(vectors.shape[1], vectors.shape[-1], num_hashes, sum(factors) // 2)
            rotated = torch.einsum("bmtd,mdhr->bmhtr", vectors, rotations)
            for part in rotated.split([it // 2 for it in factors], -1):
                best = torch.cat([part, -part], -1).topk(2).values
                found.append((best[..., 0] - best[..., 1]).min().item())
            return hashing(layer, vectors, num_hashes, mask, *rest)

        self.patch = patch.object(LSHSelfAttention, "_hash_vectors", measured)
        self.patch.start()
        return found

    def __exit__(self, *_) -> None:
        self.patch.stop()


@exact
@torch.no_grad()
def greedy(model: torch.nn.Module, ids: torch.Tensor) -> Tensors | str:
    prompt, margin = ids, math.inf
    with margins() as found:
        for _ in range(NEW_TOKENS):
            best = model(ids, use_cache=False).logits[0, -1].topk(2)
            margin = min(margin, (best.values[0] - best.values[1]).item())
            ids = torch.cat([ids, best.indices[None, :1]], 1)
    new = ids[0, -NEW_TOKENS:].tolist()
    if len(set(new)) <= 5 or repeats(new):
        return "it repeats itself"
    if model.config.eos_token_id in new:
        return "it has the end token"
    if margin < 1e-2 or min(found) < 1e-4:
        return f"two tokens are within {margin:.1e} of each other, or two buckets within {min(found):.1e}"
    return {"prompt_ids": prompt, "greedy_ids": ids}
