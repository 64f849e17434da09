//! Errors of resolving a model, each as one sentence: what, where, what to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why a model cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The text is not a model id.
    #[error("`{given}` is not a model id ({problem}); give owner/name or owner/name@revision", given = given.escape_debug())]
    Id {
        /// The text.
        given: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An environment variable is invalid.
    #[error("{name} is {value}; {advice}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        advice: &'static str,
    },
    /// Offline, and not in the cache.
    #[error("{id} is not complete in the cache {cache} ({missing} is missing) and HF_HUB_OFFLINE forbids downloading it; unset HF_HUB_OFFLINE, or set HF_HOME to the cache that has it", cache = cache.display())]
    NotCached {
        /// The model.
        id: String,
        /// The cache.
        cache: PathBuf,
        /// The first missing file.
        missing: String,
    },
    /// 401 or 403.
    #[error("the hub denies {whom} access to {id} ({status}); {advice}")]
    Refused {
        /// The model.
        id: String,
        /// Who was refused.
        whom: &'static str,
        /// The HTTP status.
        status: u16,
        /// What to do.
        advice: &'static str,
    },
    /// 404: no such repository or revision.
    #[error(
        "the hub has no model {repo} with a revision {revision}; check the spelling, or set HF_TOKEN if it is private"
    )]
    NotFound {
        /// The repository.
        repo: String,
        /// The revision.
        revision: String,
    },
    /// A required file is not in the repository.
    #[error("{id} has no {file} on the hub; choose a model in the layout of transformers")]
    NoFile {
        /// The model.
        id: String,
        /// The missing file.
        file: String,
    },
    /// The hub cannot be reached, or fails.
    #[error(
        "the hub cannot be reached ({problem}); check the network, or HF_ENDPOINT, and try again"
    )]
    Network {
        /// The cause.
        problem: String,
    },
    /// A download failed repeatedly.
    #[error(
        "{file} was interrupted after {received} of {size} bytes ({problem}); run it again to resume"
    )]
    Interrupted {
        /// The file.
        file: String,
        /// Bytes received and kept.
        received: u64,
        /// Its size in bytes.
        size: u64,
        /// The last cause.
        problem: String,
    },
    /// A file's size differs from its metadata.
    #[error(
        "{file} should have {expected} bytes and has {actual}; the download was discarded, try again"
    )]
    WrongSize {
        /// The file.
        file: String,
        /// The size in the metadata.
        expected: u64,
        /// The actual size.
        actual: u64,
    },
    /// The hub's response is invalid.
    #[error("the hub's response about {about} is invalid ({problem}); check HF_ENDPOINT")]
    Answer {
        /// What was requested.
        about: String,
        /// What is wrong.
        problem: String,
    },
    /// The disk is full.
    #[error("the disk of {path} is full; free some space, or set HF_HOME to another folder, and run it again", path = path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl HubError {
    /// Whether the error is transient, so that a cached snapshot may be used instead.
    pub(crate) fn is_network_error(&self) -> bool {
        matches!(self, Self::Network { .. } | Self::Interrupted { .. })
    }

    /// Wraps an I/O error.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Text from a server or a file in a message: escaped, truncated to 160 characters.
pub(crate) fn excerpt(text: &str) -> String {
    text.escape_debug().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_reported_in_a_sentence() {
        let full = std::io::Error::from(ErrorKind::StorageFull);
        let error = HubError::io(Path::new("cache/blobs/1"), full);
        assert_eq!(
            error.to_string(),
            "the disk of cache/blobs/1 is full; free some space, or set HF_HOME to another folder, and run it again"
        );
    }
}
