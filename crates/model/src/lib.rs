//! Transformer models built from parts.
//!
//! A model is a [`ModelConfig`] (one typed tree, shared with recipes and checkpoints) and the [`Model`] that it
//! builds. [`recurrent`] has what came before transformers: an encoder-decoder with additive attention. Nothing here reads a
//! clock, a network or a corpus, and nothing here knows that training exists.

mod adaptive;
mod attention;
mod block;
mod cache;
mod checks;
mod config;
mod embedding;
mod feed_forward;
mod forward_context;
mod globals;
mod head;
mod initializer;
mod linear;
mod model;
pub mod models;
mod norm;
mod observer;
mod parameters;
mod patches;
mod positions;
pub mod recurrent;
mod residual;
mod stack;
mod stack_config;
mod sublayer;
mod validate;

// Whole models: their settings, inputs and outputs.
pub use checks::MAX_BLOCKS;
pub use config::{ConfigError, Flops, ModelConfig, StackConfig};
pub use model::{Model, Output};
pub use recurrent::{Recurrent, RecurrentConfig};
pub use stack::{ForwardOptions, HiddenStates, Input, InputData, Stack};

// Embeddings, positions and heads.
pub use adaptive::{
    AdaptiveEmbedding, AdaptiveEmbeddingConfig, AdaptiveSoftmax, AdaptiveSoftmaxConfig,
};
pub use embedding::{Embedding, EmbeddingConfig};
pub use head::*;
pub use patches::{Patches, PatchesConfig};
pub use positions::{
    Axial, AxialConfig, BucketDirection, DistanceBias, LearnedConfig, Llama3Scaling,
    PositionsConfig, RotaryConfig, RotaryFrequencies, RotaryScaling, SinusoidLayout,
    SinusoidalConfig, T5BucketsConfig, YarnScaling, alibi_slopes, sinusoid, sinusoid_shift,
};

// Blocks and their layers.
pub use attention::*;
pub use block::{Block, BlockConfig, NormPlacement};
pub use feed_forward::{
    Dense, ExpertForm, ExpertWeighting, Experts, ExpertsConfig, FeedForward, FeedForwardConfig,
    GatedConfig, PlainConfig, Routing,
};
pub use globals::GlobalsConfig;
pub use linear::Linear;
pub use norm::{Norm, NormConfig};
pub use residual::{Residual, ResidualConfig, Stream};
pub use sublayer::Sublayer;

// What a forward pass carries, and who may watch it.
pub use cache::{Cache, KeyValueCache, LinearAttentionCache, SegmentCache};
pub use forward_context::ForwardContext;
pub use observer::{AttentionSite, Observer, Recorder, Site};

// Parameters.
pub use initializer::Initializer;
pub use parameters::{ParamData, Parameter, parameters, replace_parameters};

pub use attentive_tensor::{Activation, Mask, Purpose, Randomness};
