"""Random tiny configs of each class that attentive loads, and inputs for them: what random_configs.py compares.

To add a class: write a function from `Draws` to its config, or reuse one, and add both to the `MODEL_CLASSES` of its family's
file. transformers 4 is used for Transformer-XL alone, transformers 5 for all others.
"""

import transformers

from . import decoders, encoder_decoders, encoders, images, long, transformer_xl
from .draws import Draws, ModelClass, Tensors

__all__ = ["MODEL_CLASSES", "Draws", "ModelClass", "Tensors"]

TRANSFORMERS_4 = transformers.__version__.startswith("4.")
FAMILIES = [transformer_xl] if TRANSFORMERS_4 else [decoders, encoders, long, encoder_decoders, images]
MODEL_CLASSES: list[ModelClass] = [it for family in FAMILIES for it in family.MODEL_CLASSES]
