"""Random tiny configs of each class that attentive loads, and inputs for them: what random_configs.py compares.

To add a class: write a function from `Draws` to its config, or take one that is there, and name both in the `KINDS` of its
family's file.
"""

from . import decoders, encoders, pairs, pictures
from .draws import Draws, Kind, Tensors

__all__ = ["KINDS", "Draws", "Kind", "Tensors"]

KINDS: list[Kind] = [*decoders.KINDS, *encoders.KINDS, *pairs.KINDS, *pictures.KINDS]
