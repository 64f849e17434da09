//! GGUF: metadata that says everything about a model, then its tensors, often quantized. The format of ggml and llama.cpp.
//!
//! ```text
//! "GGUF" │ version │ tensors n │ keys m │ m × (key, type, value) │ n × (name, sizes, kind, offset) │ padding │ numbers
//!          u32       u64         u64                                                      │                    ▲
//!                                                                                         └──── counted from ──┘
//! ```

mod metadata;
mod reader;
mod tensors;
mod values;

use std::collections::BTreeMap;
use std::path::Path;

pub use metadata::{List, Metadata, Value};
use reader::Reader;

use crate::{Entry, FileError, Mapped, TensorSet};

/// What a file says before its numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The tensors.
    pub entries: BTreeMap<String, Entry>,
    /// What the file says about the model.
    pub metadata: Metadata,
}

/// Opens one file.
pub fn open(path: &Path) -> Result<(TensorSet, Metadata), FileError> {
    let file = Mapped::open(path)?;
    let Gguf { entries, metadata } = parse(&file).map_err(|problem| file.broken(problem))?;
    let mut set = TensorSet::default();
    set.add(file, entries)?;
    Ok((set, metadata))
}

/// Reads and checks all that stands before the numbers in a file's bytes.
pub fn parse(bytes: &[u8]) -> Result<Gguf, String> {
    let mut reader = Reader::new(bytes);
    read_beginning(&mut reader)?;
    let tensor_count = reader.count("tensors", tensors::SMALLEST)?;
    let key_count = reader.count("metadata keys", values::SMALLEST)?;
    let metadata = values::read(&mut reader, key_count)?;
    let alignment = alignment(&metadata)?;
    let entries = tensors::read(&mut reader, tensor_count, alignment)?;
    Ok(Gguf { entries, metadata })
}

/// The format's own name, and a version that is read here.
fn read_beginning(reader: &mut Reader) -> Result<(), String> {
    if reader.number(|bytes: [u8; 4]| bytes)? != *b"GGUF" {
        return Err("it does not begin with GGUF".to_owned());
    }
    match reader.number(u32::from_le_bytes)? {
        2 | 3 => Ok(()),
        // Nothing but the order of these four bytes tells such files from ours.
        version if version.swap_bytes() < 1 << 16 && version != 0 => {
            Err("it is big endian; only little-endian files are supported".to_owned())
        }
        version => Err(format!(
            "it is GGUF version {version}; supported are 2 and 3"
        )),
    }
}

/// The number of bytes that all tensors begin at a multiple of.
fn alignment(metadata: &Metadata) -> Result<usize, String> {
    const KEY: &str = "general.alignment";
    const DEFAULT: usize = 32;
    let Some(value) = metadata.get(KEY) else {
        return Ok(DEFAULT);
    };
    let Some(alignment) = metadata.integer(KEY) else {
        let name = value.type_name();
        return Err(format!("{KEY} is {name}, no whole number of 0 or more"));
    };
    let alignment = usize::try_from(alignment).ok();
    alignment
        .filter(|alignment| alignment.is_power_of_two())
        .ok_or_else(|| format!("{KEY} is no power of two"))
}
