"""Vision models: ViT and DeiT."""

from __future__ import annotations

import transformers
from transformers import PretrainedConfig

from .draws import ConfigKwargs, Draws, Tensors, family
from .texts import noise


def vit_kwargs(draws: Draws) -> ConfigKwargs:
    heads, head_width = draws.heads()
    patch = draws.choice([1, 2, 3, 4, 5, 8])
    rows, columns = draws.randint(1, 5), draws.randint(1, 5)
    spare = draws.randrange(patch) if draws.unsupported() else 0
    size = [rows * patch, columns * patch] if draws.flip(0.3) else rows * patch + spare
    return {
        "hidden_size": heads * head_width, "num_hidden_layers": draws.depth(), "num_attention_heads": heads,
        "intermediate_size": draws.randint(3, 90), "hidden_act": draws.activation(), "layer_norm_eps": draws.epsilon(),
        "image_size": size, "patch_size": patch, "num_channels": draws.choice([1, 2, 3, 4]), "qkv_bias": draws.flip(0.7),
        "num_labels": draws.labels(), "pooler_output_size": draws.choice([None, draws.randint(2, 30)]),
        "pooler_act": draws.choice(["tanh", "tanh", "relu", "gelu"]),
    }  # fmt: skip


def vit(draws: Draws) -> PretrainedConfig:
    return transformers.ViTConfig(**vit_kwargs(draws))


def deit(draws: Draws) -> PretrainedConfig:
    return transformers.DeiTConfig(**vit_kwargs(draws))


def image_inputs(draws: Draws, config: PretrainedConfig, other_size: bool) -> Tensors:
    """Images of the config's size, or of another, for which positions are interpolated.

    transformers can do that only where the config's images are square.
    """
    size, patch = config.image_size, config.patch_size
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    if other_size and height == width:
        height, width = (draws.randint(1, 6) * patch for _ in range(2))
    return {"pixel_values": noise(draws, draws.randint(1, 3), config.num_channels, height, width)}


MODEL_CLASSES = [
    *family("ViT", ["Model", "ForImageClassification"], vit, image_inputs),
    *family("DeiT", ["Model", "ForImageClassification", "ForImageClassificationWithTeacher"], deit, image_inputs),
]
