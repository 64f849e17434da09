"""Random tiny configs of each class that attentive loads, and inputs for them: what random_configs.py compares.

To add a class: write a function from `Draws` to its config, or take one that is there, and name both in the `KINDS` of its
family's file. Of transformers 4 there is Transformer-XL alone, and of transformers 5 all others.
"""

import transformers

from . import decoders, encoders, long, pairs, pictures, transformer_xl
from .draws import Draws, Kind, Tensors

__all__ = ["KINDS", "Draws", "Kind", "Tensors"]

FAMILIES = [transformer_xl] if transformers.__version__.startswith("4.") else [decoders, encoders, long, pairs, pictures]
KINDS: list[Kind] = [kind for family in FAMILIES for kind in family.KINDS]
