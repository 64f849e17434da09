//! What can be wrong with a file, each as one sentence.

use std::path::PathBuf;

/// Why a file of tensors cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system would not read it.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{path} cannot be read ({problem}); fetch or save it again", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What a parser said.
        problem: String,
    },
}
