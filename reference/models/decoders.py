"""Decoders: causal attention. BERT as a decoder, and the Llama family.

Mistral, Qwen and Mixtral have Llama's blocks: RMS norms before attention and MLP and at the end, rotary positions over the
halves of a head (not interleaved), silu(gate) * up. The last of `hidden_states` is after the final norm and equals
`last_hidden_state`; the others are before it. Where a row is padded on the left, its padded queries see no key: their
weights are uniform over all keys and their logits are meaningless. Positions are 0, 1, .. in every row, padded or not.
"""

import torch
from transformers import (
    BertGenerationConfig,
    BertGenerationDecoder,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from folder import (
    EVERYTHING,
    IGNORED,
    Tensors,
    base,
    case,
    draw_ids,
    exact,
    generator,
    gradients,
    greedy,
    reloaded,
    searched,
    three_rows,
    write_golden,
)

BATCH, LENGTH, PROMPT = 2, 12, 5


def bert_generation_decoder(name: str) -> None:
    """BERT's post-norm layers under a causal mask, with cross-attention between self-attention and MLP.

    Without `encoder_hidden_states` the cross-attention sublayer is skipped, its residual and norm included: `alone`. The head
    is the embedding's matrix and a bias, without BERT's transform.
    """
    config = BertGenerationConfig(
        vocab_size=81, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=34,
        max_position_embeddings=46, is_decoder=True, add_cross_attention=True, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, pad_token_id=0, bos_token_id=2, eos_token_id=1,
    )  # fmt: skip
    folder, model = reloaded(name, BertGenerationDecoder(config), 300)
    encoder_mask = torch.ones(BATCH, 9, dtype=torch.long)
    encoder_mask[1, 6:] = 0
    encoder = {
        "encoder_hidden_states": torch.randn(BATCH, 9, config.hidden_size, generator=generator(302)),
        "encoder_attention_mask": encoder_mask,
    }
    inputs = text(config, 301) | encoder
    golden = case(model, inputs, use_cache=False, **EVERYTHING) | base(model, inputs, use_cache=False)
    golden |= case(model, text(config, 303), "alone.", use_cache=False)
    padded = padded_text(config, 304)
    padded |= {key: it[[0, 1, 1]] for key, it in encoder.items()}
    golden |= case(model, padded, "padded.", use_cache=False)
    golden |= longest_greedy(model, 313, "alone.")
    one = {key: it[:1] for key, it in encoder.items()}
    # transformers' generate gives a decoder without an encoder a cache that does not support cross-attention.
    golden |= longest_greedy(model, 396, cached=False, **one)
    write_golden(folder, golden)


def mistral(name: str) -> None:
    """A window of w: a query at i sees the keys i - w < j <= i, w of them with itself, in every layer."""
    config = MistralConfig(
        vocab_size=89, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=34, max_position_embeddings=64, sliding_window=5, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
    )  # fmt: skip
    folder, model = reloaded(name, MistralForCausalLM(config), 330)
    write_golden(folder, outputs(model, 331) | loss(model, 333) | longest_greedy(model, 341))


def qwen2(name: str) -> None:
    """Biases of queries, keys and values, none of the output; `sliding_window` has no effect: `use_sliding_window` is off."""
    config = Qwen2Config(
        vocab_size=97, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=38, max_position_embeddings=64, use_sliding_window=False, sliding_window=4, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, tie_word_embeddings=True, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    folder, model = reloaded(name, Qwen2ForCausalLM(config), 350)
    write_golden(folder, outputs(model, 351) | longest_greedy(model, 360))


def qwen3(name: str) -> None:
    """QK norm: an RMS norm over each query and key head, one weight for all heads, before RoPE. No biases."""
    config = Qwen3Config(
        vocab_size=93, hidden_size=20, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3, head_dim=8,
        intermediate_size=34, max_position_embeddings=64, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, tie_word_embeddings=True, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    folder, model = reloaded(name, Qwen3ForCausalLM(config), 370)
    write_golden(folder, outputs(model, 371) | longest_greedy(model, 383))


def mixtral(name: str) -> None:
    """Two of four experts per token: a softmax over all experts, the top two, renormalized.

    An expert is w2(silu(w1 x) * w3 x). `router_logits.i` is [batch * length, experts]. `aux_loss` is
    experts * sum_e f_e p_e, where f_e is the share of tokens dispatched to e and p_e the mean of e's probability, both over
    all layers together, padding excluded where there is a mask; f sums to 2. `balanced.value` is the loss + 0.02 aux_loss.
    In memory the experts are one tensor per layer; the file and the gradients have them separately.
    """
    config = MixtralConfig(
        vocab_size=71, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=20, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, router_aux_loss_coef=0.02, sliding_window=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    folder, model = reloaded(name, MixtralForCausalLM(config), 390)
    model.set_experts_implementation("eager")  # The others cannot do float64.
    golden = outputs(model, 391, output_router_logits=True) | loss(model, 394) | longest_greedy(model, 400)
    for i in range(config.num_hidden_layers):
        best = golden[f"router_logits.{i}"].sort(descending=True).values
        assert (best[:, 1] - best[:, 2]).min() > 1e-3, "two experts are chosen by rounding: draw again"
    # The labels are of the same tokens; transformers shifts them by one itself.
    inputs = {"input_ids": golden["loss.input_ids"]}
    labels = torch.cat([torch.full((BATCH, 1), IGNORED), golden["loss.targets"]], 1)[:, :LENGTH]
    write_golden(folder, golden | balanced(model, inputs, labels))


@exact
def balanced(model: torch.nn.Module, inputs: Tensors, labels: torch.Tensor) -> Tensors:
    result = model(**inputs, labels=labels, output_router_logits=True, use_cache=False)
    golden = {"balanced.labels": labels, "balanced.aux_loss": result.aux_loss.reshape(1)}
    golden |= {"balanced.value": result.loss.reshape(1)}
    return golden | gradients(model, result.loss, "balanced.", "gate.weight")


def outputs(model: torch.nn.Module, seed: int, **settings) -> Tensors:
    inputs = text(model.config, seed)
    golden = case(model, inputs, use_cache=False, **EVERYTHING, **settings) | base(model, inputs, use_cache=False)
    return golden | case(model, padded_text(model.config, seed + 1), "padded.", use_cache=False)


@exact
def loss(model: torch.nn.Module, seed: int) -> Tensors:
    """Targets are separate inputs, not shifted by the model; some are ignored."""
    ids = draw_ids(model.config.vocab_size, (BATCH, LENGTH + 1), seed)
    input_ids, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[0, :3] = targets[1, 7] = targets[1, -2:] = IGNORED
    logits = model(input_ids, use_cache=False).logits
    value = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    golden = {"loss.input_ids": input_ids, "loss.targets": targets, "loss.value": value.reshape(1)}
    return golden | gradients(model, value)


def text(config, seed: int) -> Tensors:
    return {"input_ids": draw_ids(config.vocab_size, (BATCH, LENGTH), seed)}


def padded_text(config, seed: int) -> Tensors:
    mask = three_rows(LENGTH)
    return {"input_ids": draw_ids(config.vocab_size, mask.shape, seed), "attention_mask": mask}


def longest_greedy(model: torch.nn.Module, seed: int, prefix: str = "", **more) -> Tensors:
    vocabulary = model.config.vocab_size
    return searched(seed, lambda it: greedy(model, draw_ids(vocabulary, (1, PROMPT), it, (0, 1, 2)), prefix, **more))
