//! Safetensors: a JSON header with the location of each tensor, then the tensor data.

use std::collections::BTreeMap;
use std::path::Path;

use ::safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde::Deserialize;

use crate::error_text::excerpt;
use crate::{DType, FileError, MappedFile, ParseError, TensorInfo, TensorSet, shards};

/// The header of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The tensors.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// The `__metadata__` of the header.
    pub metadata: BTreeMap<String, String>,
}

/// Parses and validates the header.
pub fn parse(bytes: &[u8]) -> Result<Header, ParseError> {
    // This checks that byte ranges match the shapes, are contiguous without overlap, and end at the end of the file.
    let (header_size, header) = SafeTensors::read_metadata(bytes).map_err(|error| {
        unknown_dtype(&error, bytes).unwrap_or_else(|| excerpt(&error.to_string()).into())
    })?;
    let start = header_size + 8;
    let mut tensors = BTreeMap::new();
    // In the order of their names, so that the error is always the same.
    for (name, info) in header.tensors().into_iter().collect::<BTreeMap<_, _>>() {
        let dtype =
            dtype(info.dtype).ok_or_else(|| unsupported(&name, &format!("{:?}", info.dtype)))?;
        let tensor = TensorInfo::contiguous(
            dtype,
            info.shape.clone(),
            start + info.data_offsets.0,
            bytes.len(),
        )?;
        tensors.insert(name, tensor);
    }
    let metadata = header.metadata().clone().unwrap_or_default();
    Ok(Header {
        tensors,
        metadata: metadata.into_iter().collect(),
    })
}

fn unsupported(tensor: &str, dtype: &str) -> ParseError {
    ParseError::Unsupported(format!(
        "tensor {} is {dtype}, which is not supported; supported are F64, F32, F16, BF16 and integers",
        excerpt(tensor)
    ))
}

/// The error of a header that is only refused because a dtype is newer than the parser.
fn unknown_dtype(error: &SafeTensorError, bytes: &[u8]) -> Option<ParseError> {
    #[derive(Deserialize)]
    struct Entry {
        dtype: Option<String>,
    }
    let SafeTensorError::InvalidHeaderDeserialization(_) = error else {
        return None;
    };
    let (size, rest) = bytes.split_first_chunk::<8>()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*size)).ok()?)?;
    let entries: BTreeMap<String, Entry> = serde_json::from_slice(header).ok()?;
    let is_name = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        (2..=32).contains(&text.len()) && text.bytes().all(plain)
    };
    let is_known = |text: &str| serde_json::from_value::<Dtype>(text.into()).is_ok();
    let mut dtypes = entries
        .iter()
        .filter_map(|(name, entry)| Some((name, entry.dtype.as_deref()?)));
    let (name, dtype) = dtypes.find(|(_, dtype)| is_name(dtype) && !is_known(dtype))?;
    Some(unsupported(name, dtype))
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

/// Opens one file.
pub fn open(path: &Path) -> Result<(TensorSet, BTreeMap<String, String>), FileError> {
    let file = MappedFile::open(path)?;
    let Header { tensors, metadata } = parse(&file).map_err(|error| file.refused(error))?;
    let mut set = TensorSet::default();
    set.add(file, tensors)?;
    Ok((set, metadata))
}

/// Opens the shards of an index (`model.safetensors.index.json`), which must be in its folder.
pub fn open_sharded(index: &Path) -> Result<TensorSet, FileError> {
    shards::open(index, |bytes| Ok(parse(bytes)?.tensors))
}
