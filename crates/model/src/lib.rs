//! Transformer models built from parts, and their checkpoints.
//!
//! A model is a [`ModelConfig`] (one typed tree, shared with recipes and checkpoints) and the [`Model`] that it
//! builds. What came before transformers is beside it: [`recurrent`], an encoder-decoder that looks back. [`checkpoint`] reads and writes model folders. Nothing here reads a clock, a network or a corpus, and nothing
//! here knows that training exists.

mod attention;
mod block;
mod cache;
pub mod checkpoint;
mod checks;
mod clusters;
mod config;
mod embedding;
mod feed_forward;
mod globals;
mod head;
mod initial;
mod linear;
mod model;
pub mod models;
mod norm;
mod observer;
mod parameters;
mod pass;
mod patches;
mod positions;
mod question;
pub mod recurrent;
mod residual;
mod stack;
mod sublayer;
mod validate;

pub use attention::*;
pub use block::{Block, BlockConfig, NormPlacement};
pub use cache::{Cache, KeyValues, Segment, State};
pub use clusters::{Adaptive, AdaptiveConfig, ClusterEmbedding, ClustersConfig};
pub use config::{ConfigError, ModelConfig, Operations};
pub use embedding::{Embedding, EmbeddingConfig};
pub use feed_forward::{
    Dense, ExpertForm, ExpertWeighting, Experts, ExpertsConfig, FeedForward, FeedForwardConfig,
    GatedConfig, PlainConfig, Routes,
};
pub use globals::GlobalsConfig;
pub use head::*;
pub use initial::Initializer;
pub use linear::Linear;
pub use model::{Model, Output};
pub use norm::{Norm, NormConfig};
pub use observer::{AttentionSite, Observer, Recorder, Site};
pub use parameters::{Numbers, Parameter, parameters, replace_parameters};
pub use pass::Pass;
pub use patches::{Patches, PatchesConfig};
pub use positions::{
    Axial, AxialConfig, BucketDirection, DistanceBias, LearnedConfig, Llama3Scaling,
    PositionsConfig, RotaryConfig, RotaryFrequencies, RotaryScaling, SinusoidLayout,
    SinusoidalConfig, T5BucketsConfig, YarnScaling, alibi_slopes, sinusoid, sinusoid_shift,
};
pub use recurrent::{Recurrent, RecurrentConfig};
pub use residual::{Residual, ResidualConfig, Stream};
pub use stack::{Extras, Hidden, Input, Source, Stack};
pub use sublayer::Sublayer;

pub use attentive_tensor::{Activation, Mask, Purpose, Randomness};
