//! Memory-mapped files: pages are read on first access.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

use crate::{FileError, ParseError};

/// A memory-mapped file.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    bytes: Arc<Mmap>,
}

/// A slice that keeps its map alive.
struct MappedSlice {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl AsRef<[u8]> for MappedSlice {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl MappedFile {
    /// Maps a file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Io {
            path: path.to_owned(),
            source,
        };
        refuse_directory(path).map_err(failed)?;
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            let problem = "this is a pipe or a device, which cannot be mapped; copy it to a file";
            return Err(failed(Error::new(ErrorKind::InvalidInput, problem)));
        }
        // SAFETY: the map is read-only. Model files are replaced atomically (ours are renamed into place), and a replaced file
        // stays mapped as it was. Truncating or overwriting one in place while it is in use crashes the program, as with
        // every program that maps its weights (see ARCHITECTURE.md).
        #[allow(unsafe_code)]
        let bytes = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            bytes: Arc::new(bytes),
        })
    }

    /// A zero-copy slice, which keeps the file mapped.
    pub(crate) fn share(&self, range: Range<usize>) -> Option<Bytes> {
        self.bytes.get(range.clone())?;
        let map = Arc::clone(&self.bytes);
        Some(Bytes::from_owner(MappedSlice { map, range }))
    }

    /// Evicts the pages of a byte range (`MADV_DONTNEED`); they are read again on the next access.
    pub(crate) fn evict(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            // SAFETY: the map is read-only and file-backed, so evicted pages are restored from the file.
            #[allow(unsafe_code)]
            let released = unsafe {
                self.bytes.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    bytes.start,
                    bytes.len(),
                )
            };
            // Only a hint: without it, loading a model merely takes more memory.
            let _ = released;
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error for invalid contents.
    pub(crate) fn broken(&self, problem: impl Into<String>) -> FileError {
        FileError::Broken {
            path: self.path.clone(),
            problem: problem.into(),
        }
    }

    /// The error of a parser.
    pub(crate) fn refused(&self, error: ParseError) -> FileError {
        match error {
            ParseError::Broken(problem) => self.broken(problem),
            ParseError::Unsupported(problem) => FileError::Unsupported {
                path: self.path.clone(),
                problem,
            },
        }
    }
}

/// An error for a directory: the system's error of mapping one is "No such device".
pub(crate) fn refuse_directory(path: &Path) -> Result<(), Error> {
    let problem = "this is a directory, and a file is needed here; put the file in its place";
    match std::fs::metadata(path)?.is_dir() {
        true => Err(Error::new(ErrorKind::IsADirectory, problem)),
        false => Ok(()),
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
