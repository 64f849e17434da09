//! Softmax and cross-entropy, fused.

use attentive_kernels::cross_entropy as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, integers, record, recycle, release, rows_and_width, tensor};
use crate::IGNORE_INDEX;

/// The mean loss, and what the backward pass needs.
pub(super) struct CrossEntropyForward {
    pub mean: FlexTensor,
    targets: Vec<i64>,
    /// Per row, the maximum logit and the sum of exponentials.
    pub row_statistics: [Vec<f32>; 2],
}

pub(super) fn forward(
    logits: &FlexTensor,
    targets: &FlexTensor,
    smoothing: f64,
) -> CrossEntropyForward {
    let logits = contiguous(logits);
    let targets = integers(targets);
    let (rows, vocabulary) = rows_and_width(&logits);
    let [mut losses, mut maxima, mut sums] = [rows; 3].map(buffer);
    kernels::cross_entropy(
        data(&logits),
        &targets,
        vocabulary,
        smoothing as f32,
        &mut losses,
        &mut maxima,
        &mut sums,
    );
    let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
    release(losses);
    let mean = (sum / counted_targets(&targets)) as f32;
    CrossEntropyForward {
        mean: tensor(vec![mean], [1]),
        targets,
        row_statistics: [maxima, sums],
    }
}

/// The number of targets that are not ignored; at least one, since losses are divided by it.
fn counted_targets(targets: &[i64]) -> f64 {
    let count = targets
        .iter()
        .filter(|target| **target != IGNORE_INDEX)
        .count();
    count.max(1) as f64
}

pub(super) fn tracked<C: CheckpointStrategy>(
    logits: FloatTensor<Autodiff<Flex, C>>,
    targets: FlexTensor,
    smoothing: f64,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (logits, node) = logits.into_parts();
    let logits = contiguous(&logits);
    let CrossEntropyForward {
        mean,
        targets,
        row_statistics,
    } = forward(&logits, &targets, smoothing);
    record::<C, _, 1>(CrossEntropyBackward(smoothing), [node], mean, || {
        (logits, targets, row_statistics)
    })
}

#[derive(Debug)]
struct CrossEntropyBackward(f64);

impl Backward<Flex, 1> for CrossEntropyBackward {
    type State = (FlexTensor, Vec<i64>, [Vec<f32>; 2]);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (logits, targets, [maxima, sums]) = ops.state;
        let dloss = contiguous(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let (rows, vocabulary) = rows_and_width(&logits);
            let scale = f64::from(data(&dloss)[0]) / counted_targets(&targets);
            let mut gradient = buffer(rows * vocabulary);
            kernels::cross_entropy_backward(
                data(&logits),
                &targets,
                &maxima,
                &sums,
                vocabulary,
                self.0 as f32,
                scale as f32,
                &mut gradient,
            );
            gradients.register::<Flex>(parent.id, tensor(gradient, [rows, vocabulary]));
        }
        recycle([logits]);
        release(maxima);
        release(sums);
    }
}
