//! The tensor headers of a GGUF file.

use std::collections::BTreeMap;

use super::reader::Reader;
use crate::error_text::excerpt;
use crate::{DType, ParseError, TensorInfo};

/// The smallest tensor header: an empty name, no dimensions, a type, an offset.
pub(super) const MIN_BYTES: usize = 8 + 4 + 4 + 8;

/// `GGML_MAX_DIMS`.
const MAX_DIMS: u32 = 4;

/// A tensor header.
struct Header<'a> {
    name: &'a str,
    dtype: DType,
    /// Outermost dimension first.
    shape: Vec<usize>,
    /// Relative to the start of the tensor data.
    offset: u64,
}

/// Reads `count` headers and locates their data.
pub(super) fn read(
    reader: &mut Reader,
    count: usize,
    alignment: usize,
) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    let mut headers = Vec::with_capacity(count);
    for index in 0..count {
        let name = reader
            .string()
            .map_err(|problem| format!("tensor {index}: {problem}"))?;
        headers.push(read_header(reader, name).map_err(|error| error.of(&title(name)))?);
    }
    let start = reader.position().checked_next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for header in headers {
        let name = header.name;
        let tensor = locate(header, start, alignment, reader.size())
            .map_err(|problem| format!("{}: {problem}", title(name)))?;
        if tensors.insert(name.to_owned(), tensor).is_some() {
            return Err(format!("{}: it is duplicated", title(name)).into());
        }
    }
    check_overlap(&tensors)?;
    Ok(tensors)
}

/// A tensor's name in messages.
fn title(name: &str) -> String {
    format!("tensor {}", excerpt(name))
}

fn read_header<'a>(reader: &mut Reader<'a>, name: &'a str) -> Result<Header<'a>, ParseError> {
    let axes = reader.number(u32::from_le_bytes)?;
    if axes > MAX_DIMS {
        return Err(format!("it has {axes} dimensions; at most {MAX_DIMS} are allowed").into());
    }
    let mut shape = Vec::new();
    for _ in 0..axes {
        let size = reader.number(u64::from_le_bytes)?;
        let size = usize::try_from(size);
        shape.push(size.map_err(|_| "one of its sizes is more than memory can hold".to_owned())?);
    }
    // ggml lists the innermost dimension first.
    shape.reverse();
    let code = reader.number(u32::from_le_bytes)?;
    let dtype = dtype(code).ok_or_else(|| no_dtype(code))?;
    let offset = reader.number(u64::from_le_bytes)?;
    Ok(Header {
        name,
        dtype,
        shape,
        offset,
    })
}

/// The location of a tensor in a file of `size` bytes, whose tensor data starts at `start`.
fn locate(
    header: Header,
    start: Option<usize>,
    alignment: usize,
    size: usize,
) -> Result<TensorInfo, String> {
    let Header {
        dtype,
        shape,
        offset,
        ..
    } = header;
    let begin = usize::try_from(offset)
        .ok()
        .and_then(|offset| offset.checked_add(start?));
    let Some(begin) = begin else {
        return Err(format!(
            "its offset {offset} lies beyond the file's {size} bytes"
        ));
    };
    // `start` itself is aligned.
    if begin % alignment != 0 {
        return Err(format!(
            "its offset {offset} is not a multiple of the alignment {alignment}"
        ));
    }
    TensorInfo::contiguous(dtype, shape, begin, size)
}

/// Refuses overlapping tensors: with them a small file could demand any amount of memory.
fn check_overlap(tensors: &BTreeMap<String, TensorInfo>) -> Result<(), String> {
    let mut filled: Vec<_> = tensors
        .iter()
        .filter(|(_, tensor)| !tensor.bytes.is_empty())
        .collect();
    filled.sort_by_key(|(_, tensor)| tensor.bytes.start);
    for pair in filled.windows(2) {
        let [(before, first), (after, second)] = [pair[0], pair[1]];
        if second.bytes.start < first.bytes.end {
            let (before, after) = (excerpt(before), excerpt(after));
            return Err(format!("tensors {before} and {after} overlap"));
        }
    }
    Ok(())
}

/// The dtype of a `ggml_type`, if it is supported.
fn dtype(code: u32) -> Option<DType> {
    Some(match code {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::Q4_0,
        3 => DType::Q4_1,
        8 => DType::Q8_0,
        12 => DType::Q4_K,
        14 => DType::Q6_K,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::BF16,
        _ => return None,
    })
}

/// The error for a `ggml_type` that is not read, with its name.
fn no_dtype(code: u32) -> ParseError {
    /// Far above any type; a larger number is damage.
    const MAX_TYPE: u32 = 255;
    let name = match code {
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        _ => "unknown",
    };
    if code > MAX_TYPE {
        return format!("its type is {code}, which no version of ggml has").into();
    }
    ParseError::Unsupported(format!(
        "its type {code} ({name}) is not supported; supported are F32, F16, BF16, F64, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K and integers"
    ))
}
