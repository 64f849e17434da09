//! Errors of this crate, as sentences: what is wrong, where, and what to do.

use std::path::{Path, PathBuf};

/// Far above the largest vocabularies in use; training counts pairs in memory.
pub(crate) const MAX_VOCABULARY: usize = 1_000_000;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file does not exist.
    #[error("the file {} does not exist; check the path", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
    },
    /// A directory where a file was expected.
    #[error("{} is a directory; name the files in it one by one", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The file is empty.
    #[error("the file {} is empty; give a file that holds text", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("the file {} is not UTF-8 text (the first invalid byte is at offset {offset}); convert it to UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is not part of a valid character.
        offset: usize,
    },
    /// An I/O error.
    #[error("the file {} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// There is no text to train on.
    #[error(
        "the corpus holds no text, so no tokenizer can be trained on it; add a document that is not empty"
    )]
    EmptyCorpus,
    /// The tokenizer would have silently dropped a character.
    #[error(
        "the character {character:?} at byte {offset} of {text} is not in the tokenizer's vocabulary; \
         remove it, or use a tokenizer of bytes"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its byte offset in the text.
        offset: usize,
        /// Which text: a file name, or "the text".
        text: String,
    },
    /// The `tokenizer.json` is invalid.
    #[error("{} is not a usable tokenizer.json ({cause}); export the tokenizer again", path.display())]
    BrokenTokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// A tokenizer file is invalid.
    #[error("{} cannot be used ({cause}); download or export the tokenizer again", path.display())]
    BrokenTokenizerFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The tokenizer is of a type, or has a setting, that is not supported.
    #[error("{}: {problem}", path.display())]
    UnsupportedTokenizer {
        /// The file.
        path: PathBuf,
        /// What is not supported, and what is.
        problem: String,
    },
    /// The files of a folder do not determine the tokenizer, or contradict each other.
    #[error(
        "the tokenizer of {} is ambiguous ({cause}); add its tokenizer.json or complete its tokenizer_config.json",
        folder.display()
    )]
    AmbiguousTokenizer {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        cause: String,
    },
    /// A call of the `tokenizers` crate panicked.
    #[error(
        "the tokenizer gave up on the text: a pattern of its tokenizer.json backtracks for too long; use another tokenizer, or split the text"
    )]
    TokenizerPanic,
    /// The files say whether text is lower-cased, or the tokenizer never does it.
    #[error(
        "do_lower_case: {} does not need to be told whether text is lower-cased ({reason}); leave do_lower_case out",
        path.display()
    )]
    NoLowerCase {
        /// The folder or file.
        path: PathBuf,
        /// Why the option has no place.
        reason: &'static str,
    },
    /// The tokenizer cannot be expressed as a `tokenizer.json`.
    #[error(
        "a tokenizer that splits with one vocabulary and has the ids of another, as Marian's does, cannot be written as a \
         tokenizer.json; copy the files of its folder"
    )]
    NoTokenizerJson,
    /// A folder was expected.
    #[error("{} is not a folder; give the folder that holds the model's files", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The special tokens alone exceed the maximum length.
    #[error(
        "a length of {length} leaves no room for the {added} special tokens around the text; allow more tokens"
    )]
    NoRoom {
        /// The maximum length.
        length: usize,
        /// The number of added special tokens.
        added: usize,
    },
    /// The text to truncate is too short, or missing.
    #[error(
        "the texts cannot be truncated to {length} tokens by shortening only the {text} one; allow more tokens or truncate the longest first"
    )]
    CannotTruncate {
        /// The maximum length.
        length: usize,
        /// "first" or "second".
        text: &'static str,
    },
    /// A row is longer than its batch.
    #[error(
        "a row of {row} tokens does not fit into a batch of length {length}; truncate the texts when encoding them"
    )]
    RowTooLong {
        /// Length of the row.
        row: usize,
        /// The maximum length.
        length: usize,
    },
    /// Rows cannot be padded.
    #[error(
        "the tokenizer has no padding token, so rows of different lengths cannot be batched; name a `pad_token` in tokenizer_config.json"
    )]
    NoPaddingToken,
    /// A chat template is invalid, or refused the conversation.
    #[error("the chat template of {} failed ({cause}); check the messages and the template", path.display())]
    ChatTemplate {
        /// The file that the template is from.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The vocabulary size is out of range.
    #[error(
        "a bpe vocabulary of {vocabulary} is out of range; use 257 (256 bytes and the end of text) to {MAX_VOCABULARY}"
    )]
    Vocabulary {
        /// The requested size.
        vocabulary: usize,
    },
    /// The id is not in the vocabulary.
    #[error(
        "the token id {id} is outside the vocabulary of {vocabulary}; use the tokenizer that made the ids"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// An unexpected failure of the tokenizer.
    #[error("the tokenizer failed ({cause}); check that its tokenizer.json is complete")]
    Tokenizer {
        /// The cause.
        cause: String,
    },
}

/// Why a parser refuses a tokenizer file.
#[derive(Debug)]
pub(crate) enum Problem {
    /// It is invalid.
    Broken(String),
    /// It may be valid, in a form that is not read here.
    Unsupported(String),
}

impl From<String> for Problem {
    fn from(cause: String) -> Self {
        Self::Broken(cause)
    }
}

impl Problem {
    /// The error for a file.
    pub(crate) fn of(self, path: &Path) -> TextError {
        let path = path.to_owned();
        match self {
            Self::Broken(cause) => TextError::BrokenTokenizerFile { path, cause },
            Self::Unsupported(problem) => TextError::UnsupportedTokenizer { path, problem },
        }
    }
}

impl TextError {
    /// Wraps an untyped error of the `tokenizers` crate.
    pub(crate) fn tokenizer(cause: impl std::fmt::Display) -> Self {
        Self::Tokenizer {
            cause: cause.to_string(),
        }
    }
}
