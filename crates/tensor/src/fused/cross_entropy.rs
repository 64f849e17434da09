//! Softmax and cross-entropy in one.

use attentive_kernels::cross_entropy as kernels;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, dense, integers, keep, numbers, record, recycle, rows_and_width, tensor};
use crate::IGNORED_TARGET;

/// The result, and what the backward pass needs.
pub(super) struct Judged {
    pub mean: FlexTensor,
    targets: Vec<i64>,
    /// Of each row, the largest logit and the sum of exponentials.
    pub statistics: [Vec<f32>; 2],
}

pub(super) fn forward(logits: &FlexTensor, targets: &FlexTensor, smoothing: f64) -> Judged {
    let logits = dense(logits);
    let targets = integers(targets);
    let (rows, vocabulary) = rows_and_width(&logits);
    let [mut losses, mut largest, mut sums] = [rows; 3].map(buffer);
    kernels::cross_entropy(
        numbers(&logits),
        &targets,
        vocabulary,
        smoothing as f32,
        &mut losses,
        &mut largest,
        &mut sums,
    );
    let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
    keep(losses);
    let mean = (sum / counted(&targets)) as f32;
    Judged {
        mean: tensor(vec![mean], [1]),
        targets,
        statistics: [largest, sums],
    }
}

/// How many targets take part; at least one, so that nothing is divided by zero.
fn counted(targets: &[i64]) -> f64 {
    let count = targets
        .iter()
        .filter(|target| **target != IGNORED_TARGET)
        .count();
    count.max(1) as f64
}

pub(super) fn tracked<C: CheckpointStrategy>(
    logits: FloatTensor<Autodiff<Flex, C>>,
    targets: FlexTensor,
    smoothing: f64,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (logits, node) = logits.into_parts();
    let logits = dense(&logits);
    let Judged {
        mean,
        targets,
        statistics,
    } = forward(&logits, &targets, smoothing);
    record::<C, _, 1>(CrossEntropy(smoothing), [node], mean, || {
        (logits, targets, statistics)
    })
}

#[derive(Debug)]
struct CrossEntropy(f64);

impl Backward<Flex, 1> for CrossEntropy {
    type State = (FlexTensor, Vec<i64>, [Vec<f32>; 2]);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (logits, targets, [largest, sums]) = ops.state;
        let upstream = dense(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let (rows, vocabulary) = rows_and_width(&logits);
            let scale = f64::from(numbers(&upstream)[0]) / counted(&targets);
            let mut slopes = buffer(rows * vocabulary);
            kernels::cross_entropy_backward(
                numbers(&logits),
                &targets,
                &largest,
                &sums,
                vocabulary,
                self.0 as f32,
                scale as f32,
                &mut slopes,
            );
            gradients.register::<Flex>(parent.id, tensor(slopes, [rows, vocabulary]));
        }
        recycle([logits]);
        keep(largest);
        keep(sums);
    }
}
