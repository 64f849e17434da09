//! Safetensors: a header of JSON that says where each tensor lies, then the tensors.

use std::collections::BTreeMap;
use std::path::Path;

use ::safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::shown::shown;
use crate::{Entry, FileError, Kind, Mapped, TensorSet, shards};

/// What a file's header says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// The tensors.
    pub entries: BTreeMap<String, Entry>,
    /// The free text.
    pub metadata: BTreeMap<String, String>,
}

/// Reads and checks the header of a file's bytes.
pub fn parse(bytes: &[u8]) -> Result<Header, String> {
    // This checks that the sizes of the tensors are those of their bytes, that they follow each other without gap or overlap,
    // and that they end where the file ends.
    let problem = |error: SafeTensorError| shown(&error.to_string());
    SafeTensors::deserialize(bytes).map_err(problem)?;
    let (header_size, header) = SafeTensors::read_metadata(bytes).map_err(problem)?;
    let start = header_size + 8;
    let mut entries = BTreeMap::new();
    for (name, info) in header.tensors() {
        let kind = kind(info.dtype).ok_or_else(|| {
            let name = shown(&name);
            format!(
                "tensor {name} is {:?}, which is not supported; supported are F64, F32, F16, BF16 and whole numbers",
                info.dtype
            )
        })?;
        let entry = Entry::dense(
            kind,
            info.shape.clone(),
            start + info.data_offsets.0,
            bytes.len(),
        )?;
        entries.insert(name, entry);
    }
    let metadata = header.metadata().clone().unwrap_or_default();
    Ok(Header {
        entries,
        metadata: metadata.into_iter().collect(),
    })
}

fn kind(theirs: Dtype) -> Option<Kind> {
    Some(match theirs {
        Dtype::F64 => Kind::F64,
        Dtype::F32 => Kind::F32,
        Dtype::F16 => Kind::F16,
        Dtype::BF16 => Kind::BF16,
        Dtype::I64 => Kind::I64,
        Dtype::I32 => Kind::I32,
        Dtype::I16 => Kind::I16,
        Dtype::I8 => Kind::I8,
        Dtype::U64 => Kind::U64,
        Dtype::U32 => Kind::U32,
        Dtype::U16 => Kind::U16,
        Dtype::U8 => Kind::U8,
        Dtype::BOOL => Kind::Bool,
        _ => return None,
    })
}

/// Opens one file.
pub fn open(path: &Path) -> Result<(TensorSet, BTreeMap<String, String>), FileError> {
    let file = Mapped::open(path)?;
    let Header { entries, metadata } = parse(&file).map_err(|problem| file.broken(problem))?;
    let mut set = TensorSet::default();
    set.add(file, entries)?;
    Ok((set, metadata))
}

/// Opens the files that an index (`model.safetensors.index.json`) names, all of them in its folder.
pub fn open_sharded(index: &Path) -> Result<TensorSet, FileError> {
    shards::open(index, |bytes| Ok(parse(bytes)?.entries))
}
