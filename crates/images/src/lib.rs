//! Image files in, upright RGB out, resized as Pillow does it. Knows nothing of tensors.

mod decode;
mod error;
mod image;
mod jpeg;
mod resample;
mod resize;

pub use crate::image::{Image, Size};
pub use error::ImageError;
pub use resample::Resampling;
