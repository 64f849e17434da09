//! Resizing bit-exact with Pillow 13: two passes with 8-bit intermediates (`Resample.c`).

use crate::image::MAX_PIXELS;
use crate::resample::{self, Filter, PRECISION_BITS, Resampling, Taps, taps};
use crate::{Image, ImageError, Size};

const CHANNELS: usize = 3;

impl Image {
    /// Resizes to `size`, regardless of the aspect ratio.
    pub fn resize(&self, size: Size, filter: Resampling) -> Result<Image, ImageError> {
        let old = self.size();
        if !size.is_allowed() {
            return Err(ImageError::Unresizable {
                width: old.width,
                height: old.height,
                new_width: size.width,
                new_height: size.height,
                limit: MAX_PIXELS,
            });
        }
        if size == old {
            return Ok(self.clone());
        }
        Ok(match filter {
            Resampling::Nearest => nearest(self, size),
            Resampling::Bilinear => resample_both_axes(self, size, &resample::BILINEAR),
            Resampling::Bicubic => resample_both_axes(self, size, &resample::BICUBIC),
            Resampling::Lanczos => resample_both_axes(self, size, &resample::LANCZOS),
        })
    }
}

/// The order of the passes matters, as intermediates are rounded and clamped to 0..=255. Pillow 13 starts with the vertical pass
/// if the image loses far more height than width. Earlier versions never did, and differ there: by a unit for the bilinear
/// filter, by more for filters that overshoot at edges.
fn resample_both_axes(image: &Image, size: Size, filter: &Filter) -> Image {
    let old = image.size();
    let lost_height = old.height as i64 - size.height as i64;
    let lost_width = old.width as i64 - size.width as i64;
    if lost_height > 0 && lost_height > 2 * lost_width {
        resample_horizontal(
            &resample_vertical(image, size.height, filter),
            size.width,
            filter,
        )
    } else {
        resample_vertical(
            &resample_horizontal(image, size.width, filter),
            size.height,
            filter,
        )
    }
}

/// The horizontal pass (`ImagingResampleHorizontal_8bpc`).
fn resample_horizontal(image: &Image, width: usize, filter: &Filter) -> Image {
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

/// The vertical pass (`ImagingResampleVertical_8bpc`).
fn resample_vertical(image: &Image, height: usize, filter: &Filter) -> Image {
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

/// The initial value of sums, so that truncation rounds.
const HALF: i32 = 1 << (PRECISION_BITS - 1);

/// Rounds and clamps a fixed-point sum (`clip8`).
fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}

/// Nearest-neighbor resizing.
fn nearest(image: &Image, size: Size) -> Image {
    let old = image.size();
    let columns = nearest_positions(old.width, size.width);
    let mut pixels = Vec::with_capacity(size.height * size.width * CHANNELS);
    for row in nearest_positions(old.height, size.height) {
        for column in &columns {
            let start = (row * old.width + column) * CHANNELS;
            pixels.extend_from_slice(&image.pixels()[start..start + CHANNELS]);
        }
    }
    Image::from_rgb(size, pixels)
}

/// The source position of each pixel. The scale is accumulated, not multiplied, as in Pillow, whose rounding matters where a
/// center falls on the edge of a pixel.
fn nearest_positions(old: usize, new: usize) -> Vec<usize> {
    let scale = old as f64 / new as f64;
    let mut center = scale * 0.5;
    let mut positions = Vec::with_capacity(new);
    for _ in 0..new {
        // Rounding can move the sum past the last pixel only after tens of millions of additions.
        positions.push((center as usize).min(old - 1));
        center += scale;
    }
    positions
}
