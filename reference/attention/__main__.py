"""Makes fixtures/attention/: the outputs of independent libraries for each attention of the crate `model`.

    python reference/attention [REFERENCE…]      all but transformer_xl, or the named ones

Needs requirements.txt, and requirements-attention.txt installed without dependencies: torch 2.15.0, transformers 5.22.2,
d2l 1.0.3, x-transformers 2.31.10, linformer 0.2.3, performer-pytorch 1.1.4. The reference `transformer_xl` needs
transformers 4.57.1 instead (requirements-transformer-xl.txt), so it is run separately;
reference/README.md has the commands.

One file per case, CASE.safetensors. Its metadata: `config`, JSON of an AttentionConfig; `role`, which is bidirectional,
causal or cross; `source`, the library that computed it; and where needed `positions` and `epsilons` (JSON) and `notes`. Its
tensors: `queries`, for role cross also `keys` and `values`; `lengths`, the unpadded length of each row; `parameter.NAME`;
further inputs; `output`, `upstream`, `gradient.queries` (`.keys`, `.values`) and `gradient.parameter.NAME`; `weights` [batch, heads,
queries, keys] where the reference has them. `rows_compared` [batch]: only that many rows of `output` and `weights` are
defined. Linear weights are [output, input]; heads are contiguous slices of the projected width.
"""

import importlib
import sys

import torch

import case

REFERENCES = [
    "full",
    "scored",
    "x_transformers",
    "linformer",
    "performer",
    "linear",
    "longformer",
    "big_bird",
    "reformer",
    "nadaraya_watson",
]


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    names = set()
    for reference in sys.argv[1:] or REFERENCES:
        for it in importlib.import_module(f"from_{reference}").cases():
            assert it.name not in names, f"two cases are named {it.name}"
            names.add(it.name)
            print(f"{it.name:<36}{case.write(it):>8,} bytes")


if __name__ == "__main__":
    main()
