//! Why a model of the hub cannot be had, each as one sentence: what, where, what to do.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why a model of the hub cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The text is no name of a model.
    #[error("`{given}` is no model id ({problem}); give owner/name or owner/name@revision", given = given.escape_debug())]
    Id {
        /// What was given.
        given: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An environment variable means nothing.
    #[error("{name} is {is}; {advice}")]
    Setting {
        /// The variable.
        name: &'static str,
        /// What it is.
        is: String,
        /// What to do.
        advice: &'static str,
    },
    /// The hub may not be asked, and the cache does not have it.
    #[error("{id} is not whole in the cache {cache} ({missing} is missing) and HF_HUB_OFFLINE forbids to fetch it; unset HF_HUB_OFFLINE, or name the cache that has it with HF_HOME", cache = cache.display())]
    NotCached {
        /// The model.
        id: String,
        /// The folder of all repositories.
        cache: PathBuf,
        /// The first file that is needed and not there.
        missing: String,
    },
    /// 401, or 403.
    #[error("the hub does not give {id} to {whom} ({status}); {advice}")]
    Refused {
        /// The model.
        id: String,
        /// Who asked.
        whom: &'static str,
        /// What it answered.
        status: u16,
        /// What to do.
        advice: &'static str,
    },
    /// 404: there is no such repository, or no such revision of it.
    #[error(
        "the hub has no model {repo} with a revision {revision}; check the spelling, or set HF_TOKEN if it is private"
    )]
    NotFound {
        /// Owner and name.
        repo: String,
        /// The revision.
        revision: String,
    },
    /// A file without which the model cannot be used is not in the repository.
    #[error(
        "{id} has no {file} on the hub; choose a model that is kept in the layout of transformers"
    )]
    NoFile {
        /// The model.
        id: String,
        /// What is missing.
        file: String,
    },
    /// The hub cannot be reached, or cannot answer now.
    #[error(
        "the hub cannot be reached ({problem}); check the network, or HF_ENDPOINT, and try again"
    )]
    Network {
        /// What the network said.
        problem: String,
    },
    /// A download broke off again and again.
    #[error(
        "{file} broke off after {received} of {size} bytes ({problem}); run it again to go on from there"
    )]
    Interrupted {
        /// The file.
        file: String,
        /// What is kept of it.
        received: u64,
        /// How large it is.
        size: u64,
        /// What the network said last.
        problem: String,
    },
    /// A file has another size than the hub told.
    #[error(
        "{file} was announced with {announced} bytes and came with {came}; nothing of it was kept, try again"
    )]
    WrongSize {
        /// The file.
        file: String,
        /// What the hub told.
        announced: u64,
        /// What was sent.
        came: u64,
    },
    /// The hub's answer cannot be what it should be.
    #[error("the hub's answer about {about} makes no sense ({problem}); check HF_ENDPOINT")]
    Answer {
        /// What was asked for.
        about: String,
        /// What is wrong.
        problem: String,
    },
    /// There is no room left.
    #[error("the disk of {path} is full; make room, or name another folder with HF_HOME, and run it again", path = path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
}

impl HubError {
    /// Whether another attempt, or another network, might have gone well: then what the cache holds may do instead.
    pub(crate) fn is_of_the_network(&self) -> bool {
        matches!(self, Self::Network { .. } | Self::Interrupted { .. })
    }

    /// What the system said of a file.
    pub(crate) fn of_file(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_in_a_sentence() {
        let full = std::io::Error::from(ErrorKind::StorageFull);
        let error = HubError::of_file(Path::new("cache/blobs/1"), full);
        assert_eq!(
            error.to_string(),
            "the disk of cache/blobs/1 is full; make room, or name another folder with HF_HOME, and run it again"
        );
    }
}
