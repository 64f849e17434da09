//! What can go wrong with text, as sentences: what is wrong, where, and what to do.

use std::path::PathBuf;

/// Far above the largest vocabularies in use; training counts pairs in memory.
pub(crate) const LARGEST_VOCABULARY: usize = 1_000_000;

/// Every error of this crate. Each message is one sentence that a person can act on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// No file was named.
    #[error("no text file was given; name at least one")]
    NoFiles,
    /// The file does not exist.
    #[error("the file {} does not exist; check the path", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
    },
    /// A directory stands where a file was expected.
    #[error("{} is a directory; name the files in it one by one", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The file holds nothing.
    #[error("the file {} is empty; give a file that holds text", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("the file {} is not UTF-8 text (the first wrong byte is at offset {offset}); convert it to UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is not part of a valid character.
        offset: usize,
    },
    /// The operating system refused.
    #[error("the file {} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// There is no text to train on.
    #[error(
        "the corpus holds no text, so no tokenizer can be trained on it; add a document that is not empty"
    )]
    EmptyCorpus,
    /// The tokenizer would have dropped a character without a word.
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
    /// The file is not a `tokenizer.json` that can be used.
    #[error("{} is not a usable tokenizer.json ({cause}); export the tokenizer again", path.display())]
    BrokenTokenizer {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        cause: String,
    },
    /// A file of a tokenizer is damaged, or asks for what is not supported.
    #[error("{} cannot be used ({cause}); download or export the tokenizer again", path.display())]
    BrokenTokenizerFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// A tokenizer is of a kind that cannot be built.
    #[error("{}: {problem}", path.display())]
    UnsupportedTokenizer {
        /// The file.
        path: PathBuf,
        /// What is not supported, and what is.
        problem: String,
    },
    /// The files of a folder do not say which tokenizer they are, or contradict each other.
    #[error(
        "the tokenizer of {} cannot be built for certain ({cause}); add its tokenizer.json or complete its tokenizer_config.json",
        folder.display()
    )]
    UndecidedTokenizer {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        cause: String,
    },
    /// A tokenizer is more than a `tokenizer.json` can say.
    #[error(
        "a tokenizer that cuts with one vocabulary and has the ids of another, as Marian's does, cannot be written as a \
         tokenizer.json; copy the files of its folder"
    )]
    NoTokenizerJson,
    /// A folder was expected.
    #[error("{} is not a folder; give the folder that holds the model's files", path.display())]
    NotAFolder {
        /// What was given.
        path: PathBuf,
    },
    /// The special tokens alone are longer than the text may be.
    #[error(
        "a length of {length} leaves no room for the {added} special tokens that belong around the text; allow more tokens"
    )]
    NoRoom {
        /// The length asked for.
        length: usize,
        /// Special tokens that are added.
        added: usize,
    },
    /// The text that may be cut is too short for that, or is not there.
    #[error(
        "the texts cannot be cut to {length} tokens by shortening only the {text} one; allow more tokens or cut the longest first"
    )]
    CannotTruncate {
        /// The length asked for.
        length: usize,
        /// "first" or "second".
        text: &'static str,
    },
    /// A row does not fit into its batch.
    #[error(
        "a row of {row} tokens does not fit into a batch of length {length}; cut the texts when they are encoded"
    )]
    RowTooLong {
        /// Tokens of the row.
        row: usize,
        /// The length asked for.
        length: usize,
    },
    /// Rows cannot be filled up.
    #[error(
        "the tokenizer has no padding token, so rows of different lengths make no batch; name a `pad_token` in tokenizer_config.json"
    )]
    NoPaddingToken,
    /// A chat template is wrong, or refused the conversation.
    #[error("the chat template of {} failed ({cause}); check the messages and the template", path.display())]
    ChatTemplate {
        /// The file that the template is from.
        path: PathBuf,
        /// What the template said.
        cause: String,
    },
    /// A byte-level vocabulary cannot have this size.
    #[error(
        "a bpe vocabulary of {vocabulary} is out of range; use 257 (256 bytes and the end of text) to {LARGEST_VOCABULARY}"
    )]
    Vocabulary {
        /// The size asked for.
        vocabulary: usize,
    },
    /// The id stands for nothing.
    #[error(
        "the token id {id} is outside the vocabulary of {vocabulary}; use the tokenizer that made the ids"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The held-out part cannot be this fraction.
    #[error(
        "a held-out fraction of {fraction} is not possible; it must be at least 0 and less than 1"
    )]
    HeldOutFraction {
        /// The fraction asked for.
        fraction: f64,
    },
    /// A part of the corpus does not hold a single window.
    #[error(
        "the {part} part of the corpus holds {tokens} tokens, but one window of length {length} needs {}; \
         shorten the windows or add text",
        length + 1
    )]
    TooShort {
        /// "training" or "held-out".
        part: &'static str,
        /// Tokens that the part holds.
        tokens: usize,
        /// Length of a window.
        length: usize,
    },
    /// The tokenizer failed in a way that this crate does not foresee.
    #[error("the tokenizer failed ({cause}); check that its tokenizer.json is complete")]
    Tokenizer {
        /// What the tokenizer said.
        cause: String,
    },
}

impl TextError {
    /// Wraps an error of the `tokenizers` crate, which has no types.
    pub(crate) fn tokenizer(cause: impl std::fmt::Display) -> Self {
        Self::Tokenizer {
            cause: cause.to_string(),
        }
    }
}
