//! What is done to an image before a vision transformer sees it, as Hugging Face's `ViTImageProcessor` and
//! `DeiTImageProcessor` do it: resize, crop the centre, rescale, normalise. Each step may be absent.

use crate::image::MOST_PIXELS;
use crate::{Image, ImageError, PixelBatch, PixelValues, Resampling, Size};

/// The steps, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessor {
    /// First, another size.
    pub resize: Option<Resize>,
    /// Then the middle of that size, with black around an image that is smaller.
    pub crop: Option<Size>,
    /// Then every byte times this.
    pub rescale: Option<f64>,
    /// Then less the mean, divided by the deviation.
    pub normalize: Option<Normalize>,
}

/// To which size, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// To which size.
    pub to: ResizeTo,
    /// By which filter.
    pub filter: Resampling,
}

/// The size of an image after resizing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// This one, whatever the image's proportions.
    Exactly(Size),
    /// The shorter edge becomes this long, and the proportions stay.
    ShortestEdge(usize),
}

/// Mean and deviation of red, green and blue, in units of what rescaling gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// What is taken away.
    pub mean: [f64; 3],
    /// What is divided by.
    pub deviation: [f64; 3],
}

impl Preprocessor {
    /// ViT's: resized to a square, bilinear; from -1 to 1.
    ///
    /// # Panics
    /// If the side is zero.
    pub fn default_vit(side: usize) -> Self {
        assert!(side > 0, "default_vit: an image has pixels");
        Self {
            resize: Some(Resize {
                to: ResizeTo::Exactly(Size::square(side)),
                filter: Resampling::Bilinear,
            }),
            crop: None,
            rescale: Some(1.0 / 255.0),
            normalize: Some(Normalize {
                mean: [0.5; 3],
                deviation: [0.5; 3],
            }),
        }
    }

    /// DeiT's: resized to 256 by 256, bicubic, of which the middle 224 by 224; from -1 to 1.
    pub fn default_deit() -> Self {
        Self {
            resize: Some(Resize {
                to: ResizeTo::Exactly(Size::square(256)),
                filter: Resampling::Bicubic,
            }),
            crop: Some(Size::square(224)),
            ..Self::default_vit(224)
        }
    }

    /// The numbers that a model is given for an image.
    pub fn pixel_values(&self, image: &Image) -> Result<PixelValues, ImageError> {
        let image = self.resized_and_cropped(image)?;
        let Size { height, width } = image.size();
        let tables = self.tables();
        let mut values = Vec::with_capacity(3 * height * width);
        for (channel, table) in tables.iter().enumerate() {
            let bytes = image.pixels().iter().skip(channel).step_by(3);
            values.extend(bytes.map(|&byte| table[usize::from(byte)]));
        }
        Ok(PixelValues {
            channels: 3,
            height,
            width,
            values,
        })
    }

    /// The numbers of several images; they must be of one size when resized and cropped.
    pub fn batch(&self, images: &[Image]) -> Result<PixelBatch, ImageError> {
        let values: Result<Vec<_>, _> = images
            .iter()
            .map(|image| self.pixel_values(image))
            .collect();
        PixelBatch::of(values?)
    }

    /// The steps that change pixels; the others change numbers.
    pub fn resized_and_cropped(&self, image: &Image) -> Result<Image, ImageError> {
        let resized = match self.resize {
            Some(Resize { to, filter }) => &image.resize(to.of(image.size()), filter)?,
            None => image,
        };
        match self.crop {
            Some(size) if !size.is_allowed() => Err(ImageError::Unresizable {
                width: resized.size().width,
                height: resized.size().height,
                new_width: size.width,
                new_height: size.height,
                limit: MOST_PIXELS,
            }),
            Some(size) => Ok(resized.crop_centre(size)),
            None => Ok(resized.clone()),
        }
    }

    /// The number of each byte of each channel. Rescaling is done in 64 bits and normalising in 32, as transformers does.
    fn tables(&self) -> [[f32; 256]; 3] {
        std::array::from_fn(|channel| {
            std::array::from_fn(|byte| {
                let value = match self.rescale {
                    Some(factor) => (byte as f64 * factor) as f32,
                    None => byte as f32,
                };
                match &self.normalize {
                    Some(Normalize { mean, deviation }) => {
                        (value - mean[channel] as f32) / deviation[channel] as f32
                    }
                    None => value,
                }
            })
        })
    }
}

impl ResizeTo {
    /// The size that an image of a size gets.
    fn of(self, image: Size) -> Size {
        match self {
            ResizeTo::Exactly(size) => size,
            ResizeTo::ShortestEdge(edge) => {
                let short = image.height.min(image.width);
                let long = image.height.max(image.width);
                // Divided as Python divides, in floating point; what does not fit is refused by `resize`.
                let long = (edge.saturating_mul(long) as f64 / short as f64) as usize;
                if image.width <= image.height {
                    Size {
                        height: long,
                        width: edge,
                    }
                } else {
                    Size {
                        height: edge,
                        width: long,
                    }
                }
            }
        }
    }
}
