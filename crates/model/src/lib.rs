//! Transformer models built from parts.
//!
//! A [`ModelConfig`] (one typed tree, shared with recipes and checkpoints) builds a [`Model`]: a [`Stack`] of
//! [`embeddings`], [`positions`] and [blocks](block) of [`attention`] and [`feed_forward`] layers, an optional encoder, and
//! [heads](head). [`models`] has the settings of well-known architectures. Nothing here reads a clock, a network or a corpus, or
//! knows that training exists.
//!
//! Settings have a constructor with their required sizes (or a default, where there are none) and a chained setter for each
//! other field. A model from parts:
//!
//! ```
//! use attentive_model::attention::FullAttentionConfig;
//! use attentive_model::block::BlockConfig;
//! use attentive_model::feed_forward::GatedConfig;
//! use attentive_model::positions::RotaryConfig;
//! use attentive_model::{ForwardOptions, Input, Model, ModelConfig, NormConfig, ids_tensor};
//! use burn::tensor::Device;
//!
//! # fn main() -> Result<(), attentive_model::ConfigError> {
//! let attention = FullAttentionConfig::new(8).with_key_value_heads(2);
//! let block = BlockConfig::pre_norm(attention, GatedConfig::new(128)).with_norm(NormConfig::rms());
//! let config = ModelConfig::decoder(100, 32, 64)
//!     .with_positions(RotaryConfig::default())
//!     .blocks(6, block)
//!     .with_final_norm(NormConfig::rms());
//!
//! let device = Device::flex();
//! let model = Model::new(&config, 1, &device)?;
//! let ids = ids_tensor(&[[5u32, 17, 42, 7]], &device);
//! let output = model.forward(Input::new(ids), ForwardOptions::default());
//! assert_eq!(output.into_logits().dims(), [1, 4, 100]);
//! # Ok(())
//! # }
//! ```
//!
//! Any kind of attention can stand in that place; [`attention`] has them all. Blocks may differ: `.blocks(5, local).blocks(1, global)`.

pub mod attention;
pub mod block;
mod builders;
pub mod cache;
pub mod checks;
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
mod stack;
mod stack_config;
mod validate;

// Whole models: their settings, inputs and outputs.
pub use cache::Cache;
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
