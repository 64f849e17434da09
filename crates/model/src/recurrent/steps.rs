//! Sequences step by step, and which steps of which rows are padding.

use std::ops::Range;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// Token ids, and where padding leaves real ones.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// `[batch, length]`
    pub ids: Tensor<2, Int>,
    /// Where padding leaves real tokens, one range per batch row; none where all are real.
    pub real: Option<Vec<Range<usize>>>,
}

impl Sequences {
    /// Sequences without padding.
    pub fn new(ids: Tensor<2, Int>) -> Self {
        Self { ids, real: None }
    }

    /// Panics where they are too long, or the ranges do not fit them.
    pub(super) fn check(&self, operation: &str, longest: usize) {
        let [batch, length] = self.ids.dims();
        assert!(
            (1..=longest).contains(&length),
            "{operation}: sequences of length {length} do not fit a model of lengths 1 to {longest}"
        );
        if let Some(real) = &self.real {
            assert!(
                real.len() == batch && real.iter().all(|row| row.end <= length),
                "{operation}: the real ranges {real:?} do not fit ids {:?}",
                [batch, length]
            );
        }
    }

    /// The padding of each step.
    pub(super) fn padding(&self) -> Padding {
        let [_, length] = self.ids.dims();
        Padding::new(self.real.as_deref(), length, &self.ids.device())
    }
}

/// The padded rows of each step, `[batch, 1]`; none where a step is real in all rows, so that most steps cost nothing more.
pub(super) struct Padding(Vec<Option<Tensor<2, Bool>>>);

impl Padding {
    fn new(real: Option<&[Range<usize>]>, length: usize, device: &Device) -> Self {
        let rows = real.unwrap_or_default();
        let of_step = |step: usize| {
            let padded: Vec<bool> = rows.iter().map(|row| !row.contains(&step)).collect();
            let shape = [padded.len(), 1];
            let some = padded.contains(&true);
            some.then(|| Tensor::from_data(TensorData::new(padded, shape), device))
        };
        Self((0..length).map(of_step).collect())
    }

    /// The padded rows of a step, if there are any.
    pub fn at(&self, step: usize) -> Option<&Tensor<2, Bool>> {
        self.0[step].as_ref()
    }

    /// `output` `[batch, width]` of a step, zeros where a row is padding.
    pub fn clear(&self, step: usize, output: Tensor<2>) -> Tensor<2> {
        match self.at(step) {
            Some(padded) => {
                let padded = padded.clone().expand(output.dims());
                output.mask_fill(padded, 0.0)
            }
            None => output,
        }
    }
}

/// `[batch, length, width]` as the `[batch, width]` of each step.
///
/// By halves: the gradient of a slice is as large as what it was cut from, so slices of the whole would cost the square of
/// the length.
pub(super) fn by_step(x: Tensor<3>) -> Vec<Tensor<2>> {
    let length = x.dims()[1];
    if length == 1 {
        return vec![x.squeeze_dim(1)];
    }
    let half = length / 2;
    let mut steps = by_step(x.clone().narrow(1, 0, half));
    steps.extend(by_step(x.narrow(1, half, length - half)));
    steps
}
