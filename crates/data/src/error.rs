//! Errors of reading and splitting data, each as one sentence.

use attentive_text::TextError;

/// Why data cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No file was named.
    #[error("no text file was given; name at least one")]
    NoFiles,
    /// The held-out fraction is out of range.
    #[error(
        "the held-out fraction {fraction} is out of range; it must be at least 0 and less than 1"
    )]
    HeldOutFraction {
        /// The requested fraction.
        fraction: f64,
    },
    /// A part of the corpus is shorter than one window.
    #[error(
        "the {part} part of the corpus holds {tokens} tokens, but one window of length {length} needs {}; \
         shorten the windows or add text",
        length + 1
    )]
    TooShort {
        /// "training" or "held-out".
        part: &'static str,
        /// The number of tokens in the part.
        tokens: usize,
        /// The window length.
        length: usize,
    },
    /// A file cannot be read, or its text cannot be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
}
