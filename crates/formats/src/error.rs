//! Errors of reading files, each as one sentence.

use std::path::PathBuf;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An I/O error.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The contents are invalid.
    #[error("{path} cannot be read ({problem}); download or save it again", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The contents may be valid, in a form that is not read here.
    #[error("{path}: {problem}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported.
        problem: String,
    },
}

/// Why a parser refuses bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// They are invalid.
    #[error("{0}")]
    Broken(String),
    /// They may be valid, in a form that is not read here: a sentence that says so.
    #[error("{0}")]
    Unsupported(String),
}

impl From<String> for ParseError {
    fn from(problem: String) -> Self {
        Self::Broken(problem)
    }
}

impl From<&str> for ParseError {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

impl ParseError {
    /// The error for a form that is not read here.
    pub(crate) fn unsupported(problem: impl Into<String>) -> Self {
        Self::Unsupported(problem.into())
    }

    /// The same error of a part of the file, whose name comes first.
    pub(crate) fn of(self, part: &str) -> Self {
        match self {
            Self::Broken(problem) => Self::Broken(format!("{part}: {problem}")),
            Self::Unsupported(problem) => Self::Unsupported(format!("{part}: {problem}")),
        }
    }
}
