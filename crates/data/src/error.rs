//! Why data cannot be used, each as one sentence.

use attentive_text::TextError;

/// Why data cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No file was named.
    #[error("no text file was given; name at least one")]
    NoFiles,
    /// The held-out part cannot be this fraction.
    #[error(
        "a held-out fraction of {fraction} is not possible; it must be at least 0 and less than 1"
    )]
    HeldOutFraction {
        /// The fraction asked for.
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
        /// Tokens that the part holds.
        tokens: usize,
        /// Length of a window.
        length: usize,
    },
    /// A file cannot be read, or its text cannot be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
}
