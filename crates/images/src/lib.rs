//! Image preprocessing as in Hugging Face's ViT and DeiT processors: from files to normalized pixel values, a plain vector in
//! channel-first order. Never sees a tensor.
//!
//! ```text
//! PNG, JPEG, GIF, BMP, WebP ─ decode ─ upright RGB ─ resize ─ center crop ─ rescale ─ normalize ─ PixelValues
//!                             (limits, EXIF orientation)    (preprocessor_config.json says which of these, and how)
//! ```
//!
//! Resizing is bit-exact with Pillow, with which the models were trained; any other resampling would perturb every value. The
//! reference is transformers' Pillow backend (`ViTImageProcessorPil`).
//!
//! ```no_run
//! use attentive_images::{Image, Preprocessor};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), attentive_images::ImageError> {
//! let preprocessor = Preprocessor::from_folder(Path::new("vit-base-patch16-224"))?;
//! let values = preprocessor.pixel_values(&Image::open(Path::new("cat.jpg"))?)?;
//! assert_eq!(values.values.len(), values.channels * values.height * values.width);
//! # Ok(())
//! # }
//! ```

mod config;
mod crop;
mod decode;
mod error;
mod image;
mod jpeg;
mod pixel_values;
mod preprocessor;
mod resample;
mod resize;
mod webp;

pub use crate::image::{Image, Size};
pub use error::ImageError;
pub use pixel_values::{PixelBatch, PixelValues};
pub use preprocessor::{Normalize, Preprocessor, Resize, ResizeTo};
pub use resample::Resampling;
