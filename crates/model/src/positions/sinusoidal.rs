//! Sinusoidal positions: sines and cosines with wavelengths from 2π to 10000 · 2π. Vaswani et al. 2017.
//!
//! A shift by `k` positions is a rotation of each pair of sine and cosine, the same for all positions:
//! `PE(p + k) = R(k) · PE(p)` ([`sinusoid_shift`]). That is why a model can learn to attend by distance.

use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::setters;

/// Settings of sinusoidal positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinusoidalConfig {
    /// The order of sines and cosines.
    #[serde(default)]
    pub layout: SinusoidLayout,
}

impl SinusoidalConfig {
    setters! {
        with_layout(layout: SinusoidLayout);
    }
}

/// The order of sines and cosines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinusoidLayout {
    /// Sine, cosine, sine, cosine, … as in the Transformer's paper.
    #[default]
    Interleaved,
    /// All sines, then all cosines, as in Transformer-XL (Dai et al. 2019).
    Concatenated,
}

impl SinusoidLayout {
    /// The indices of the sine and the cosine of frequency `i`.
    fn indices(self, i: usize, width: usize) -> [usize; 2] {
        match self {
            Self::Interleaved => [2 * i, 2 * i + 1],
            Self::Concatenated => [i, width / 2 + i],
        }
    }
}

fn frequencies(width: usize) -> impl Iterator<Item = f64> {
    (0..width / 2).map(move |i| 10_000f64.powf(-2.0 * i as f64 / width as f64))
}

/// The encodings `[batch, length, width]` of `positions` `[batch, length]`.
///
/// # Panics
/// When the width is odd.
pub fn sinusoid(positions: Tensor<2, Int>, width: usize, layout: SinusoidLayout) -> Tensor<3> {
    require_even("sinusoid", width);
    let [batch, length] = positions.dims();
    let frequencies: Vec<f32> = frequencies(width).map(|it| it as f32).collect();
    let frequencies =
        Tensor::<1>::from_floats(frequencies.as_slice(), &positions.device()).unsqueeze::<3>();
    let angles = positions.float().reshape([batch, length, 1]) * frequencies;
    let (sine, cosine) = (angles.clone().sin(), angles.cos());
    match layout {
        SinusoidLayout::Concatenated => Tensor::cat(vec![sine, cosine], 2),
        SinusoidLayout::Interleaved => {
            let column = |x: Tensor<3>| x.reshape([batch, length, width / 2, 1]);
            Tensor::cat(vec![column(sine), column(cosine)], 3).reshape([batch, length, width])
        }
    }
}

/// The rotation `R` `[width, width]` that shifts encodings by `offset` positions: `PE(p + offset) = R · PE(p)` for all `p`.
///
/// ```text
///  sin(a + b) =  cos(b) · sin(a) + sin(b) · cos(a)       a = p · frequency
///  cos(a + b) = -sin(b) · sin(a) + cos(b) · cos(a)       b = offset · frequency
/// ```
///
/// # Panics
/// When the width is odd.
pub fn sinusoid_shift(
    offset: i64,
    width: usize,
    layout: SinusoidLayout,
    device: &Device,
) -> Tensor<2> {
    require_even("sinusoid_shift", width);
    let mut rotation = vec![0f32; width * width];
    for (i, frequency) in frequencies(width).enumerate() {
        let [sine, cosine] = layout.indices(i, width);
        let (s, c) = (offset as f64 * frequency).sin_cos();
        rotation[sine * width + sine] = c as f32;
        rotation[sine * width + cosine] = s as f32;
        rotation[cosine * width + sine] = -s as f32;
        rotation[cosine * width + cosine] = c as f32;
    }
    Tensor::from_data(TensorData::new(rotation, [width, width]), device)
}

fn require_even(operation: &str, width: usize) {
    assert!(
        width.is_multiple_of(2),
        "{operation}: width {width} is not even"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, VALUES, assert_close};

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().try_to_vec::<f32>().unwrap()
    }

    fn encodings(positions: &[i64], width: usize, layout: SinusoidLayout) -> Tensor<3> {
        let data = TensorData::new(positions.to_vec(), [1, positions.len()]);
        sinusoid(Tensor::from_data(data, &Device::flex()), width, layout)
    }

    #[test]
    fn encodings_are_those_of_the_paper() {
        let ours = values(encodings(&[0, 7], 6, SinusoidLayout::Interleaved));
        let expected = |at: usize| -> f64 {
            let (position, column) = (at / 6 * 7, at % 6);
            let angle = position as f64 / 10_000f64.powf((column / 2 * 2) as f64 / 6.0);
            match column % 2 {
                0 => angle.sin(),
                _ => angle.cos(),
            }
        };
        let expected: Vec<f64> = (0..12).map(expected).collect();
        assert_close("encodings", &ours, &expected, Scale::One, 1e-6);
    }

    #[test]
    fn layouts_hold_the_same_values() {
        let interleaved = encodings(&[3, 11], 8, SinusoidLayout::Interleaved);
        let pairs = interleaved.reshape([1, 2, 4, 2]).swap_dims(2, 3);
        let concatenated = encodings(&[3, 11], 8, SinusoidLayout::Concatenated);
        assert_eq!(
            pairs.reshape([1, 2, 8]).into_data(),
            concatenated.into_data()
        );
    }

    #[test]
    fn a_shift_is_a_rotation() {
        let width = 16;
        let positions: Vec<i64> = (0..40).collect();
        for layout in [SinusoidLayout::Interleaved, SinusoidLayout::Concatenated] {
            for offset in [-9, 0, 1, 25] {
                let rotation = sinusoid_shift(offset, width, layout, &Device::flex());
                let shifted: Vec<i64> = positions.iter().map(|it| it + offset).collect();
                let expected = encodings(&shifted, width, layout);
                let rows = encodings(&positions, width, layout).reshape([40, width]);
                let rotated = values(rows.matmul(rotation.clone().transpose()));
                let what = format!("{layout:?}, {offset}");
                assert_close(&what, &rotated, &values(expected), Scale::One, VALUES);
                let identity = values(Tensor::<2>::eye(width, &Device::flex()));
                let product = values(rotation.clone().matmul(rotation.transpose()));
                assert_close(&what, &product, &identity, Scale::One, 1e-6);
            }
        }
    }
}
