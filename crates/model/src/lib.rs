//! Transformer models built from parts, and their checkpoints.
//!
//! A model is a [`ModelConfig`] (one typed tree, shared with recipes and checkpoints) and the [`LanguageModel`] that it
//! builds. [`checkpoint`] reads and writes model folders. Nothing here reads a clock, a network or a corpus, and nothing
//! here knows that training exists.

mod attention;
mod block;
mod cache;
pub mod checkpoint;
mod checks;
mod config;
mod feed_forward;
mod initial;
mod language_model;
mod linear;
mod norm;
mod observer;
mod parameters;
mod pass;
mod positions;
mod sublayer;

pub use attention::*;
pub use block::{Block, BlockConfig, NormPlacement};
pub use cache::{Cache, KeyValues, Segment, State};
pub use config::{ConfigError, HeadConfig, ModelConfig, Operations};
pub use feed_forward::{
    Dense, ExpertForm, ExpertWeighting, Experts, ExpertsConfig, FeedForward, FeedForwardConfig,
    GatedConfig, PlainConfig, Routes,
};
pub use initial::Initializer;
pub use language_model::{Extras, Hidden, Input, LanguageModel, Output};
pub use linear::Linear;
pub use norm::{Norm, NormConfig};
pub use observer::{AttentionSite, Observer, Recorder, Site};
pub use parameters::{Parameter, parameters, replace_parameters};
pub use pass::Pass;
pub use positions::{
    BucketDirection, DistanceBias, Llama3Scaling, PositionsConfig, RotaryConfig, RotaryFrequencies,
    RotaryScaling, SinusoidLayout, T5BucketsConfig, YarnScaling, alibi_slopes, sinusoid,
    sinusoid_shift,
};
pub use sublayer::Sublayer;

pub use attentive_tensor::{Activation, Mask, Purpose, Randomness};
