//! The whole transformer family in Rust: build a transformer from parts, train it on your own data, load and save
//! Hugging Face checkpoints, and run it on a plain CPU.
//!
//! This crate gathers the rooms of the workspace under plain names:
//!
//! - [`model`]: settings, models built from parts, checkpoints, observers
//! - [`text`]: tokenizers, corpora, batches of ids
//! - [`training`]: recipes, objectives, the training loop
//! - [`generation`]: sessions with a cache, sampling, streamed text
//! - [`tensor`]: the differentiable operations below the models, and devices
//! - [`images`]: image files, and the pixel values that vision transformers are given
//! - [`formats`]: files of tensors (safetensors, `pytorch_model.bin`, GGUF), read without believing them
//!
//! Load a model folder and continue a text:
//!
//! ```no_run
//! use attentive::generation::{GenerationConfig, Rules, Sampling, generate};
//! use attentive::text::Tokenizer;
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = Path::new("runs/stories");
//! let device = attentive::tensor::device("cpu")?;
//! let (model, description) = attentive::model::checkpoint::load(folder, &device)?;
//! let tokenizer = Tokenizer::load(&folder.join("tokenizer.json"))?;
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

pub use attentive_formats as formats;
pub use attentive_generation as generation;
pub use attentive_images as images;
pub use attentive_model as model;
pub use attentive_tensor as tensor;
pub use attentive_text as text;
pub use attentive_training as training;
