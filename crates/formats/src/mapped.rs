//! A file mapped into memory: its bytes are read by the system when they are first looked at.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

use crate::FileError;

/// The bytes of a file.
#[derive(Debug)]
pub struct Mapped {
    path: PathBuf,
    bytes: Arc<Mmap>,
}

/// Some bytes of a map, which lives as long as they are held.
struct Part {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl Mapped {
    /// Maps a file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Io {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the map is only read. Model files are replaced whole (ours are renamed into place), and a file that is
        // replaced stays mapped as it was. Whoever cuts or writes one in place while it is in use ends the program, as with
        // every program that maps its weights; ARCHITECTURE.md says so.
        #[allow(unsafe_code)]
        let bytes = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            bytes: Arc::new(bytes),
        })
    }

    /// Some bytes as they lie in the file, without a copy; the file stays mapped as long as they are held.
    pub(crate) fn share(&self, range: Range<usize>) -> Option<Bytes> {
        self.bytes.get(range.clone())?;
        let map = Arc::clone(&self.bytes);
        Some(Bytes::from_owner(Part { map, range }))
    }

    /// Lets go of the memory that some bytes take; they are read again when they are looked at again.
    pub(crate) fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            // SAFETY: the map is of a file and only read, so what is let go comes back from the file.
            #[allow(unsafe_code)]
            let released = unsafe {
                self.bytes.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    bytes.start,
                    bytes.len(),
                )
            };
            // A hint: without it a model merely takes more memory while it is loaded.
            let _ = released;
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// That the file cannot be read, and why.
    pub(crate) fn broken(&self, problem: impl Into<String>) -> FileError {
        FileError::Broken {
            path: self.path.clone(),
            problem: problem.into(),
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
