//! Pillow's resampling filters and their coefficients (`Resample.c` of Pillow 13).

use std::f64::consts::PI;

/// A resampling filter, with its number in Pillow (`PIL.Image.Resampling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resampling {
    /// 0: nearest neighbor.
    Nearest,
    /// 1: Lanczos, with a support of 3.
    Lanczos,
    /// 2: triangle, with a support of 1.
    Bilinear,
    /// 3: bicubic with a = -0.5, with a support of 2.
    Bicubic,
}

/// Fractional bits of fixed-point weights: 32, less 8 of the result and 2 for overshoot.
pub(crate) const PRECISION_BITS: u32 = 32 - 8 - 2;

/// The fixed-point weights of the source pixels of one output pixel, from `start` on.
pub(crate) struct Taps {
    pub start: usize,
    pub weights: Vec<i32>,
}

/// The taps of `new` pixels along an axis of `old` (`precompute_coeffs`). Downscaling widens the filter, so that every source
/// pixel counts (antialiasing); upscaling keeps its support.
///
/// Every operation is that of Pillow, in the same order: weights are rounded, so the last bit matters.
pub(crate) fn taps(old: usize, new: usize, filter: &Filter) -> Vec<Taps> {
    let scale = old as f64 / new as f64;
    let filter_scale = scale.max(1.0);
    let support = filter.support * filter_scale;
    let inverse_scale = 1.0 / filter_scale;
    (0..new)
        .map(|index| {
            let center = (index as f64 + 0.5) * scale;
            // Casts truncate towards zero, as in C; negative values are clamped to zero anyway.
            let start = (center - support + 0.5).max(0.0) as usize;
            let end = ((center + support + 0.5) as usize).min(old);
            let weights: Vec<f64> = (start..end)
                .map(|position| (filter.weight)((position as f64 - center + 0.5) * inverse_scale))
                .collect();
            let sum = weights.iter().fold(0.0, |sum, weight| sum + weight);
            let weights = weights
                .iter()
                .map(|weight| to_fixed_point(weight, sum))
                .collect();
            Taps { start, weights }
        })
        .collect()
}

/// Normalizes a weight, and rounds it half away from zero.
fn to_fixed_point(weight: &f64, sum: f64) -> i32 {
    let normalized = if sum == 0.0 { *weight } else { weight / sum };
    let scaled = normalized * f64::from(1 << PRECISION_BITS);
    (if normalized < 0.0 {
        scaled - 0.5
    } else {
        scaled + 0.5
    }) as i32
}

/// A filter: a weight for each distance from the center.
pub(crate) struct Filter {
    /// The radius in pixels at scale 1.
    support: f64,
    weight: fn(f64) -> f64,
}

pub(crate) const BILINEAR: Filter = Filter {
    support: 1.0,
    weight: |distance| (1.0 - distance.abs()).max(0.0),
};

pub(crate) const BICUBIC: Filter = Filter {
    support: 2.0,
    weight: |distance| {
        const A: f64 = -0.5;
        let x = distance.abs();
        if x < 1.0 {
            ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
        } else if x < 2.0 {
            (((x - 5.0) * x + 8.0) * x - 4.0) * A
        } else {
            0.0
        }
    },
};

pub(crate) const LANCZOS: Filter = Filter {
    support: 3.0,
    weight: |distance| {
        if (-3.0..3.0).contains(&distance) {
            sinc(distance) * sinc(distance / 3.0)
        } else {
            0.0
        }
    },
};

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * PI;
    x.sin() / x
}
