//! Preprocessing as in Hugging Face's `ViTImageProcessor` and `DeiTImageProcessor`: resize, center crop, rescale, normalize. Each
//! step is optional.

use crate::image::MAX_PIXELS;
use crate::{Image, ImageError, PixelBatch, PixelValues, Resampling, Size};

/// The steps, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessor {
    /// `do_resize`.
    pub resize: Option<Resize>,
    /// `do_center_crop`; smaller images are padded with black.
    pub crop: Option<Size>,
    /// `rescale_factor`.
    pub rescale: Option<f64>,
    /// `do_normalize`.
    pub normalize: Option<Normalize>,
}

/// The target and filter of resizing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// The target size.
    pub to: ResizeTo,
    /// The filter.
    pub filter: Resampling,
}

/// The target size of resizing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResizeTo {
    /// This size, regardless of the aspect ratio.
    Exact(Size),
    /// The length of the shortest edge; the aspect ratio is kept.
    ShortestEdge(usize),
}

/// Mean and standard deviation per channel, applied after rescaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// `image_mean`.
    pub mean: [f64; 3],
    /// `image_std`.
    pub std: [f64; 3],
}

impl Preprocessor {
    /// The default of ViT: bilinear resize to a square, normalize to -1..1.
    ///
    /// # Panics
    /// If the side is zero.
    pub fn default_vit(side: usize) -> Self {
        assert!(side > 0, "default_vit: the side must be positive");
        Self {
            resize: Some(Resize {
                to: ResizeTo::Exact(Size::square(side)),
                filter: Resampling::Bilinear,
            }),
            crop: None,
            rescale: Some(1.0 / 255.0),
            normalize: Some(Normalize {
                mean: [0.5; 3],
                std: [0.5; 3],
            }),
        }
    }

    /// The default of DeiT: bicubic resize to 256 by 256, center crop to 224 by 224, normalize to -1..1.
    pub fn default_deit() -> Self {
        Self {
            resize: Some(Resize {
                to: ResizeTo::Exact(Size::square(256)),
                filter: Resampling::Bicubic,
            }),
            crop: Some(Size::square(224)),
            ..Self::default_vit(224)
        }
    }

    /// Preprocesses an image.
    pub fn pixel_values(&self, image: &Image) -> Result<PixelValues, ImageError> {
        let image = self.resize_and_crop(image)?;
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

    /// Preprocesses a batch of images, which must be of equal size after resizing and cropping.
    pub fn batch(&self, images: &[Image]) -> Result<PixelBatch, ImageError> {
        let values: Result<Vec<_>, _> = images
            .iter()
            .map(|image| self.pixel_values(image))
            .collect();
        PixelBatch::stack(values?)
    }

    /// Applies only the steps on 8-bit pixels.
    pub fn resize_and_crop(&self, image: &Image) -> Result<Image, ImageError> {
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
                limit: MAX_PIXELS,
            }),
            Some(size) => Ok(resized.center_crop(size)),
            None => Ok(resized.clone()),
        }
    }

    /// Lookup tables from byte to value, per channel. Rescaling is in f64 and normalizing in f32, as in transformers.
    fn tables(&self) -> [[f32; 256]; 3] {
        std::array::from_fn(|channel| {
            std::array::from_fn(|byte| {
                let value = match self.rescale {
                    Some(factor) => (byte as f64 * factor) as f32,
                    None => byte as f32,
                };
                match &self.normalize {
                    Some(Normalize { mean, std }) => {
                        (value - mean[channel] as f32) / std[channel] as f32
                    }
                    None => value,
                }
            })
        })
    }
}

impl ResizeTo {
    /// The target size for an image.
    fn of(self, image: Size) -> Size {
        match self {
            ResizeTo::Exact(size) => size,
            ResizeTo::ShortestEdge(edge) => {
                let short = image.height.min(image.width);
                let long = image.height.max(image.width);
                // Floating-point division as in Python; `resize` refuses sizes out of range.
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
