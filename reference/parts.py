"""Makes fixtures/parts/golden.safetensors: what transformers computes for parts of models that no fixture model has.

Scaled rotary positions (frequencies, rotated queries and keys, their gradients), ALiBi's slopes as in the paper's code, T5's
buckets and biases with the gradient of their table, and Mixtral's mixture of experts with its losses and all gradients.

Tensors are `CASE.NAME`. The settings, in attentive's format, are JSON under the key `cases` of the file's metadata. Two runs
write the same bytes.
"""

import json
import math
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, MixtralConfig, T5Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.t5.modeling_t5 import T5Attention

FILE = Path(__file__).resolve().parent.parent / "fixtures" / "parts" / "golden.safetensors"
ORIGINAL_LENGTH = 64

Tensors = dict[str, torch.Tensor]


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tensors: Tensors = {}
    cases = []
    for family in [rotaries, slopes, buckets, mixtures]:
        for name, settings, values in family():
            cases.append({"name": name, **settings})
            tensors |= {f"{name}.{part}": value.detach().clone().contiguous() for part, value in values.items()}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FILE, {"cases": json.dumps(cases)})
    print(f"{'parts':<16}{FILE.stat().st_size:>10,} bytes: {len(cases)} cases, {len(tensors)} tensors")


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def rotaries():
    """Their settings and ours. `dynamic` depends on the largest position: within the original length, and beyond."""
    yarn = {"original_max_position_embeddings": ORIGINAL_LENGTH}
    llama3 = {**yarn, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    ours = {"original_length": ORIGINAL_LENGTH}
    for name, theta, theirs, scaling, last in [
        ("plain", 10000.0, {"rope_type": "default"}, None, 40),
        ("linear", 10000.0, {"rope_type": "linear", "factor": 4.0}, {"kind": "linear", "factor": 4.0}, 150),
        ("ntk_within", 10000.0, {"rope_type": "dynamic", "factor": 2.0}, {"kind": "ntk", "factor": 2.0, **ours}, 40),
        ("ntk_beyond", 10000.0, {"rope_type": "dynamic", "factor": 2.0}, {"kind": "ntk", "factor": 2.0, **ours}, 150),
        ("yarn", 10000.0, {"rope_type": "yarn", "factor": 4.0, **yarn}, {"kind": "yarn", "factor": 4.0, **ours}, 150),
        (
            "yarn_all",
            500.0,
            {"rope_type": "yarn", "factor": 3.0, "beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.3, "truncate": False}
            | yarn,
            {"kind": "yarn", "factor": 3.0, "beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.3, "truncate": False}
            | ours,
            150,
        ),
        ("llama3", 500.0, {"rope_type": "llama3", "factor": 8.0} | llama3, {"kind": "llama3", "factor": 8.0} | ours, 150),
    ]:
        config = LlamaConfig(
            hidden_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=ORIGINAL_LENGTH if theirs["rope_type"] == "dynamic" else 4 * ORIGINAL_LENGTH,
            rope_parameters={"rope_theta": theta, **theirs},
        )
        rotary = LlamaRotaryEmbedding(config)
        draws = generator(name)
        positions = torch.tensor([[0, 1, 2, 17, last - 1, last]])
        query = torch.randn((1, 4, 6, 16), generator=draws).requires_grad_()
        key = torch.randn((1, 2, 6, 16), generator=draws).requires_grad_()
        cosine, sine = rotary(query, positions)
        rotated = apply_rotary_pos_emb(query, key, cosine, sine)
        upstream = [torch.randn(it.shape, generator=draws) for it in rotated]
        loss = sum((it * up).sum() for it, up in zip(rotated, upstream, strict=True))
        gradients = torch.autograd.grad(loss, [query, key])
        config = {"theta": theta} | ({} if scaling is None else {"scaling": scaling})
        yield f"rotary.{name}", {"rotary": config}, {
            "positions": positions,
            "frequencies": rotary.inv_freq,
            "attention_factor": torch.tensor([float(rotary.attention_scaling)]),
            "query": query,
            "key": key,
            "rotated_query": rotated[0],
            "rotated_key": rotated[1],
            "upstream_query": upstream[0],
            "upstream_key": upstream[1],
            "gradient_query": gradients[0],
            "gradient_key": gradients[1],
        }


def slopes():
    """`get_slopes` of the paper's repository (ofirpress/attention_with_linear_biases)."""

    def get_slopes(heads):
        def of_power(heads):
            start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
            return [start * start**i for i in range(heads)]

        if math.log2(heads).is_integer():
            return of_power(heads)
        smaller = 2 ** math.floor(math.log2(heads))
        return of_power(smaller) + get_slopes(2 * smaller)[0::2][: heads - smaller]

    for heads in [1, 2, 3, 5, 6, 8, 12, 16, 20, 40]:
        yield f"alibi.{heads}", {"alibi": heads}, {"slopes": torch.tensor(get_slopes(heads))}


def buckets():
    for name, count, max_distance, bidirectional in [
        ("causal", 32, 128, False),
        ("bidirectional", 32, 128, True),
        ("small_causal", 7, 20, False),
        ("small_bidirectional", 8, 16, True),
        ("least", 2, 3, False),
    ]:
        config = T5Config(
            d_model=24,
            num_heads=3,
            d_kv=8,
            relative_attention_num_buckets=count,
            relative_attention_max_distance=max_distance,
            is_decoder=not bidirectional,
        )
        layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        draws = generator(name)
        table = layer.relative_attention_bias.weight
        with torch.no_grad():
            table.copy_(torch.randn(table.shape, generator=draws))
        distances = torch.arange(-300, 301)
        found = T5Attention._relative_position_bucket(distances, bidirectional, count, max_distance)
        queries, keys = 5, 9
        bias = layer.compute_bias(queries, keys, past_seen_tokens=keys - queries)
        upstream = torch.randn(bias.shape, generator=draws)
        (gradient,) = torch.autograd.grad((bias * upstream).sum(), [table])
        direction = "bidirectional" if bidirectional else "causal"
        settings = {"buckets": count, "max_distance": max_distance, "direction": direction}
        yield f"t5.{name}", {"t5_buckets": settings}, {
            "distances": distances,
            "buckets": found,
            "table": table,
            "bias": bias,
            "upstream": upstream,
            "gradient": gradient,
        }


def mixtures():
    for name, experts, active in [("two_of_six", 6, 2), ("three_of_four", 4, 3), ("all", 3, 3)]:
        width, hidden = 12, 20
        config = MixtralConfig(
            hidden_size=width,
            intermediate_size=hidden,
            num_local_experts=experts,
            num_experts_per_tok=active,
            num_attention_heads=2,
            experts_implementation="eager",
        )
        block = MixtralSparseMoeBlock(config).train()
        draws = generator(name)
        with torch.no_grad():
            for parameter in block.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draws) * 0.4)
        parameters = {"router": block.gate.weight, "gate_up": block.experts.gate_up_proj, "down": block.experts.down_proj}
        x = torch.randn((2, 7, width), generator=draws).requires_grad_()
        y = block(x)
        upstream = torch.randn(y.shape, generator=draws)
        gradients = torch.autograd.grad((y * upstream).sum(), [x, *parameters.values()])
        logits = block.gate(x)[0]
        # The second row ends with padding, and the first begins with it.
        real = torch.ones((2, 7))
        real[0, :2] = 0
        real[1, 5:] = 0
        losses = {
            "balance": load_balancing_loss_func((logits,), experts, active),
            "balance_padded": load_balancing_loss_func((logits,), experts, active, real),
            "z": torch.logsumexp(logits, -1).square().mean(),
        }
        values = {"x": x, "y": y, "upstream": upstream, "real": real, **parameters}
        for part, gradient in zip(["x", *parameters], gradients, strict=True):
            values[f"gradient_{part}"] = gradient
        for loss, value in losses.items():
            of_x, of_router = torch.autograd.grad(value, [x, block.gate.weight], retain_graph=True)
            values |= {loss: value.reshape(1), f"{loss}.gradient_x": of_x, f"{loss}.gradient_router": of_router}
        settings = {"kind": "experts", "experts": experts, "active": active, "hidden_width": hidden}
        yield f"experts.{name}", {"experts": settings}, values


if __name__ == "__main__":
    main()
