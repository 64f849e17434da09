//! Decodes images to upright RGB as transformers does: `PIL.ImageOps.exif_transpose(image).convert("RGB")`. Sizes are checked
//! before allocating.
//!
//! The conversion repeats grayscale three times; looks up palettes; drops alpha without blending, so colors below transparent
//! pixels appear; takes the high byte of 16-bit color; and clamps 16-bit *grayscale* to 255, as Pillow does although that turns
//! images white. Of an animation it takes the first frame. EXIF orientation is read from JPEG, PNG and WebP; color profiles are
//! ignored.
//!
//! Two known differences from Pillow: JPEG bytes may be off by a few units (decoders round differently), and a first GIF frame
//! that is smaller than its canvas is surrounded by black, where Pillow uses the first palette color.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::image::MAX_PIXELS;
use crate::{Image, ImageError, Size, jpeg, webp};

/// The limit for the size of a file, and for the allocations of a decoder.
const MAX_BYTES: u64 = 512 << 20;

impl Image {
    /// Opens an image file. The format is detected from its contents, not its name.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let name = path.display().to_string();
        let problem = |source| ImageError::Io {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        // One byte beyond the limit, to detect larger files; the stated file size is not trusted.
        let file = File::open(path).map_err(problem)?;
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(problem)?;
        Self::decode(&name, &bytes)
    }

    /// Decodes an image; `name` is for errors.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self, ImageError> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(ImageError::TooLarge {
                name: name.to_owned(),
                size: format!("more than {} MB", MAX_BYTES >> 20),
                limit: format!("{} MB", MAX_BYTES >> 20),
            });
        }
        let format = match image::guess_format(bytes) {
            Ok(format) if format.reading_enabled() => format,
            _ => {
                return Err(ImageError::UnknownFormat {
                    name: name.to_owned(),
                });
            }
        };
        let broken = |problem: &dyn std::fmt::Display| ImageError::Broken {
            name: name.to_owned(),
            problem: problem.to_string(),
        };
        let complete = match format {
            ImageFormat::Jpeg => jpeg::is_complete(bytes),
            ImageFormat::WebP => webp::is_complete(bytes),
            _ => true,
        };
        if !complete {
            return Err(broken(&"the file is truncated"));
        }
        let (image, orientation) = read(name, bytes, format)?;
        let mut image = DynamicImage::ImageRgb8(to_rgb(image).ok_or_else(|| {
            // Only floating-point colors, which no decoder of a supported format returns today.
            ImageError::Unsupported {
                name: name.to_owned(),
                problem: "its color type".to_owned(),
            }
        })?);
        image.apply_orientation(orientation);
        let size = Size {
            height: image.height() as usize,
            width: image.width() as usize,
        };
        Ok(Self::from_rgb(size, image.into_bytes()))
    }
}

/// The decoded image and its EXIF orientation.
fn read(
    name: &str,
    bytes: &[u8],
    format: ImageFormat,
) -> Result<(DynamicImage, Orientation), ImageError> {
    let refused = |error: image::ImageError| {
        let (name, problem) = (name.to_owned(), error.to_string().replace('\n', " "));
        match error {
            image::ImageError::Unsupported(_) => ImageError::Unsupported { name, problem },
            image::ImageError::Limits(_) => ImageError::TooLarge {
                name,
                size: problem,
                limit: format!("{} MB of memory", MAX_BYTES >> 20),
            },
            _ => ImageError::Broken { name, problem },
        }
    };
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(refused)?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 {
        return Err(ImageError::Broken {
            name: name.to_owned(),
            problem: "it has no pixels".to_owned(),
        });
    }
    if pixels > MAX_PIXELS as u64 {
        return Err(ImageError::TooLarge {
            name: name.to_owned(),
            size: format!("{width} by {height} pixels"),
            limit: format!("{MAX_PIXELS} pixels in all"),
        });
    }
    // An invalid orientation is ignored: the image is still intact.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(refused)?;
    Ok((image, orientation))
}

/// Pillow's `convert("RGB")`; `None` for color types that no supported format has.
fn to_rgb(image: DynamicImage) -> Option<image::RgbImage> {
    let (width, height) = (image.width(), image.height());
    let high = |value: &u16| (value >> 8) as u8;
    let pixels: Vec<u8> = match &image {
        DynamicImage::ImageRgb8(_) => return Some(image.into_rgb8()),
        DynamicImage::ImageRgba8(rgba) => rgba.pixels().flat_map(|p| [p[0], p[1], p[2]]).collect(),
        DynamicImage::ImageLuma8(gray) => gray.pixels().flat_map(|p| [p[0]; 3]).collect(),
        DynamicImage::ImageLumaA8(gray) => gray.pixels().flat_map(|p| [p[0]; 3]).collect(),
        DynamicImage::ImageRgb16(rgb) => rgb.iter().map(high).collect(),
        DynamicImage::ImageRgba16(rgba) => rgba
            .pixels()
            .flat_map(|p| [high(&p[0]), high(&p[1]), high(&p[2])])
            .collect(),
        DynamicImage::ImageLuma16(gray) => gray
            .pixels()
            .flat_map(|p| [p[0].min(255) as u8; 3])
            .collect(),
        // Pillow has no 16-bit grayscale with alpha, and takes the high byte.
        DynamicImage::ImageLumaA16(gray) => gray.pixels().flat_map(|p| [high(&p[0]); 3]).collect(),
        _ => return None,
    };
    image::RgbImage::from_raw(width, height, pixels)
}
