//! The input of a vision transformer: pixel values in channel-first order, of one image or a batch.

use crate::ImageError;

/// The pixel values of one image, `[channels, height, width]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelValues {
    /// Three: red, green, blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// `channels * height * width` values.
    pub values: Vec<f32>,
}

/// The pixel values of several images, `[batch, channels, height, width]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelBatch {
    /// The number of images.
    pub batch: usize,
    /// Three: red, green, blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// `batch * channels * height * width` values.
    pub values: Vec<f32>,
}

impl PixelBatch {
    /// Stacks images, which must be of equal size.
    pub fn stack(images: impl IntoIterator<Item = PixelValues>) -> Result<Self, ImageError> {
        let mut images = images.into_iter();
        let first = images.next().ok_or(ImageError::EmptyBatch)?;
        let mut batch = PixelBatch {
            batch: 1,
            channels: first.channels,
            height: first.height,
            width: first.width,
            values: first.values,
        };
        for image in images {
            if (image.height, image.width) != (batch.height, batch.width) {
                return Err(ImageError::UnequalBatch {
                    index: batch.batch,
                    width: image.width,
                    height: image.height,
                    first_width: batch.width,
                    first_height: batch.height,
                });
            }
            batch.values.extend(image.values);
            batch.batch += 1;
        }
        Ok(batch)
    }
}
