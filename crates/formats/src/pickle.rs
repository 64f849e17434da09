//! PyTorch's `pytorch_model.bin`, read without running anything.
//!
//! Such a file is a program for Python's pickle machine that calls functions to build its objects, so loading one can run any
//! code. The machine here knows the few functions that build tensors by name, notes what they were to be called with, and
//! refuses all others. It calls none.
//!
//! ```text
//! since PyTorch 1.6, a zip archive:     before it, one after the other:
//!   NAME/data.pkl    the object           a magic number, a version, the system   (three pickles)
//!   NAME/byteorder   "little"             the object                              (a pickle)
//!   NAME/data/0      a storage            the keys of the storages                (a pickle)
//!   NAME/data/1      a storage            count, numbers; count, numbers; …
//! ```
//!
//! A tensor is a window onto a storage: an offset, sizes and strides. Several may share one.

mod archive;
mod global;
mod layout;
mod machine;
mod older;
mod opcode;
mod state;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Entry, FileError, Mapped, TensorSet, shards};

/// Finds the tensors in a file's bytes.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
    if archive::is_one(bytes) {
        archive::parse(bytes)
    } else {
        older::parse(bytes)
    }
}

/// Opens one file.
pub fn open(path: &Path) -> Result<TensorSet, FileError> {
    let file = Mapped::open(path)?;
    let entries = parse(&file).map_err(|problem| file.broken(problem))?;
    let mut set = TensorSet::default();
    set.add(file, entries)?;
    Ok(set)
}

/// Opens the files that an index (`pytorch_model.bin.index.json`) names, all of them in its folder.
pub fn open_sharded(index: &Path) -> Result<TensorSet, FileError> {
    shards::open(index, parse)
}
