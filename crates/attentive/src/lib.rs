//! The whole transformer family in Rust: build a transformer from parts, train it on your own data, load and save
//! Hugging Face checkpoints, and run it on a plain CPU.
//!
//! [`Pretrained`] loads a model and does its tasks; [`guide`] shows it, and how to build, train and inspect models:
//!
//! ```no_run
//! # fn main() -> Result<(), attentive::PretrainedError> {
//! let model = attentive::Pretrained::load("runs/stories")?;
//! println!("{}", model.generate("Once upon a time").temperature(0.7).run()?);
//! # Ok(())
//! # }
//! ```
//!
//! This crate re-exports the crates of the workspace under short names:
//!
//! - [`model`]: configs, models built from parts, observers
//! - [`recurrent`]: the encoder-decoder with additive attention that came before transformers
//! - [`checkpoint`]: loads model folders and GGUF files, saves and converts model folders
//! - [`text`]: tokenizers, chat templates, batches of token ids
//! - [`data`]: training data: text files, generated stories, windows of token ids
//! - [`training`]: recipes, objectives, the training loop
//! - [`generation`]: sessions with a KV cache, sampling, beam search, streaming
//! - [`tasks`]: fill-mask, sequence, token and image classification, text embeddings
//! - [`tensor`]: devices, and the differentiable operations that models are made of
//! - [`assets`]: the tokenizer and chat templates of a model folder or GGUF file
//! - [`images`]: image decoding and preprocessing for vision transformers
//! - [`formats`]: tensor files (safetensors, `pytorch_model.bin`, GGUF), parsed as untrusted input
//! - [`memory`]: work that may take only so much memory, stack and time
//! - [`hub`]: downloads of Hugging Face hub models into the shared cache

pub mod assets;
#[doc = include_str!("../../../docs/library.md")]
pub mod guide {}
mod locate;
pub mod pretrained;

pub use locate::{hub_id, locate};
pub use pretrained::{Pretrained, PretrainedError};

pub use attentive_checkpoint as checkpoint;
pub use attentive_data as data;
pub use attentive_formats as formats;
pub use attentive_generation as generation;
pub use attentive_hub as hub;
pub use attentive_images as images;
pub use attentive_memory as memory;
pub use attentive_model as model;
pub use attentive_recurrent as recurrent;
pub use attentive_tasks as tasks;
pub use attentive_tensor as tensor;
pub use attentive_text as text;
pub use attentive_training as training;

/// Compiles the snippet of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
