"""The Transformer of the paper (Vaswani et al. 2017) from PyTorch's own layers, saved with attentive's config and names.

transformers has no class for it. Post-norm without a final norm, ReLU, interleaved sines and cosines, embeddings times
sqrt(width), and one table for source, target and logits.
"""

import json
import math
import shutil

import torch
from folder import FIXTURES, draw_ids
from safetensors.torch import save_file
from torch import nn

VOCABULARY, LENGTH, WIDTH, HEADS, HIDDEN, LAYERS = 61, 40, 16, 4, 28, 2


class Transformer(nn.Module):
    """Encoder and decoder with one embedding table."""

    def __init__(self) -> None:
        super().__init__()
        shape = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": HIDDEN, "dropout": 0.0, "batch_first": True}
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), LAYERS, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), LAYERS)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angles = positions * 10000 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
        sinusoid = torch.stack([angles.sin(), angles.cos()], 2).reshape(ids.shape[1], WIDTH)
        return self.tokens(ids) * math.sqrt(WIDTH) + sinusoid

    def forward(self, source, target, source_mask, target_mask) -> tuple[torch.Tensor, torch.Tensor]:
        memory = self.encoder(self.embed(source), src_key_padding_mask=source_mask == 0)
        causal_mask = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        states = self.decoder(
            self.embed(target), memory, tgt_mask=causal_mask, tgt_key_padding_mask=target_mask == 0,
            memory_key_padding_mask=source_mask == 0,
        )  # fmt: skip
        return memory, states


def transformer(name: str) -> None:
    torch.manual_seed(900)
    torch.backends.mha.set_fastpath_enabled(False)
    model = Transformer().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (1.0 if parameter.dim() == 1 else 0.0))
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "attentive", "attentive": settings()}, indent=2) + "\n")
    save_file({ours: it.contiguous() for ours, it in names(model).items()}, folder / "model.safetensors")
    model = model.double()
    golden = {}
    ones = lambda rows, length: torch.ones(rows, length, dtype=torch.int64)
    source_mask, target_mask = ones(3, 11), ones(3, 9)
    source_mask[1, 7:], source_mask[2, :3], target_mask[1, 6:] = 0, 0, 0
    cases = {"": (2, ones(2, 11), ones(2, 9)), "padded.": (3, source_mask, target_mask)}
    for prefix, (rows, source_mask, target_mask) in cases.items():
        source, target = draw_ids(VOCABULARY, (rows, 11), 901), draw_ids(VOCABULARY, (rows, 9), 902)
        with torch.no_grad():
            memory, states = model(source, target, source_mask, target_mask)
        golden |= {
            f"{prefix}input_ids": source, f"{prefix}attention_mask": source_mask,
            f"{prefix}decoder_input_ids": target, f"{prefix}decoder_attention_mask": target_mask,
            f"{prefix}logits": states @ model.tokens.weight.T,
        }  # fmt: skip
        if not prefix:
            golden |= {"encoder_last_hidden_state": memory, "last_hidden_state": states}
    tensors = {key: (it.float() if it.is_floating_point() else it).contiguous() for key, it in golden.items()}
    save_file(tensors, folder / "golden.safetensors")


def settings() -> dict:
    """The config of the same model in attentive."""

    def stack(role: str) -> dict:
        attention = {"kind": "full", "heads": HEADS, "bias": True, "output_bias": True}
        cross = {"cross": attention} if role == "causal" else {}
        block = {
            "repeat": LAYERS, "placement": "after", "norm": {"kind": "layer"}, "attention": attention,
            "feed_forward": {"kind": "plain", "hidden_width": HIDDEN, "activation": "relu"},
        }  # fmt: skip
        return {
            "vocabulary": VOCABULARY, "length": LENGTH, "width": WIDTH, "role": role,
            "positions": {"kind": "sinusoidal"}, "blocks": [block | cross],
        }  # fmt: skip

    encoder = stack("bidirectional") | {"embedding": {"shared": True}}
    return stack("causal") | {"head": "tied", "encoder": encoder}


def names(model: Transformer) -> dict[str, torch.Tensor]:
    """Every tensor under attentive's name."""
    tensors = {"stack.tokens.weight": model.tokens.weight}
    for stack, layers in (("encoder", model.encoder.layers), ("stack", model.decoder.layers)):
        for number, layer in enumerate(layers):
            block = f"{stack}.blocks.{number}"
            crossed = hasattr(layer, "multihead_attn")
            attentions = {"attention": layer.self_attn} | ({"cross": layer.multihead_attn} if crossed else {})
            for part, attention in attentions.items():
                for parameter in ("weight", "bias"):
                    thirds = getattr(attention, f"in_proj_{parameter}").chunk(3)
                    for role, third in zip(("query", "key", "value"), thirds, strict=True):
                        tensors[f"{block}.{part}.body.{role}.{parameter}"] = third
                    tensors[f"{block}.{part}.body.output.{parameter}"] = getattr(attention.out_proj, parameter)
            norms = ("attention", "cross", "feed_forward") if crossed else ("attention", "feed_forward")
            for i, part in enumerate(norms, 1):
                for parameter in ("weight", "bias"):
                    tensors[f"{block}.{part}.norm_after.{parameter}"] = getattr(getattr(layer, f"norm{i}"), parameter)
            for ours, linear in (("up", layer.linear1), ("down", layer.linear2)):
                for parameter in ("weight", "bias"):
                    tensors[f"{block}.feed_forward.body.{ours}.{parameter}"] = getattr(linear, parameter)
    return tensors
