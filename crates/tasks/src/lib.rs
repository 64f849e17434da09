//! Tasks of encoders: fill-mask, sequence, image and token classification, text embeddings.
//!
//! Inputs are batched by similar length; results are in the order of the inputs.

mod answer;
mod batcher;
mod classify;
mod embed;
mod error;
mod fill_mask;
mod sentence_transformers;

pub use answer::{AnswerSpan, answer};
pub use batcher::{Batcher, Text};
pub use classify::{
    ClassLabels, ClassScore, ClassifiedToken, classify_images, classify_texts, classify_tokens,
};
pub use embed::{EmbedConfig, embed};
pub use error::TaskError;
pub use fill_mask::{Candidate, MaskedToken, fill_mask};
pub use sentence_transformers::{Pooling, SentenceTransformersConfig};
