//! GGUF, the format of ggml and llama.cpp: metadata that describes a model completely, then its tensors, often quantized.
//!
//! ```text
//! "GGUF" │ version │ tensors n │ keys m │ m × (key, type, value) │ n × (name, sizes, type, offset) │ padding │ data
//!          u32       u64         u64                                                      │                    ▲
//!                                                                                         └──── relative to ───┘
//! ```

mod metadata;
mod reader;
mod tensors;
mod values;

use std::collections::BTreeMap;
use std::path::Path;

pub use metadata::{Array, Metadata, Value};
use reader::Reader;

use crate::{FileError, MappedFile, TensorInfo, TensorSet};

/// Everything before the tensor data of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The tensors.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// The metadata, by key.
    pub metadata: Metadata,
}

/// Opens one file.
pub fn open(path: &Path) -> Result<(TensorSet, Metadata), FileError> {
    let file = MappedFile::open(path)?;
    let Gguf { tensors, metadata } = parse(&file).map_err(|problem| file.broken(problem))?;
    let mut set = TensorSet::default();
    set.add(file, tensors)?;
    Ok((set, metadata))
}

/// Parses and validates everything before the tensor data.
pub fn parse(bytes: &[u8]) -> Result<Gguf, String> {
    let mut reader = Reader::new(bytes);
    read_magic(&mut reader)?;
    let tensor_count = reader.count("tensors", tensors::MIN_BYTES)?;
    let key_count = reader.count("metadata keys", values::MIN_BYTES)?;
    let metadata = values::read(&mut reader, key_count)?;
    let alignment = alignment(&metadata)?;
    let tensors = tensors::read(&mut reader, tensor_count, alignment)?;
    Ok(Gguf { tensors, metadata })
}

/// Checks the magic and the version.
fn read_magic(reader: &mut Reader) -> Result<(), String> {
    if reader.number(|bytes: [u8; 4]| bytes)? != *b"GGUF" {
        return Err("it does not start with GGUF".to_owned());
    }
    match reader.number(u32::from_le_bytes)? {
        2 | 3 => Ok(()),
        // A big-endian file differs only in the byte order of the version.
        version if version.swap_bytes() < 1 << 16 && version != 0 => {
            Err("it is big endian; only little-endian files are supported".to_owned())
        }
        version => Err(format!(
            "it is GGUF version {version}; supported are 2 and 3"
        )),
    }
}

/// The alignment of tensor data in bytes.
fn alignment(metadata: &Metadata) -> Result<usize, String> {
    const KEY: &str = "general.alignment";
    const DEFAULT: usize = 32;
    let Some(value) = metadata.get(KEY) else {
        return Ok(DEFAULT);
    };
    let Some(alignment) = metadata.integer(KEY) else {
        let name = value.type_name();
        return Err(format!("{KEY} is {name}, not a non-negative integer"));
    };
    let alignment = usize::try_from(alignment).ok();
    alignment
        .filter(|alignment| alignment.is_power_of_two())
        .ok_or_else(|| format!("{KEY} is not a power of two"))
}
