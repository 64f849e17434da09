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

use crate::{FileError, MappedFile, ParseError, TensorInfo, TensorSet};

/// Everything before the tensor data of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gguf {
    /// The tensors.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// The metadata, by key.
    pub metadata: Metadata,
}

/// A file of which only the metadata has been read: what it says decides whether the tensors are of any use.
#[derive(Debug)]
pub struct GgufFile {
    file: MappedFile,
    preamble: Preamble,
}

/// What comes before the tensor infos.
#[derive(Debug)]
struct Preamble {
    metadata: Metadata,
    tensor_count: usize,
    /// The offset of the first tensor header.
    headers: usize,
}

impl GgufFile {
    /// Opens a file and reads its metadata.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let file = MappedFile::open(path)?;
        let preamble = preamble(&file).map_err(|error| file.refused(error))?;
        Ok(Self { file, preamble })
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.preamble.metadata
    }

    /// Reads the tensor infos.
    pub fn tensors(self) -> Result<(TensorSet, Metadata), FileError> {
        let Self { file, preamble } = self;
        let tensors = tensors(&file, &preamble).map_err(|error| file.refused(error))?;
        let mut set = TensorSet::default();
        set.add(file, tensors)?;
        Ok((set, preamble.metadata))
    }
}

/// Opens one file.
pub fn open(path: &Path) -> Result<(TensorSet, Metadata), FileError> {
    GgufFile::open(path)?.tensors()
}

/// Parses and validates everything before the tensor data.
pub fn parse(bytes: &[u8]) -> Result<Gguf, ParseError> {
    let preamble = preamble(bytes)?;
    let tensors = tensors(bytes, &preamble)?;
    Ok(Gguf {
        tensors,
        metadata: preamble.metadata,
    })
}

fn preamble(bytes: &[u8]) -> Result<Preamble, ParseError> {
    let mut reader = Reader::at(bytes, 0);
    read_magic(&mut reader)?;
    let tensor_count = reader.count("tensors", tensors::MIN_BYTES)?;
    let key_count = reader.count("metadata keys", values::MIN_BYTES)?;
    let metadata = values::read(&mut reader, key_count)?;
    Ok(Preamble {
        metadata,
        tensor_count,
        headers: reader.position(),
    })
}

fn tensors(bytes: &[u8], preamble: &Preamble) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    let alignment = alignment(&preamble.metadata)?;
    let mut reader = Reader::at(bytes, preamble.headers);
    tensors::read(&mut reader, preamble.tensor_count, alignment)
}

/// Checks the magic and the version.
fn read_magic(reader: &mut Reader) -> Result<(), ParseError> {
    if reader.number(|bytes: [u8; 4]| bytes)? != *b"GGUF" {
        return Err("it does not start with GGUF".into());
    }
    /// Far above any version; a larger number is damage.
    const MAX_VERSION: u32 = 1 << 16;
    let problem = match reader.number(u32::from_le_bytes)? {
        2 | 3 => return Ok(()),
        // A big-endian file differs only in the byte order of the version.
        version if (1..MAX_VERSION).contains(&version.swap_bytes()) => {
            "it is big endian; only little-endian files are supported".to_owned()
        }
        version @ 1..MAX_VERSION => {
            format!("GGUF version {version} is not supported; supported are 2 and 3")
        }
        version => return Err(format!("it is GGUF version {version}; there are 1 to 3").into()),
    };
    Err(ParseError::Unsupported(problem))
}

/// The alignment of tensor data in bytes.
fn alignment(metadata: &Metadata) -> Result<usize, ParseError> {
    const KEY: &str = "general.alignment";
    const DEFAULT: usize = 32;
    let Some(value) = metadata.get(KEY) else {
        return Ok(DEFAULT);
    };
    let Some(alignment) = metadata.integer(KEY) else {
        let name = value.type_name();
        return Err(format!("{KEY} is {name}, not a non-negative integer").into());
    };
    match usize::try_from(alignment) {
        Ok(alignment) if alignment.is_power_of_two() => Ok(alignment),
        // The specification allows every multiple of 8, llama.cpp does not.
        Ok(alignment) if alignment > 0 && alignment.is_multiple_of(8) => {
            Err(ParseError::Unsupported(format!(
                "{KEY} is not a power of two but {alignment}, which is not supported"
            )))
        }
        _ => Err(format!("{KEY} is not a power of two").into()),
    }
}
