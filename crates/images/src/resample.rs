//! Pillow's resampling filters: which pixels make up a new one, and by how much (`Resample.c` of Pillow 13).

use std::f64::consts::PI;

/// How an image is resized; the numbers are Pillow's, in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resampling {
    /// 0: the nearest pixel.
    Nearest,
    /// 1: the sinc function under its own first lobe, three pixels to each side.
    Lanczos,
    /// 2: a triangle, one pixel to each side.
    Bilinear,
    /// 3: cubic pieces with a = -0.5, two pixels to each side.
    Bicubic,
}

/// Bits behind the point of a weight: 32 less 8 of the result and 2 for sums below zero and above one.
pub(crate) const PRECISION: u32 = 32 - 8 - 2;

/// What one new pixel is made of: a run of old ones, from `start`, each with its fixed-point weight.
pub(crate) struct Taps {
    pub start: usize,
    pub weights: Vec<i32>,
}

/// The taps of each of `new` pixels along an axis of `old`. When it shrinks, the filter grows with the step, so that every
/// old pixel counts (antialiasing); when it grows, the filter keeps its width.
///
/// Every operation is the one of Pillow in its order: the weights are rounded, so the last bit matters.
pub(crate) fn taps(old: usize, new: usize, filter: &Filter) -> Vec<Taps> {
    let step = old as f64 / new as f64;
    let stretch = step.max(1.0);
    let reach = filter.reach * stretch;
    let shrink = 1.0 / stretch;
    (0..new)
        .map(|index| {
            let centre = (index as f64 + 0.5) * step;
            // Casts cut off towards zero, as in C; below zero they would be cut to zero anyway.
            let start = (centre - reach + 0.5).max(0.0) as usize;
            let end = ((centre + reach + 0.5) as usize).min(old);
            let weights: Vec<f64> = (start..end)
                .map(|position| (filter.weight)((position as f64 - centre + 0.5) * shrink))
                .collect();
            let sum = weights.iter().fold(0.0, |sum, weight| sum + weight);
            let weights = weights.iter().map(|weight| fixed(weight, sum)).collect();
            Taps { start, weights }
        })
        .collect()
}

/// A weight of the sum, rounded half away from zero.
fn fixed(weight: &f64, sum: f64) -> i32 {
    let share = if sum == 0.0 { *weight } else { weight / sum };
    let scaled = share * f64::from(1 << PRECISION);
    (if share < 0.0 {
        scaled - 0.5
    } else {
        scaled + 0.5
    }) as i32
}

/// A filter: a weight for each distance from the centre.
pub(crate) struct Filter {
    /// How many pixels it sees to each side when the size stays.
    reach: f64,
    weight: fn(f64) -> f64,
}

pub(crate) const BILINEAR: Filter = Filter {
    reach: 1.0,
    weight: |distance| (1.0 - distance.abs()).max(0.0),
};

pub(crate) const BICUBIC: Filter = Filter {
    reach: 2.0,
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
    reach: 3.0,
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
