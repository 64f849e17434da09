//! PyTorch's `pytorch_model.bin`, read without executing anything.
//!
//! Such a file is a program for Python's pickle machine that calls functions to build its objects, so loading one can run
//! arbitrary code. The unpickler here recognizes the few functions that build tensors, records their arguments without calling
//! them, and refuses all others.
//!
//! ```text
//! since PyTorch 1.6, a zip archive:     legacy, concatenated:
//!   NAME/data.pkl    the object           magic, protocol version, system info    (three pickles)
//!   NAME/byteorder   "little"             the object                              (a pickle)
//!   NAME/data/0      a storage            the keys of the storages                (a pickle)
//!   NAME/data/1      a storage            count, data; count, data; …
//! ```
//!
//! A tensor is a view of a storage: an offset, a shape and strides. Several may share one.

mod archive;
mod global;
mod legacy;
mod opcode;
mod state_dict;
mod unpickler;
mod value;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::{FileError, MappedFile, ParseError, TensorInfo, TensorSet, shards};

/// Finds the tensors in a file's bytes.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    if archive::is_zip(bytes) {
        archive::parse(bytes)
    } else {
        legacy::parse(bytes)
    }
}

/// Opens one file.
pub fn open(path: &Path) -> Result<TensorSet, FileError> {
    let file = MappedFile::open(path)?;
    let tensors = parse(&file).map_err(|error| file.refused(error))?;
    let mut set = TensorSet::default();
    set.add(file, tensors)?;
    Ok(set)
}

/// Opens the shards of an index (`pytorch_model.bin.index.json`), which must be in its folder.
pub fn open_sharded(index: &Path) -> Result<TensorSet, FileError> {
    shards::open(index, parse)
}
