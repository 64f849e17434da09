"""Random tiny configs of each class that attentive loads, and inputs for them: what random_configs.py compares.

To add a class: write a function from `Draws` to its config, or reuse one, and add both to the `KINDS` of its family's
file. transformers 4 is used for Transformer-XL alone, transformers 5 for all others.
"""

import transformers

from . import decoders, encoders, images, long, pairs, transformer_xl
from .draws import Draws, Kind, Tensors

__all__ = ["KINDS", "Draws", "Kind", "Tensors"]

FAMILIES = [transformer_xl] if transformers.__version__.startswith("4.") else [decoders, encoders, long, pairs, images]
KINDS: list[Kind] = [kind for family in FAMILIES for kind in family.KINDS]
