//! Transformer models built from parts.
//!
//! A [`ModelConfig`] (one typed tree, shared with recipes and checkpoints) builds a [`Model`]: a [`Stack`] of
//! [`embeddings`], [`positions`] and [blocks](block) of [`attention`] and [`feed_forward`] layers, an optional encoder, and
//! [heads](head). [`models`] has the settings of well-known architectures. [`recurrent`] is what came before transformers: an
//! encoder-decoder with additive attention. Nothing here reads a clock, a network or a corpus, or knows that training exists.

pub mod attention;
pub mod block;
pub mod cache;
mod checks;
mod config;
pub mod embeddings;
pub mod feed_forward;
mod forward_context;
mod globals;
pub mod head;
mod indices;
mod initializer;
mod linear;
mod model;
pub mod models;
mod norm;
mod observer;
mod parameters;
pub mod positions;
pub mod recurrent;
mod stack;
mod stack_config;
mod validate;

// Whole models: their settings, inputs and outputs.
pub use cache::Cache;
pub use checks::MAX_BLOCKS;
pub use config::{ConfigError, Flops, ModelConfig, StackConfig};
pub use globals::GlobalsConfig;
pub use indices::ids_tensor;
pub use model::{Model, Output};
pub use stack::{ForwardOptions, HiddenStates, Input, InputData, Stack};

// Parts of layers, and the context of a forward pass.
pub use attentive_tensor::{Activation, Mask, Purpose, Randomness};
pub use forward_context::ForwardContext;
pub use initializer::Initializer;
pub use linear::Linear;
pub use norm::{Norm, NormConfig};

// Inspecting a model: its activations during a forward pass, and its parameters.
pub use observer::{AttentionSite, Observer, Recorder, Site};
pub use parameters::{ParamData, Parameter, parameters, replace_parameters};
