//! Errors of the tasks, each as one sentence: what, where, what to do.

use std::path::PathBuf;

use attentive_formats::error_text::one_line;
use attentive_images::ImageError;
use attentive_text::TextError;

/// An error of a task.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A text could not be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// An image could not be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The model has no head for the task.
    #[error("the model has no {missing}; {advice}")]
    NoHead {
        /// What it would need.
        missing: &'static str,
        /// Which models have it.
        advice: &'static str,
    },
    /// The text has no mask token.
    #[error(
        "the text {} has no {mask}; put it where a token should be predicted",
        quoted(text)
    )]
    NoMask {
        /// The text.
        text: String,
        /// The mask token.
        mask: String,
    },
    /// Truncation has cut off a mask token.
    #[error(
        "text {number} is truncated to {length} tokens, which cuts off a {mask}; allow more tokens, or shorten the text"
    )]
    TruncatedMask {
        /// The text, counted from one.
        number: usize,
        /// The tokens that are left.
        length: usize,
        /// The mask token.
        mask: String,
    },
    /// The tokenizer has no mask token.
    #[error("the tokenizer has no mask token; use a masked language model")]
    NoMaskToken,
    /// A text is longer than the model's length, or than its folder's `max_seq_length`.
    #[error(
        "text {number} has {tokens} tokens, more than the model's limit of {length}; shorten it"
    )]
    TooLong {
        /// The text, counted from one.
        number: usize,
        /// Its tokens.
        tokens: usize,
        /// The smaller of the two.
        length: usize,
    },
    /// A text has no tokens.
    #[error("text {number} has no tokens; give one that is not empty")]
    Empty {
        /// The text, counted from one.
        number: usize,
    },
    /// An output of the model is NaN.
    #[error(
        "the model's outputs are NaN; its weights are broken, or were saved in a dtype with too small a range"
    )]
    NanOutput,
    /// A token type id of the tokenizer is outside the model's embedding.
    #[error(
        "the tokenizer gives token type {token_type} and the model has {types}; they are not from one folder"
    )]
    UnknownTokenType {
        /// The token type.
        token_type: u32,
        /// How many there are.
        types: usize,
    },
    /// The images do not have the model's channels.
    #[error("the images have {found} channels and the model reads {needed}; use another model")]
    Channels {
        /// The channels of the images.
        found: usize,
        /// The channels of the model.
        needed: usize,
    },
    /// A token of the tokenizer is outside the model's vocabulary.
    #[error(
        "the tokenizer gives id {id} and the model has a vocabulary of {vocabulary}; they are not from one folder"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// The size of an image is not a multiple of the patch size.
    #[error(
        "preprocessor_config.json makes images of {height} by {width} pixels, and the model's patches are {patch} wide; both must be multiples of that"
    )]
    Patches {
        /// Rows of pixels.
        height: usize,
        /// Columns of pixels.
        width: usize,
        /// Rows and columns of a patch.
        patch: usize,
    },
    /// The settings of a sentence-transformers folder cannot be used.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// The beginning of a text in quotes, on one line.
fn quoted(text: &str) -> String {
    const MAX_CHARACTERS: usize = 80;
    let mut beginning: String = text.chars().take(MAX_CHARACTERS).collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        beginning.push('…');
    }
    format!("{beginning:?}")
}
