//! The whole transformer family in Rust: build a transformer from parts, train it on your own data, load and save
//! Hugging Face checkpoints, and run it on a plain CPU.
//!
//! This crate gathers the rooms of the workspace under plain names:
//!
//! - [`model`]: settings, models built from parts, checkpoints, observers
//! - [`text`]: tokenizers, corpora, batches of ids
//! - [`training`]: recipes, objectives, the training loop
//! - [`generation`]: sessions with a cache, sampling, streamed text
//! - [`tasks`]: filling gaps, classes of texts and pictures, labels of tokens, vectors of texts
//! - [`tensor`]: the differentiable operations below the models, and devices
//! - [`companions`]: the tokenizer and the chat templates of a model, of a folder or of a GGUF file
//! - [`images`]: image files, and the pixel values that vision transformers are given
//! - [`formats`]: files of tensors (safetensors, `pytorch_model.bin`, GGUF), read without believing them
//! - [`hub`]: from the id of a model of the Hugging Face hub to a folder of the shared cache
//!
//! Load a model and continue a text:
//!
//! ```no_run
//! use attentive::generation::{GenerationConfig, Rules, Sampling, generate};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A model folder, or a .gguf file.
//! let path = Path::new("runs/stories");
//! let device = attentive::tensor::device("cpu")?;
//! let (model, description) = attentive::model::checkpoint::load(path, &device)?;
//! let tokenizer = attentive::companions::tokenizer(path)?.expect("stories have a tokenizer");
//! let config = GenerationConfig {
//!     max_tokens: 100,
//!     sampling: Sampling::default(),
//!     stop: Vec::new(),
//!     rules: Rules::ending(description.special.end),
//! };
//! let prompt = tokenizer.encode("Once upon a time")?;
//! let done = generate(&model, Some(&tokenizer), &prompt, &config, |piece| {
//!     print!("{}", piece.text);
//!     std::ops::ControlFlow::Continue(())
//! })?;
//! # Ok(())
//! # }
//! ```

pub mod companions;

pub use attentive_formats as formats;
pub use attentive_generation as generation;
pub use attentive_hub as hub;
pub use attentive_images as images;
pub use attentive_model as model;
pub use attentive_tasks as tasks;
pub use attentive_tensor as tensor;
pub use attentive_text as text;
pub use attentive_training as training;
