//! Reading whole files, with an error for each common mistake.

use std::io::ErrorKind;
use std::path::Path;

use crate::TextError;

/// Reads a whole file, with an error for each common mistake.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, TextError> {
    let path_buffer = || path.to_owned();
    if path.is_dir() {
        return Err(TextError::Directory {
            path: path_buffer(),
        });
    }
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => TextError::MissingFile {
            path: path_buffer(),
        },
        _ => TextError::Io {
            path: path_buffer(),
            source,
        },
    })?;
    if bytes.is_empty() {
        Err(TextError::EmptyFile {
            path: path_buffer(),
        })
    } else {
        Ok(bytes)
    }
}
