//! Sequences step by step, and which steps of which rows are padding.

use std::ops::Range;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// Token ids, and which of them are padding.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// `[batch, length]`
    pub ids: Tensor<2, Int>,
    /// The range of tokens of each batch row that are not padding; all where absent.
    pub non_padding: Option<Vec<Range<usize>>>,
}

impl Sequences {
    /// Sequences without padding.
    pub fn new(ids: Tensor<2, Int>) -> Self {
        Self {
            ids,
            non_padding: None,
        }
    }

    /// Panics when they are empty or too long, or the ranges do not match them.
    pub(crate) fn check(&self, operation: &str, max_length: usize) {
        let [batch, length] = self.ids.dims();
        assert!(
            (1..=max_length).contains(&length),
            "{operation}: sequences of length {length} do not fit a model of lengths 1 to {max_length}"
        );
        if let Some(non_padding) = &self.non_padding {
            assert!(
                non_padding.len() == batch && non_padding.iter().all(|row| row.end <= length),
                "{operation}: the ranges of tokens {non_padding:?} do not match ids {:?}",
                [batch, length]
            );
        }
    }

    /// The padding of each step.
    pub(crate) fn padding(&self) -> Padding {
        let [_, length] = self.ids.dims();
        Padding::new(self.non_padding.as_deref(), length, &self.ids.device())
    }
}

/// The padded rows of each step, `[batch, 1]`; none where no row is padded, so that most steps need no masking.
pub(crate) struct Padding(Vec<Option<Tensor<2, Bool>>>);

impl Padding {
    fn new(non_padding: Option<&[Range<usize>]>, length: usize, device: &Device) -> Self {
        let rows = non_padding.unwrap_or_default();
        let mask_of = |step: usize| {
            let padded: Vec<bool> = rows.iter().map(|row| !row.contains(&step)).collect();
            let shape = [padded.len(), 1];
            let any = padded.contains(&true);
            any.then(|| Tensor::from_data(TensorData::new(padded, shape), device))
        };
        Self((0..length).map(mask_of).collect())
    }

    /// The padded rows of a step, if there are any.
    pub fn at(&self, step: usize) -> Option<&Tensor<2, Bool>> {
        self.0[step].as_ref()
    }

    /// Zeros the padded rows of a step's `output`, `[batch, width]`.
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
/// Splits recursively in halves: the gradient of a slice is as large as the sliced tensor, so slicing each step from the
/// whole would be quadratic in the length.
pub(crate) fn by_step(x: Tensor<3>) -> Vec<Tensor<2>> {
    let length = x.dims()[1];
    if length == 1 {
        return vec![x.squeeze_dim(1)];
    }
    let half = length / 2;
    let mut steps = by_step(x.clone().narrow(1, 0, half));
    steps.extend(by_step(x.narrow(1, half, length - half)));
    steps
}
