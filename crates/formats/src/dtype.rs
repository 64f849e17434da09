//! Element types of tensors, scalar and block-quantized.

use half::{bf16, f16};

use crate::quantized;

/// The element type of a tensor; quantized types store blocks of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// The quantized types keep the names of ggml.
#[allow(missing_docs, non_camel_case_types)]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    Q4_0,
    Q4_1,
    Q8_0,
    Q4_K,
    Q6_K,
}

impl DType {
    /// The name as files and messages spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::I64 => "I64",
            Self::I32 => "I32",
            Self::I16 => "I16",
            Self::I8 => "I8",
            Self::U64 => "U64",
            Self::U32 => "U32",
            Self::U16 => "U16",
            Self::U8 => "U8",
            Self::Bool => "BOOL",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4_K => "Q4_K",
            Self::Q6_K => "Q6_K",
        }
    }

    /// Elements per block, and bytes per block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F64 | Self::I64 | Self::U64 => (1, 8),
            Self::F32 | Self::I32 | Self::U32 => (1, 4),
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => (1, 2),
            Self::I8 | Self::U8 | Self::Bool => (1, 1),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q8_0 => (32, 34),
            Self::Q4_K => (256, 144),
            Self::Q6_K => (256, 210),
        }
    }

    /// The size in bytes of a tensor of this shape and element count.
    pub(crate) fn byte_length(self, shape: &[usize], elements: usize) -> Result<usize, String> {
        let (per_block, bytes) = self.block();
        let last = shape.last().copied().unwrap_or(1);
        if last % per_block != 0 {
            let name = self.name();
            return Err(format!(
                "rows of {last} elements are not a multiple of the block size of {name}, {per_block}"
            ));
        }
        (elements / per_block)
            .checked_mul(bytes)
            .ok_or_else(|| format!("{elements} elements are more than memory can hold"))
    }

    /// The elements as f32; `None` for integer types.
    pub fn floats(self, bytes: &[u8]) -> Option<Vec<f32>> {
        Some(match self {
            Self::F64 => convert(bytes, |b| f64::from_le_bytes(b) as f32),
            Self::F32 => convert(bytes, f32::from_le_bytes),
            Self::F16 => convert(bytes, |b| f16::from_le_bytes(b).to_f32()),
            Self::BF16 => convert(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Self::Q4_0 => quantized::q4_0(bytes),
            Self::Q4_1 => quantized::q4_1(bytes),
            Self::Q8_0 => quantized::q8_0(bytes),
            Self::Q4_K => quantized::q4_k(bytes),
            Self::Q6_K => quantized::q6_k(bytes),
            _ => return None,
        })
    }

    /// The elements as i64; `None` for float types, or if one overflows.
    pub fn integers(self, bytes: &[u8]) -> Option<Vec<i64>> {
        Some(match self {
            Self::I64 => convert(bytes, i64::from_le_bytes),
            Self::I32 => convert(bytes, |b| i32::from_le_bytes(b).into()),
            Self::I16 => convert(bytes, |b| i16::from_le_bytes(b).into()),
            Self::I8 => convert(bytes, |b| i8::from_le_bytes(b).into()),
            Self::U32 => convert(bytes, |b| u32::from_le_bytes(b).into()),
            Self::U16 => convert(bytes, |b| u16::from_le_bytes(b).into()),
            Self::U8 | Self::Bool => convert(bytes, |b| u8::from_le_bytes(b).into()),
            Self::U64 => {
                let values = convert(bytes, u64::from_le_bytes);
                let signed = values.into_iter().map(i64::try_from);
                return signed.collect::<Result<_, _>>().ok();
            }
            _ => return None,
        })
    }
}

fn convert<const N: usize, T>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|chunk| from(*chunk)).collect()
}
