"""Makes the files of `crates/formats/tests/gguf/`: small GGUF files, and the values that gguf-py reads from them.

    python reference/gguf_files.py

Needs gguf and numpy (`pip install gguf==0.19.0 numpy==2.4.6`). Two runs give the same bytes.

    kinds.gguf      a tensor of each type, named by its type; default alignment
    KIND.f32        its values as little-endian f32, for float types
    KIND.i64        its values as little-endian i64, for integer types
    metadata.gguf   a key of each type, named by its type, `TYPES` for a list of them; alignment 64, one small tensor
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType as Type
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

FOLDER = Path(__file__).resolve().parent.parent / "crates" / "formats" / "tests" / "gguf"

FLOATS = {
    Kind.F32: (2, 3, 4, 5),
    Kind.F16: (5,),
    Kind.BF16: (4, 2),
    Kind.F64: (),
    Kind.Q4_0: (3, 64),
    Kind.Q4_1: (2, 3, 32),
    Kind.Q8_0: (2, 64),
    Kind.Q4_K: (2, 512),
    Kind.Q6_K: (3, 256),
}
INTEGERS = {Kind.I8: np.int8, Kind.I16: np.int16, Kind.I32: np.int32, Kind.I64: np.int64}

# The offsets of a block's two-byte scales, for the types that gguf-py reads but does not write.
SCALES = {Kind.Q4_K: (0, 2), Kind.Q6_K: (208,)}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_kinds()
    write_metadata()
    print(f"wrote {FOLDER}")


def write_kinds() -> None:
    rng = np.random.default_rng(2017)
    writer = GGUFWriter(FOLDER / "kinds.gguf", "kinds")
    for kind, shape in FLOATS.items():
        if kind in SCALES:
            stored = random_blocks(rng, kind, shape)
        else:
            values = rng.standard_normal(shape)
            stored = np.asarray(values if kind == Kind.F64 else quants.quantize(values.astype("<f4"), kind))
        writer.add_tensor(kind.name, stored, raw_dtype=kind)
        expected = stored.astype("<f4") if kind == Kind.F64 else quants.dequantize(stored, kind)
        expected.astype("<f4").tofile(FOLDER / f"{kind.name}.f32")
    for kind, element in INTEGERS.items():
        limits = np.iinfo(element)
        stored = np.array([[limits.min, -1, 0], [1, 7, limits.max]], element)
        writer.add_tensor(kind.name, stored, raw_dtype=kind)
        stored.astype("<i8").tofile(FOLDER / f"{kind.name}.i64")
    finish(writer)


def random_blocks(rng: np.random.Generator, kind: Kind, shape: tuple[int, ...]) -> np.ndarray:
    """Blocks of random bits with finite scales."""
    per_block, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // per_block, size), np.uint8)
    for place in SCALES[kind]:
        scales = rng.standard_normal((*blocks.shape[:-1], 1)).astype("<f2")
        blocks[..., place : place + 2] = scales.view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def write_metadata() -> None:
    writer = GGUFWriter(FOLDER / "metadata.gguf", "metadata")
    writer.add_custom_alignment(64)
    single = {
        Type.UINT8: 200, Type.INT8: -100, Type.UINT16: 60000, Type.INT16: -30000,
        Type.UINT32: 4_000_000_000, Type.INT32: -2_000_000_000, Type.UINT64: 2**64 - 1, Type.INT64: -(2**63),
        Type.FLOAT32: 0.5, Type.FLOAT64: 0.1, Type.BOOL: True, Type.STRING: "Grüße, 世界\n",
    }
    for type, value in single.items():
        writer.add_key_value(type.name, value, type)
    lists = {
        Type.UINT8: [0, 255], Type.INT8: [-128, 127], Type.UINT16: [0, 65535], Type.INT16: [-32768, 32767],
        Type.UINT32: [0, 2**32 - 1], Type.INT32: [-(2**31), 2**31 - 1], Type.UINT64: [0, 2**64 - 1],
        Type.INT64: [-(2**63), 2**63 - 1], Type.FLOAT32: [-1.5, 0.25], Type.FLOAT64: [0.1, -0.2],
        Type.BOOL: [True, False], Type.STRING: ["", "a", "ü"],
    }
    for type, values in lists.items():
        writer.add_key_value(f"{type.name}S", values, Type.ARRAY, sub_type=type)
    writer.add_key_value("ARRAYS", [["a", "b"], ["c"]], Type.ARRAY)
    writer.add_tensor("one", np.array([1, 2, 3], "<f4"))
    writer.add_tensor("two", np.array([[4], [5]], "<f4"))
    finish(writer)


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
