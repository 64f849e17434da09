//! The whole transformer family in Rust: build a transformer from parts, train it on your own data, load and save
//! Hugging Face checkpoints, and run it on a plain CPU.
//!
//! This crate re-exports the crates of the workspace under short names:
//!
//! - [`model`]: configs, models built from parts, observers
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
//! - [`hub`]: downloads of Hugging Face hub models into the shared cache
//!
//! Load a model and continue a text:
//!
//! ```no_run
//! use attentive::generation::{GenerationConfig, LogitsProcessors, Sampling, generate};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A model folder, or a .gguf file.
//! let path = Path::new("runs/stories");
//! let device = attentive::tensor::device("cpu")?;
//! let (model, description) = attentive::checkpoint::load(path, &device)?;
//! let tokenizer = attentive::assets::tokenizer(path)?.expect("stories have a tokenizer");
//! let config = GenerationConfig {
//!     max_new_tokens: 100,
//!     sampling: Sampling::default(),
//!     stop_strings: Vec::new(),
//!     processors: LogitsProcessors::with_eos(description.special.eos),
//! };
//! let prompt = tokenizer.encode("Once upon a time")?;
//! let done = generate(&model, Some(&tokenizer), &prompt, &config, |chunk| {
//!     print!("{}", chunk.text);
//!     std::ops::ControlFlow::Continue(())
//! })?;
//! # Ok(())
//! # }
//! ```

pub mod assets;

pub use attentive_checkpoint as checkpoint;
pub use attentive_data as data;
pub use attentive_formats as formats;
pub use attentive_generation as generation;
pub use attentive_hub as hub;
pub use attentive_images as images;
pub use attentive_model as model;
pub use attentive_tasks as tasks;
pub use attentive_tensor as tensor;
pub use attentive_text as text;
pub use attentive_training as training;
