//! Rotary positions: rotates pairs of features by an angle that grows with the position. Su et al. 2021.
//!
//! The pairs are (i, i + head_width / 2), as in Hugging Face's Llama, not neighbours as in the paper;
//! the two differ by a fixed permutation of the features, which checkpoints in this layout carry in their weights.

use burn::tensor::{Int, Tensor};

/// Cosines and sines of every angle, made once per pass: `[batch or 1, 1, length, head_width]`.
#[derive(Clone, Debug)]
pub struct RotaryAngles {
    cosine: Tensor<4>,
    sine: Tensor<4>,
}

impl RotaryAngles {
    /// The angles `position · theta^(-2i / head_width)` for `positions` `[batch or 1, length]`.
    pub fn new(positions: Tensor<2, Int>, head_width: usize, theta: f64) -> Self {
        assert!(
            head_width.is_multiple_of(2),
            "rotary: head width {head_width} is not even"
        );
        let [batch, length] = positions.dims();
        let device = positions.device();
        let half = head_width / 2;
        let frequencies: Vec<f32> = (0..half)
            .map(|i| theta.powf(-2.0 * i as f64 / head_width as f64) as f32)
            .collect();
        let frequencies =
            Tensor::<1>::from_floats(frequencies.as_slice(), &device).reshape([1, 1, 1, half]);
        let angles = positions.float().reshape([batch, 1, length, 1]) * frequencies;
        let angles = Tensor::cat(vec![angles.clone(), angles], 3);
        Self {
            cosine: angles.clone().cos(),
            sine: angles.sin(),
        }
    }
}

/// Rotates `x` `[batch, heads, length, head_width]` by its positions' angles.
pub fn rotary(x: Tensor<4>, angles: &RotaryAngles) -> Tensor<4> {
    let [_, _, length, head_width] = x.dims();
    let [_, _, angle_length, angle_width] = angles.cosine.dims();
    assert_eq!(
        [length, head_width],
        [angle_length, angle_width],
        "rotary: input {:?} does not fit angles {:?}",
        x.dims(),
        angles.cosine.dims()
    );
    let half = head_width / 2;
    let turned = Tensor::cat(
        vec![
            x.clone().narrow(3, half, half).neg(),
            x.clone().narrow(3, 0, half),
        ],
        3,
    );
    x * angles.cosine.clone() + turned * angles.sine.clone()
}
