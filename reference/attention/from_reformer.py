"""Reformer's LSH attention from transformers. Kitaev et al. 2020.

What LSHSelfAttention computes, in each row and head, for vectors x = query_key(inputs) of head width d:

Hashing. For hash r, h = x R_r with R_r = rotations[head, :, r, :], and the bucket is the argmax of [h, -h] (the first of
equals). Padding has a bucket of its own after all others. No gradient flows through it. The rotations are shared by
the batch's rows.

Sorting. Bucket numbers get r * buckets added (buckets + 1 with padding), so that the hashes follow one another, and
all hashes * length entries are sorted by bucket, stably: within a bucket by position. They are split into chunks of `chunk`
entries. Chunks are independent of bucket boundaries: a query also attends to keys of other buckets in its chunks.

Attending. A query attends to the keys of its own chunk, of `chunks_before` chunks before it and `chunks_after` after it,
circularly over the chunks of all hashes: the chunk before the first chunk of hash r is the last chunk of hash r - 1, and that
before the first chunk of hash 0 the last chunk of the last hash. Hence a position may be among a query's keys twice; it then
counts twice.

Scores. q = x. k = x / sqrt(mean(x^2) + 1e-6) / sqrt(d), with gradient: keys have (almost) norm 1, and scores are not
scaled otherwise. Keys of padding and, when causal, of later positions score -1e9. After that, keys of the query's own position score -1e5,
wherever they are: a query attends to itself only if there is nothing else for that hash. Replaced scores have no gradient.

Merging. For each hash, out_r is the softmax-weighted sum of values and z_r the log-sum-exp of the scores, including the
replaced ones. The result is sum_r exp(z_r - logsumexp_r z_r) out_r, with gradient through z: a hash for which a query sees
only itself has no weight unless all hashes do.

If the length is at most `chunk`, nothing is hashed: one softmax over all keys, with the same keys, masks and scores. Otherwise
the length must be a multiple of `chunk`. The output projection is ReformerSelfOutput's, without bias.
"""

from collections.abc import Iterator
from unittest.mock import patch

import torch
import transformers
from torch.func import functional_call
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from case import Case, Result, Tensors, attention_mask, draw, generator, linear, linears, split_heads

BATCH, HEADS, HEAD_WIDTH, WIDTH = 2, 2, 6, 16
SOURCE = f"transformers {transformers.__version__} LSHSelfAttention"


def cases() -> Iterator[Case]:
    yield case("reformer_self", "bidirectional", 24, 1, 4, 1)
    yield case("reformer_self_before_only", "bidirectional", 24, 2, 4, 0)
    yield case("reformer_self_padded", "bidirectional", 24, 2, 4, 1, [24, 14])
    yield case("reformer_causal", "causal", 24, 1, 4, 0)
    yield case("reformer_causal_rounds", "causal", 32, 3, 8, 0)
    yield case("reformer_causal_padded", "causal", 20, 2, 4, 0, [11, 20])
    yield case("reformer_causal_one_chunk", "causal", 8, 2, 8, 0)


def case(name: str, role: str, length: int, hashes: int, chunk: int, after: int, lengths: list[int] | None = None) -> Case:
    buckets = 6
    inner = HEADS * HEAD_WIDTH
    parameters = linears(name, {"query_key": (inner, WIDTH), "value": (inner, WIDTH), "output": (WIDTH, inner)})
    rotations = torch.randn((HEADS, HEAD_WIDTH, hashes, buckets // 2), generator=generator(f"{name} rotations"))
    padding = None if lengths is None else torch.tensor(lengths)

    def function(inputs: Tensors, parameters: Tensors) -> Result:
        settings = ReformerConfig(
            hidden_size=WIDTH, num_attention_heads=HEADS, attention_head_size=HEAD_WIDTH, is_decoder=role == "causal",
            num_buckets=buckets, num_hashes=hashes, lsh_attn_chunk_length=chunk, lsh_num_chunks_before=1,
            lsh_num_chunks_after=after, lsh_attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        module = LSHSelfAttention(settings).double()
        state = {f"{part}.weight": parameters[f"{part}.weight"] for part in ("query_key", "value")}
        mask = None if padding is None else attention_mask(padding, length).double()
        check_margins(name, linear(inputs["queries"], parameters, "query_key"), rotations)
        with patch.object(torch, "randn", lambda *_, **__: rotations.double()):
            context = functional_call(module, state, (inputs["queries"],), {"attention_mask": mask}).hidden_states
        return Result(linear(context, parameters, "output"))

    config = {
        "kind": "reformer", "heads": HEADS, "head_width": HEAD_WIDTH, "buckets": buckets, "hashes": hashes,
        "chunk": chunk, "chunks_before": 1, "chunks_after": after, "bias": False, "output_bias": False,
    }  # fmt: skip
    inputs = draw(name, {"queries": (BATCH, length, WIDTH)})
    return Case(name, SOURCE, role, config, inputs, parameters, function, padding, {"rotations": rotations})


def check_margins(name: str, vectors: torch.Tensor, rotations: torch.Tensor) -> None:
    """Float32 must find the same buckets as float64 did."""
    hashed = torch.einsum("bmtd,mdhr->bmhtr", split_heads(vectors.detach(), HEADS), rotations.double())
    best = torch.cat([hashed, -hashed], -1).topk(2).values
    margin = (best[..., 0] - best[..., 1]).min()
    assert margin > 1e-4, f"{name}: a vector is within {margin:.1e} of another bucket; draw again"
