"""Transformer-XL with its adaptive softmax, from transformers 4.57.1. Dai et al. 2019.

reference/attention/from_transformer_xl.py documents the attention. Besides:

- Post-norm layers (epsilon 1e-5), ReLU; no biases in attention, biases in the MLP. `r_w_bias` and `r_r_bias` per layer.
- Embeddings are in clusters: ids below cutoffs[0] have width d_embed, those of cluster i d_embed / div_val^i; each cluster
  has a projection to d_model (`emb_projs.i` [d_model, width]); then times sqrt(d_model).
- The head of the softmax is the first cluster's tokens, then one entry per further cluster (`cluster_weight`, `cluster_bias`),
  log p(token) = log p(cluster) + log p(token | cluster). `logits` are these log-probabilities: transformers calls
  them prediction_scores. A cluster's matrix is tied to its embedding; its projection is tied from cluster 1 on
  (`tie_projs`), used transposed; cluster 0 has its own `crit.out_projs.0`. Biases are `crit.out_layers.i.bias`.
- Without `mems` transformers starts with a memory of `mem_len` zeros, which takes part in attention: a zero key still has
  the score of its distance. So does `first`; `second` continues with `first.new_mems`, `without_memory` has mem_len 0 and
  same_length off: plain causal attention.
- `mems.i` is [mem_len, batch, width], the inputs of layer i; the output of the last layer is not kept.
- same_length: query i sees mem_len keys up to and including its own, not all of the memory: keys j with
  i + m - mem_len < j <= i + m when m + length > mem_len.
- clamp_len: distances are clamped to it.
- `loss` is the mean over targets; the labels are shifted by the model. The single `losses` of transformers are in the order
  of clusters, not of tokens, and are not stored.
- 4.57.1 cannot run: it calls `type_as(dtype=..)`, which torch never had. It is replaced by `to(..)`.
- Greedy decoding processes the prompt and then token after token with the memory: a pass over the whole text gives others.
"""

import math
from unittest.mock import patch

import torch
from transformers.models.deprecated.transfo_xl.configuration_transfo_xl import TransfoXLConfig
from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import TransfoXLLMHeadModel

from folder import EVERYTHING, NEW_TOKENS, Tensors, draw_ids, exact, flat, repeats, saved, searched, write_golden

BATCH, LENGTH = 2, 10


def transformer_xl(name: str) -> None:
    config = TransfoXLConfig(
        vocab_size=61, cutoffs=[20, 38], d_model=18, d_embed=16, n_head=3, d_head=5, d_inner=28, div_val=2, n_layer=3,
        mem_len=7, clamp_len=12, same_length=True, dropout=0.0, dropatt=0.0, eos_token_id=0,
    )  # fmt: skip
    folder = saved(name, TransfoXLLMHeadModel(config), 1000)
    model = TransfoXLLMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    first = draw_ids(61, (BATCH, LENGTH), 1001)
    with patch.object(torch.Tensor, "type_as", type_as):
        golden = goldens(model, first)
    write_golden(folder, golden)


def type_as(tensor: torch.Tensor, other: torch.Tensor | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
    return tensor.to(dtype or other.dtype)


def goldens(model: torch.nn.Module, first: torch.Tensor) -> Tensors:
    golden = segment(model, first, [], "first.")
    mems = [golden[f"first.new_mems.{i}"] for i in range(model.config.n_layer)]
    golden |= segment(model, draw_ids(61, (BATCH, LENGTH), 1002), mems, "second.")
    golden |= loss(model, first)
    # With same_length and a memory of 0 nothing would be seen.
    model.reset_memory_length(0)
    model.transformer.same_length = False
    golden |= segment(model, first, [], "without_memory.")
    model.reset_memory_length(model.config.mem_len)
    model.transformer.same_length = True
    return golden | searched(1016, lambda it: greedy(model, draw_ids(61, (1, 5), it, (0,))))


@exact
@torch.no_grad()
def segment(model: torch.nn.Module, ids: torch.Tensor, mems: list[torch.Tensor], prefix: str) -> Tensors:
    mems = [it.to(model.dtype) for it in mems]
    output = model(ids, mems=mems or None, **EVERYTHING)
    golden = {f"{prefix}input_ids": ids, f"{prefix}logits": output.prediction_scores}
    golden |= flat(output, prefix, ("hidden_states", "attentions"))
    golden |= {f"{prefix}mems.{i}": it for i, it in enumerate(mems)}
    return golden | {f"{prefix}new_mems.{i}": it for i, it in enumerate(output.mems or [])}


@exact
@torch.no_grad()
def loss(model: torch.nn.Module, ids: torch.Tensor) -> Tensors:
    return {"loss.value": model(ids, labels=ids).loss.reshape(1)}


@exact
@torch.no_grad()
def greedy(model: torch.nn.Module, ids: torch.Tensor) -> Tensors | str:
    prompt, fed, mems, margin = ids, ids, None, math.inf
    for _ in range(NEW_TOKENS):
        output = model(fed, mems=mems)
        mems, best = output.mems, output.prediction_scores[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        fed = best.indices[None, :1]
        ids = torch.cat([ids, fed], 1)
    new = ids[0, -NEW_TOKENS:].tolist()
    if len(set(new)) <= 5 or repeats(new):
        return "it repeats itself"
    if model.config.eos_token_id in new or margin < 1e-2:
        return f"it has the end token, or two tokens are within {margin:.1e} of each other"
    return {"prompt_ids": prompt, "greedy_ids": ids}
