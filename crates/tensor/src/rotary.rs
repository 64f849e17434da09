//! Rotary position embedding (RoPE): rotates pairs of features by an angle proportional to the position. Su et al. 2021.
//!
//! The pairs are (i, i + head_width / 2), as in Hugging Face's Llama, not interleaved as in the paper; the two differ by a
//! fixed permutation of the features, which is folded into the weights of checkpoints in this layout.

use burn::tensor::{Int, Tensor};

use crate::exact_dims::ExactDims;
use crate::fused;

/// Cosines and sines of every angle, computed once per pass: `[batch or 1, length, head_width / 2]`.
#[derive(Clone, Debug)]
pub struct RotaryAngles {
    cosine: Tensor<3>,
    sine: Tensor<3>,
}

impl RotaryAngles {
    /// The angles `position · frequency`, one frequency per pair of features, for `positions` `[batch or 1, length]`.
    /// The result is also multiplied by `factor`, the attention factor of scaled RoPE.
    pub fn from_frequencies(positions: Tensor<2, Int>, frequencies: &[f64], factor: f64) -> Self {
        let [batch, length] = positions.dims();
        let half = frequencies.len();
        let frequencies: Vec<f32> = frequencies.iter().map(|it| *it as f32).collect();
        let frequencies = Tensor::<1>::from_floats(frequencies.as_slice(), &positions.device())
            .reshape(ExactDims([1, 1, half]));
        let angles = positions.float().reshape(ExactDims([batch, length, 1])) * frequencies;
        let scaled = |it: Tensor<3>| if factor == 1.0 { it } else { it * factor };
        Self {
            cosine: scaled(angles.clone().cos()),
            sine: scaled(angles.sin()),
        }
    }
}

/// Rotates `x` `[batch, heads, length, head_width]` by its positions' angles.
///
/// # Panics
/// When the shapes do not match.
pub fn rotary(x: Tensor<4>, angles: &RotaryAngles) -> Tensor<4> {
    let [batch, _, length, head_width] = x.dims();
    let [angle_batch, angle_length, half] = angles.cosine.dims();
    assert!(
        length == angle_length
            && head_width == 2 * half
            && (angle_batch == 1 || angle_batch == batch),
        "rotary: input {:?} does not match angles {:?}",
        x.dims(),
        angles.cosine.dims()
    );
    let RotaryAngles { cosine, sine } = angles.clone();
    if fused::has_kernels(&x) {
        return fused::rotary(x, cosine, sine);
    }
    if x.shape().num_elements() == 0 {
        return x;
    }
    let angle = |it: Tensor<3>| it.reshape(ExactDims([angle_batch, 1, length, half]));
    let (cosine, sine) = (angle(cosine), angle(sine));
    let (first, second) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
    Tensor::cat(
        vec![
            first.clone() * cosine.clone() - second.clone() * sine.clone(),
            second * cosine + first * sine,
        ],
        3,
    )
}
