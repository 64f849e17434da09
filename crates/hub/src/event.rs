//! Progress events of downloads.

use crate::HubError;

/// A progress event.
#[derive(Debug)]
pub enum Event<'a> {
    /// A download started, or restarted because its partial file could not be resumed.
    Started {
        /// Its name in the repository.
        file: &'a str,
        /// Whether it holds weights.
        kind: FileKind,
        /// Its size in bytes.
        size: u64,
        /// Bytes present from an earlier attempt.
        present: u64,
    },
    /// More bytes were received.
    Received {
        /// How many.
        bytes: u64,
    },
    /// The connection broke, and the download will be resumed.
    Retrying {
        /// The cause.
        problem: &'a str,
    },
    /// The file is complete.
    Finished,
    /// Waiting for another process that is downloading the same file.
    Waiting {
        /// Its name in the repository.
        file: &'a str,
    },
    /// The hub failed, and a cached snapshot is used.
    UsingCache {
        /// The cause.
        problem: &'a HubError,
    },
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Weights, which make up nearly all of the bytes.
    Weights,
    /// Configs and tokenizer files.
    Small,
}

/// A callback for events.
pub type Listener<'a> = dyn FnMut(Event) + 'a;
