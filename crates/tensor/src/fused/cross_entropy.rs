//! Softmax and cross-entropy, fused.

use attentive_kernels::cross_entropy as kernels;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Int, Tensor};

use super::operation::{FusedOperation, run};
use super::{
    buffer, contiguous, data, integers, recycle, release, rows_and_width, single, tensor,
    tensor_like,
};
use crate::IGNORE_INDEX;

/// Mean cross-entropy of rows.
pub(crate) fn cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    smoothing: f64,
) -> Tensor<1> {
    let cross_entropy = CrossEntropy {
        targets: integers(targets),
        smoothing: smoothing as f32,
    };
    let [mean] = run(cross_entropy, [logits.into_dispatch()]);
    Tensor::from_dispatch(mean)
}

#[derive(Clone, Debug)]
struct CrossEntropy {
    targets: Vec<i64>,
    smoothing: f32,
}

#[derive(Clone, Debug)]
struct Saved {
    logits: FlexTensor,
    /// Per row, the maximum logit.
    maxima: Vec<f32>,
    /// Per row, the sum of exponentials.
    sums: Vec<f32>,
}

impl CrossEntropy {
    /// The number of targets that are not ignored; at least one, since losses are divided by it.
    fn counted_targets(&self) -> f64 {
        let counted = self.targets.iter().filter(|it| **it != IGNORE_INDEX);
        counted.count().max(1) as f64
    }
}

impl FusedOperation<1, 1> for CrossEntropy {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let (outputs, saved) = self.forward_and_save(inputs);
        saved.release();
        outputs
    }

    fn forward_and_save(&self, [logits]: [FlexTensor; 1]) -> ([FlexTensor; 1], Saved) {
        let logits = contiguous(&logits);
        let (rows, vocabulary) = rows_and_width(&logits);
        let [mut losses, mut maxima, mut sums] = [rows; 3].map(buffer);
        kernels::CrossEntropyForward {
            logits: data(&logits),
            targets: &self.targets,
            vocabulary,
            label_smoothing: self.smoothing,
            losses: &mut losses,
            max: &mut maxima,
            exp_sums: &mut sums,
        }
        .run();
        let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
        release(losses);
        let mean = (sum / self.counted_targets()) as f32;
        let saved = Saved {
            logits,
            maxima,
            sums,
        };
        ([tensor(vec![mean], [1])], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        dys: [Option<FlexTensor>; 1],
        _: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let dloss = contiguous(&single(dys));
        let scale = f64::from(data(&dloss)[0]) / self.counted_targets();
        let (rows, vocabulary) = rows_and_width(&saved.logits);
        let mut dlogits = buffer(rows * vocabulary);
        kernels::CrossEntropyBackward {
            logits: data(&saved.logits),
            targets: &self.targets,
            vocabulary,
            label_smoothing: self.smoothing,
            max: &saved.maxima,
            exp_sums: &saved.sums,
            scale: scale as f32,
            dlogits: &mut dlogits,
        }
        .run();
        let dlogits = tensor_like(dlogits, &saved.logits);
        saved.release();
        [Some(dlogits)]
    }
}

impl Saved {
    fn release(self) {
        recycle([self.logits]);
        release(self.maxima);
        release(self.sums);
    }
}
