"""ViT and DeiT: norms before attention and before the MLP, a final norm, then a projection of the first token's state.

- The patch projection is a convolution: its weight is [width, channels, height, width of the patch]; patches are row-major.
- The class token (and DeiT's distillation token) come first, then positions are added, to them as well.
- `hidden_states` here end before the final norm, unlike text models': `last_hidden_state` is the norm of the last of them.
- GELU is exact. The epsilon is 1e-12.
- The checkpoint's names (`encoder.layer.0.attention.attention.query`) are not those of the module any more; gradients have
  the checkpoint's.
- `interpolated`: another image size; the position embeddings of patches are resized by bicubic interpolation
  (a = -0.75, align_corners=False), those of tokens are not.
"""

import torch
from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher, ViTConfig, ViTForImageClassification

from folder import EVERYTHING, Tensors, as_the_model, base, case, exact, generator, gradients, reloaded, write_golden


def vit(name: str) -> None:
    config = ViTConfig(
        hidden_size=20, num_hidden_layers=2, num_attention_heads=4, intermediate_size=36, image_size=16, patch_size=4,
        num_channels=3, num_labels=7, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-12,
        qkv_bias=True,
    )  # fmt: skip
    folder, model = reloaded(name, ViTForImageClassification(config), 200)
    inputs = images(config, 201)
    golden = outputs(model, inputs)
    write_golden(folder, golden | loss(model, inputs, torch.tensor([5, 2])))


def deit(name: str) -> None:
    """`cls_logits` are of token 0, `distillation_logits` of token 1, each by a projection of its own.

    `logits` is the mean of both, not of their probabilities.
    """
    config = DeiTConfig(
        hidden_size=18, num_hidden_layers=3, num_attention_heads=3, intermediate_size=30, image_size=15, patch_size=5,
        num_channels=3, num_labels=6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-12,
        qkv_bias=True,
    )  # fmt: skip
    folder, model = reloaded(name, DeiTForImageClassificationWithTeacher(config), 210)
    write_golden(folder, outputs(model, images(config, 211)))


def outputs(model: torch.nn.Module, inputs: Tensors) -> Tensors:
    golden = case(model, inputs, **EVERYTHING) | base(model, inputs)
    patch = model.config.patch_size
    larger = {"pixel_values": torch.randn(2, 3, 3 * patch, 5 * patch, generator=generator(220))}
    return golden | case(model, larger, "interpolated.", interpolate_pos_encoding=True)


@exact
def loss(model: torch.nn.Module, inputs: Tensors, targets: torch.Tensor) -> Tensors:
    value = torch.nn.functional.cross_entropy(model(**as_the_model(model, inputs)).logits, targets)
    return {"loss.labels": targets, "loss.value": value.reshape(1)} | gradients(model, value)


def images(config, seed: int) -> Tensors:
    shape = (2, config.num_channels, config.image_size, config.image_size)
    return {"pixel_values": torch.randn(shape, generator=generator(seed))}
