//! What a vision transformer is given: numbers in channel-first order, of one image or of several.

use crate::ImageError;

/// The numbers of one image: all of red, then green, then blue, each row after row.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelValues {
    /// Three: red, green, blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// `channels * height * width` numbers.
    pub values: Vec<f32>,
}

/// The numbers of several images of one size, image after image.
#[derive(Debug, Clone, PartialEq)]
pub struct PixelBatch {
    /// How many images.
    pub batch: usize,
    /// Three: red, green, blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// `batch * channels * height * width` numbers.
    pub values: Vec<f32>,
}

impl PixelBatch {
    /// One block of the images' numbers; they must be of one size.
    pub fn of(images: impl IntoIterator<Item = PixelValues>) -> Result<Self, ImageError> {
        let mut images = images.into_iter();
        let first = images.next().ok_or(ImageError::EmptyBatch)?;
        let mut whole = PixelBatch {
            batch: 1,
            channels: first.channels,
            height: first.height,
            width: first.width,
            values: first.values,
        };
        for image in images {
            if (image.height, image.width) != (whole.height, whole.width) {
                return Err(ImageError::UnequalBatch {
                    index: whole.batch,
                    width: image.width,
                    height: image.height,
                    first_width: whole.width,
                    first_height: whole.height,
                });
            }
            whole.values.extend(image.values);
            whole.batch += 1;
        }
        Ok(whole)
    }
}
