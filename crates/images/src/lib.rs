//! Image files in, normalised pixel values out, as Hugging Face's processors of ViT and DeiT make them. Knows nothing of
//! tensors: what comes out is a list of numbers in channel-first order.
//!
//! ```text
//! PNG, JPEG, GIF, BMP, WebP ─ decode ─ upright RGB ─ resize ─ crop the centre ─ rescale ─ normalise ─ PixelValues
//!                             (limits, EXIF orientation)    (preprocessor_config.json says which of these, and how)
//! ```
//!
//! Resizing gives the bytes of Pillow, whose images the models were trained on; another resampling, however good, would
//! move every value a little. So the reference of all of this is transformers' Pillow backend (`ViTImageProcessorPil`).
//!
//! ```no_run
//! use attentive_images::{Image, Preprocessor};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), attentive_images::ImageError> {
//! let preprocessor = Preprocessor::of_folder(Path::new("vit-base-patch16-224"))?;
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
