//! From bytes to upright RGB, as `PIL.ImageOps.exif_transpose(image).convert("RGB")`, which is how transformers loads an
//! image. Sizes are checked before memory is taken.
//!
//! What that conversion does: gray is repeated three times; a palette is looked up; alpha is dropped, not blended, so what
//! lies under a transparent pixel appears; of 16-bit colours the high byte is taken; 16-bit *gray* is cut off at 255, as
//! Pillow does although its pictures turn white by it. Of an animation the first image is taken. Orientations are read from
//! EXIF, of JPEG, PNG and WebP files; colour profiles are left alone.
//!
//! Two differences from Pillow are known: JPEG bytes may be off by a few units (decoders round each in their way), and around
//! a GIF's first image that is smaller than its canvas there is black, where Pillow has the first colour of the palette.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::image::MOST_PIXELS;
use crate::{Image, ImageError, Size, jpeg, webp};

/// The most bytes that a file may have, and that a decoder may ask for.
const MOST_BYTES: u64 = 512 << 20;

impl Image {
    /// Reads an image file. Its first bytes say which kind it is, not its name.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let name = path.display().to_string();
        let problem = |source| ImageError::Io {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        // One byte more than is allowed, so that too many are noticed; a file's stated length is not believed.
        let file = File::open(path).map_err(problem)?;
        file.take(MOST_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(problem)?;
        Self::decode(&name, &bytes)
    }

    /// Decodes the bytes of an image file; `name` is what errors call it.
    pub fn decode(name: &str, bytes: &[u8]) -> Result<Self, ImageError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ImageError::TooLarge {
                name: name.to_owned(),
                size: format!("more than {} MB", MOST_BYTES >> 20),
                limit: format!("{} MB", MOST_BYTES >> 20),
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
        let whole = match format {
            ImageFormat::Jpeg => jpeg::is_whole(bytes),
            ImageFormat::WebP => webp::is_whole(bytes),
            _ => true,
        };
        if !whole {
            return Err(broken(&"the file ends before the image does"));
        }
        let (image, orientation) = read(name, bytes, format)?;
        let mut image = DynamicImage::ImageRgb8(to_rgb(image).ok_or_else(|| {
            // No decoder of the formats above gives floating-point colours today.
            broken(&"its kind of colours is not supported")
        })?);
        image.apply_orientation(orientation);
        let size = Size {
            height: image.height() as usize,
            width: image.width() as usize,
        };
        Ok(Self::from_rgb(size, image.into_bytes()))
    }
}

/// The image as its decoder gives it, and how it must be turned.
fn read(
    name: &str,
    bytes: &[u8],
    format: ImageFormat,
) -> Result<(DynamicImage, Orientation), ImageError> {
    let broken = |error: image::ImageError| ImageError::Broken {
        name: name.to_owned(),
        problem: error.to_string().replace('\n', " "),
    };
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MOST_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 {
        return Err(ImageError::Broken {
            name: name.to_owned(),
            problem: "it has no pixels".to_owned(),
        });
    }
    if pixels > MOST_PIXELS as u64 {
        return Err(ImageError::TooLarge {
            name: name.to_owned(),
            size: format!("{width} by {height} pixels"),
            limit: format!("{MOST_PIXELS} pixels in all"),
        });
    }
    // An orientation that cannot be read is none: the picture is still there.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(broken)?;
    Ok((image, orientation))
}

/// Pillow's `convert("RGB")`; nothing for colours that no format here has.
fn to_rgb(image: DynamicImage) -> Option<image::RgbImage> {
    let (width, height) = (image.width(), image.height());
    let high = |value: &u16| (value >> 8) as u8;
    let pixels: Vec<u8> = match &image {
        DynamicImage::ImageRgb8(_) => return Some(image.into_rgb8()),
        DynamicImage::ImageRgba8(colours) => {
            colours.pixels().flat_map(|p| [p[0], p[1], p[2]]).collect()
        }
        DynamicImage::ImageLuma8(gray) => gray.pixels().flat_map(|p| [p[0]; 3]).collect(),
        DynamicImage::ImageLumaA8(gray) => gray.pixels().flat_map(|p| [p[0]; 3]).collect(),
        DynamicImage::ImageRgb16(colours) => colours.iter().map(high).collect(),
        DynamicImage::ImageRgba16(colours) => colours
            .pixels()
            .flat_map(|p| [high(&p[0]), high(&p[1]), high(&p[2])])
            .collect(),
        DynamicImage::ImageLuma16(gray) => gray
            .pixels()
            .flat_map(|p| [p[0].min(255) as u8; 3])
            .collect(),
        // With alpha Pillow has no 16-bit gray, and takes the high byte.
        DynamicImage::ImageLumaA16(gray) => gray.pixels().flat_map(|p| [high(&p[0]); 3]).collect(),
        _ => return None,
    };
    image::RgbImage::from_raw(width, height, pixels)
}
