//! What models that read are used for: filling gaps in texts, classes of texts and pictures, labels of tokens, vectors of
//! texts.
//!
//! Each task takes many inputs and runs them in batches of similar lengths; results come back in the order of the inputs.

mod batches;
mod classify;
mod embed;
mod error;
mod fill;
mod pooling;

pub use batches::{Batches, Text};
pub use classify::{LabelledToken, Meaning, Scored, classify_images, classify_texts, label_tokens};
pub use embed::{EmbedConfig, embed};
pub use error::TaskError;
pub use fill::{Candidate, Gap, fill};
pub use pooling::{Pooling, SentenceFolder};
