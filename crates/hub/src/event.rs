//! What happens while files are fetched, for whoever shows it.

use crate::HubError;

/// Something that a person who waits may want to see.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file begins, or begins again because what was there of it could not be used.
    Started {
        /// Its name in the repository.
        file: &'a str,
        /// Whether it holds weights.
        kind: FileKind,
        /// All of its bytes.
        size: u64,
        /// Those that are there from an earlier attempt.
        present: u64,
    },
    /// More of the file has come.
    Received {
        /// How many bytes more.
        bytes: u64,
    },
    /// The connection broke, and the file goes on from where it stands.
    Retrying {
        /// What the network said.
        problem: &'a str,
    },
    /// The file is whole and in its place.
    Finished,
    /// Another process fetches the same file; it is waited for.
    Waiting {
        /// Its name in the repository.
        file: &'a str,
    },
    /// The hub could not be asked or did not answer to the end, and an earlier snapshot of the cache is used.
    CacheInstead {
        /// Why.
        problem: &'a HubError,
    },
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Numbers of the model, which make up nearly all of its bytes.
    Weights,
    /// Settings and vocabularies.
    Small,
}

/// Whoever is told.
pub type Listener<'a> = dyn FnMut(Event) + 'a;
