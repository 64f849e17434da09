//! Why a task cannot be done, each as one sentence: what, where, what to do.

use std::path::PathBuf;

use attentive_images::ImageError;
use attentive_model::checkpoint::one_line;
use attentive_text::TextError;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A text could not be turned into tokens.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A picture could not be read.
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
    /// The text has no gap.
    #[error("the text {text:?} has no {mask}; put it where a token is to be found")]
    NoGap {
        /// The text.
        text: String,
        /// How a gap is written.
        mask: String,
    },
    /// The tokenizer has no word for a gap.
    #[error(
        "the tokenizer has no mask token, so gaps cannot be written; use a model that was trained to fill gaps"
    )]
    NoMaskToken,
    /// A text is longer than the model reads.
    #[error("text {number} has {tokens} tokens and the model reads at most {most}; shorten it")]
    TooLong {
        /// Which text, from one.
        number: usize,
        /// Its tokens.
        tokens: usize,
        /// The most tokens.
        most: usize,
    },
    /// A text has no tokens.
    #[error("text {number} has no tokens; give one that is not empty")]
    Empty {
        /// Which text, from one.
        number: usize,
    },
    /// The model's weights or the text lead to scores that are no numbers.
    #[error(
        "the model gives scores that are no numbers; its weights are broken, or were saved with too few bits"
    )]
    NotANumber,
    /// A segment of the tokenizer is none of the model's.
    #[error(
        "the tokenizer gives segment {segment} and the model knows {types}; they are not of one folder"
    )]
    UnknownSegment {
        /// The segment.
        segment: u32,
        /// How many there are.
        types: usize,
    },
    /// A picture has another number of channels than the model reads.
    #[error("pictures have {found} channels and the model reads {needed}; use another model")]
    Channels {
        /// Of pictures.
        found: usize,
        /// Of the model.
        needed: usize,
    },
    /// A token of the tokenizer is none of the model's.
    #[error(
        "the tokenizer gives id {id} and the model knows {vocabulary} tokens; they are not of one folder"
    )]
    UnknownId {
        /// The id.
        id: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// A picture is no whole number of patches.
    #[error(
        "preprocessor_config.json makes pictures of {height} by {width} pixels, and the model's patches are {patch} wide; both must be multiples of that"
    )]
    Patches {
        /// Rows of pixels.
        height: usize,
        /// Columns of pixels.
        width: usize,
        /// Rows and columns of a patch.
        patch: usize,
    },
    /// Settings of a folder of sentence-transformers cannot be used.
    #[error("{path}: {problem}", path = path.display(), problem = one_line(problem))]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
}
