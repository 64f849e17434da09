"""Makes the files of `crates/formats/tests/gguf/`: small GGUF files, and the values that gguf-py reads from them.

    python reference/gguf_files.py

Needs gguf and numpy (`pip install gguf==0.19.0 numpy==2.4.6`). Two runs give the same bytes.

    kinds.gguf      a tensor of each type, named by its type; default alignment
    TYPE.f32        its values as little-endian f32, for float types
    TYPE.i64        its values as little-endian i64, for integer types
    metadata.gguf   a key of each value type, named by its type, with an S for an array of it; alignment 64, small tensors
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as GGMLType
from gguf import GGUFValueType as ValueType
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

FOLDER = Path(__file__).resolve().parent.parent / "crates" / "formats" / "tests" / "gguf"

FLOATS = {
    GGMLType.F32: (2, 3, 4, 5),
    GGMLType.F16: (5,),
    GGMLType.BF16: (4, 2),
    GGMLType.F64: (),
    GGMLType.Q4_0: (3, 64),
    GGMLType.Q4_1: (2, 3, 32),
    GGMLType.Q8_0: (2, 64),
    GGMLType.Q4_K: (2, 512),
    GGMLType.Q6_K: (3, 256),
}
INTEGERS = {GGMLType.I8: np.int8, GGMLType.I16: np.int16, GGMLType.I32: np.int32, GGMLType.I64: np.int64}

# The offsets of a block's two-byte scales, for the types that gguf-py reads but does not write.
SCALES = {GGMLType.Q4_K: (0, 2), GGMLType.Q6_K: (208,)}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_tensor_types()
    write_metadata()
    print(f"wrote {FOLDER}")


def write_tensor_types() -> None:
    rng = np.random.default_rng(2017)
    writer = GGUFWriter(FOLDER / "kinds.gguf", "kinds")
    for type, shape in FLOATS.items():
        if type in SCALES:
            stored = random_blocks(rng, type, shape)
        else:
            values = rng.standard_normal(shape)
            stored = np.asarray(values if type == GGMLType.F64 else quants.quantize(values.astype("<f4"), type))
        writer.add_tensor(type.name, stored, raw_dtype=type)
        expected = stored.astype("<f4") if type == GGMLType.F64 else quants.dequantize(stored, type)
        expected.astype("<f4").tofile(FOLDER / f"{type.name}.f32")
    for type, element in INTEGERS.items():
        limits = np.iinfo(element)
        stored = np.array([[limits.min, -1, 0], [1, 7, limits.max]], element)
        writer.add_tensor(type.name, stored, raw_dtype=type)
        stored.astype("<i8").tofile(FOLDER / f"{type.name}.i64")
    write_file(writer)


def random_blocks(rng: np.random.Generator, type: GGMLType, shape: tuple[int, ...]) -> np.ndarray:
    """Blocks of random bits with finite scales."""
    per_block, size = GGML_QUANT_SIZES[type]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // per_block, size), np.uint8)
    for offset in SCALES[type]:
        scales = rng.standard_normal((*blocks.shape[:-1], 1)).astype("<f2")
        blocks[..., offset : offset + 2] = scales.view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def write_metadata() -> None:
    writer = GGUFWriter(FOLDER / "metadata.gguf", "metadata")
    writer.add_custom_alignment(64)
    scalars = {
        ValueType.UINT8: 200, ValueType.INT8: -100, ValueType.UINT16: 60000, ValueType.INT16: -30000,
        ValueType.UINT32: 4_000_000_000, ValueType.INT32: -2_000_000_000, ValueType.UINT64: 2**64 - 1,
        ValueType.INT64: -(2**63), ValueType.FLOAT32: 0.5, ValueType.FLOAT64: 0.1, ValueType.BOOL: True,
        ValueType.STRING: "Grüße, 世界\n",
    }
    for type, value in scalars.items():
        writer.add_key_value(type.name, value, type)
    arrays = {
        ValueType.UINT8: [0, 255], ValueType.INT8: [-128, 127], ValueType.UINT16: [0, 65535], ValueType.INT16: [-32768, 32767],
        ValueType.UINT32: [0, 2**32 - 1], ValueType.INT32: [-(2**31), 2**31 - 1], ValueType.UINT64: [0, 2**64 - 1],
        ValueType.INT64: [-(2**63), 2**63 - 1], ValueType.FLOAT32: [-1.5, 0.25], ValueType.FLOAT64: [0.1, -0.2],
        ValueType.BOOL: [True, False], ValueType.STRING: ["", "a", "ü"],
    }
    for type, values in arrays.items():
        writer.add_key_value(f"{type.name}S", values, ValueType.ARRAY, sub_type=type)
    writer.add_key_value("ARRAYS", [["a", "b"], ["c"]], ValueType.ARRAY)
    writer.add_tensor("one", np.array([1, 2, 3], "<f4"))
    writer.add_tensor("two", np.array([[4], [5]], "<f4"))
    write_file(writer)


def write_file(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
