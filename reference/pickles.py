"""Makes the files of `crates/formats/tests/pickle/` with PyTorch, and their contents as `expected.json`.

    python reference/pickles.py

Files in the format before PyTorch 1.6 have memory addresses as keys, so these differ a little each time.
"""

import json
import os
from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parent.parent / "crates/formats/tests/pickle"

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Command:
    """The payload of a hostile file: loading it with Python would run the command."""

    def __reduce__(self):
        return os.system, ("echo this must never run",)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    older = {"_use_new_zipfile_serialization": False}
    expected = {}

    def save(name: str, value: object, tensors: dict[str, Tensor], **options) -> None:
        torch.save(value, FOLDER / name, **options)
        expected[name] = {key: describe(tensor) for key, tensor in tensors.items()}

    for layout, options in {"zip": {}, "older": older}.items():
        module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)).state_dict()
        save(f"module_{layout}.bin", module, module, **options)
        for protocol in (2, 4, 5):
            tensors = every_dtype()
            save(f"kinds_{layout}_{protocol}.bin", tensors, tensors, pickle_protocol=protocol, **options)
        tensors = views()
        save(f"views_{layout}.bin", tensors, tensors, **options)
        tensors = parameters()
        save(f"parameters_{layout}.bin", tensors, tensors, **options)
        tensors = {"a": torch.randn(2, 2), "b": torch.arange(3)}
        wrapped = {"epoch": 3, "rate": 0.1, "notes": ["x", None, (True, -1.5)], "state_dict": OrderedDict(tensors)}
        save(f"state_dict_{layout}.bin", wrapped, tensors, **options)
        wrapped = {"optimizer": {"state": {0: {"step": torch.ones(1)}}}, "model": tensors, "step": torch.ones(1)}
        save(f"model_{layout}.bin", wrapped, tensors, **options)
        torch.save({"a": torch.ones(1), "b": Command()}, FOLDER / f"hostile_{layout}.bin", **options)
        torch.save({"a": torch.ones(1).expand(1 << 20, 1 << 20)}, FOLDER / f"expanded_{layout}.bin", **options)
        torch.save({"a": 1, "b": [torch.ones(1)]}, FOLDER / f"nothing_{layout}.bin", **options)

    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def every_dtype() -> dict[str, Tensor]:
    """A tensor of each dtype, a scalar and an empty one."""
    tensors = {
        name: (torch.arange(6) % 2 == 0 if dtype == torch.bool else torch.arange(1, 7).to(dtype)).reshape(2, 3)
        for dtype, name in NAMES.items()
    }
    tensors["negative"] = torch.tensor([-1, -(1 << 62), 1 << 62])
    tensors["halves"] = torch.tensor([-0.5, 1.5, 65504.0, 6e-8], dtype=torch.float16)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(3, 0, 2)
    tensors["ünïcode"] = torch.tensor([1.0])
    return tensors


def views() -> dict[str, Tensor]:
    """Tensors that share storages."""
    numbers = torch.arange(24, dtype=torch.float32)
    cube = numbers.reshape(2, 3, 4)
    tied = torch.randn(3, 2)
    return {
        "whole": cube,
        "part": numbers[5:9],
        "transposed": cube[1].t(),
        "permuted": cube.permute(2, 0, 1),
        "every_third": numbers[1::3],
        "column": cube[:, :, 2:3],
        "one_row": cube[:, 1:2, :][:1],
        "overlapping": numbers.as_strided((3, 4), (2, 1), 2),
        "repeated": numbers[:4].expand(3, 4),
        "empty_part": cube[:, :, 4:],
        "tied": tied,
        "tied_again": tied,
        "turned": torch.arange(6, dtype=torch.int64).reshape(2, 3).t(),
    }


def parameters() -> dict[str, Tensor]:
    """Parameters; the second has an attribute, which changes how it is pickled."""
    plain = nn.Parameter(torch.randn(2, 2))
    marked = nn.Parameter(torch.randn(3), requires_grad=False)
    marked.mark = "kept"
    return {"plain": plain, "marked": marked}


def describe(tensor: Tensor) -> dict:
    tensor = tensor.detach()
    floats = tensor.dtype.is_floating_point
    values = (tensor.float() if floats else tensor.to(torch.int64)).flatten().tolist()
    return {"kind": NAMES[tensor.dtype], "shape": list(tensor.shape), "values": values}


if __name__ == "__main__":
    main()
