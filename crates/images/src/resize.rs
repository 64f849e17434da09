//! Resizing with the bytes of Pillow 13: two passes, one along each axis, with 8 bits between them (`Resample.c`).

use crate::image::MOST_PIXELS;
use crate::resample::{self, Filter, PRECISION, Resampling, Taps, taps};
use crate::{Image, ImageError, Size};

const CHANNELS: usize = 3;

impl Image {
    /// This image at another size, its proportions changed if need be.
    pub fn resize(&self, size: Size, filter: Resampling) -> Result<Image, ImageError> {
        let old = self.size();
        if !size.is_allowed() {
            return Err(ImageError::Unresizable {
                width: old.width,
                height: old.height,
                new_width: size.width,
                new_height: size.height,
                limit: MOST_PIXELS,
            });
        }
        if size == old {
            return Ok(self.clone());
        }
        Ok(match filter {
            Resampling::Nearest => nearest(self, size),
            Resampling::Bilinear => two_passes(self, size, &resample::BILINEAR),
            Resampling::Bicubic => two_passes(self, size, &resample::BICUBIC),
            Resampling::Lanczos => two_passes(self, size, &resample::LANCZOS),
        })
    }
}

/// Which pass comes first shows in the bytes, which are rounded and cut to 0..=255 in between. Pillow 13 begins with the
/// columns of an image that loses far more height than width. Earlier ones never did, and give other bytes there: by a unit
/// for the bilinear filter, by more for those that overshoot at edges.
fn two_passes(image: &Image, size: Size, filter: &Filter) -> Image {
    let old = image.size();
    let lost_height = old.height as i64 - size.height as i64;
    let lost_width = old.width as i64 - size.width as i64;
    if lost_height > 0 && lost_height > 2 * lost_width {
        across(&down(image, size.height, filter), size.width, filter)
    } else {
        down(&across(image, size.width, filter), size.height, filter)
    }
}

/// The pass along rows: each row becomes `width` pixels.
fn across(image: &Image, width: usize, filter: &Filter) -> Image {
    let old = image.size();
    if width == old.width {
        return image.clone();
    }
    let columns = taps(old.width, width, filter);
    let mut pixels = Vec::with_capacity(old.height * width * CHANNELS);
    for row in image.pixels().chunks_exact(old.width * CHANNELS) {
        for Taps { start, weights } in &columns {
            let mut sums = [HALF; CHANNELS];
            for (pixel, weight) in row[start * CHANNELS..].chunks_exact(CHANNELS).zip(weights) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(value) * weight;
                }
            }
            pixels.extend(sums.map(to_byte));
        }
    }
    let height = old.height;
    Image::from_rgb(Size { height, width }, pixels)
}

/// The pass along columns: `height` rows, each a weighted sum of old rows.
fn down(image: &Image, height: usize, filter: &Filter) -> Image {
    let old = image.size();
    if height == old.height {
        return image.clone();
    }
    let stride = old.width * CHANNELS;
    let mut pixels = Vec::with_capacity(height * stride);
    let mut sums = vec![0; stride];
    for Taps { start, weights } in taps(old.height, height, filter) {
        sums.fill(HALF);
        let rows = image.pixels()[start * stride..].chunks_exact(stride);
        for (row, weight) in rows.zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += i32::from(value) * weight;
            }
        }
        pixels.extend(sums.iter().map(|&sum| to_byte(sum)));
    }
    let width = old.width;
    Image::from_rgb(Size { height, width }, pixels)
}

/// Sums begin with a half, so that cutting off rounds.
const HALF: i32 = 1 << (PRECISION - 1);

/// A fixed-point sum as a byte; filters with negative lobes leave its range.
fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// The pixel below each new one's centre.
fn nearest(image: &Image, size: Size) -> Image {
    let old = image.size();
    let columns = positions(old.width, size.width);
    let mut pixels = Vec::with_capacity(size.height * size.width * CHANNELS);
    for row in positions(old.height, size.height) {
        for column in &columns {
            let start = (row * old.width + column) * CHANNELS;
            pixels.extend_from_slice(&image.pixels()[start..start + CHANNELS]);
        }
    }
    Image::from_rgb(size, pixels)
}

/// The old position of each new one. Steps are added up, not multiplied, because Pillow does so and the rounding shows where
/// a centre falls on the edge of a pixel.
fn positions(old: usize, new: usize) -> Vec<usize> {
    let step = old as f64 / new as f64;
    let mut centre = step * 0.5;
    let mut positions = Vec::with_capacity(new);
    for _ in 0..new {
        // Only sums over tens of millions of steps could round up to the edge, which is beyond the last pixel.
        positions.push((centre as usize).min(old - 1));
        centre += step;
    }
    positions
}
