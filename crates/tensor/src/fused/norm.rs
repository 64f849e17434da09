//! Layer and root-mean-square normalization, alone or of a residual sum, with what was normalized beside it.

use attentive_kernels::norms;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::outputs::{Slots, record_several};
use super::{
    buffer, dense, into_dense, is_present, keep, numbers, present, recycle, rows_and_width, tensor,
};
use crate::NormKind;

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// The sum that was normalized, the result, and what the backward pass needs of each row.
pub(super) struct Normed {
    pub sum: FlexTensor,
    pub output: FlexTensor,
    pub statistics: Statistics,
}

#[derive(Clone, Debug)]
pub(super) struct Statistics {
    mean: Vec<f32>,
    inverse: Vec<f32>,
}

impl Statistics {
    /// Keeps the memory for the next operations.
    pub fn keep(self) {
        keep(self.mean);
        keep(self.inverse);
    }
}

/// Normalizes `x`, or `x + branch` if there is a branch, which becomes the sum, in its memory if nobody else holds it; without a
/// branch, the sum is `x` itself.
pub(super) fn forward(
    x: &FlexTensor,
    branch: FlexTensor,
    weight: &FlexTensor,
    bias: &FlexTensor,
    kind: NormKind,
    epsilon: f64,
) -> Normed {
    let (x, weight, bias) = (dense(x), dense(weight), dense(bias));
    let mut sum = is_present(&branch).then(|| owned(branch));
    let (rows, width) = rows_and_width(&x);
    let (mut y, mut inverse) = (buffer(rows * width), buffer(rows));
    let mut mean = match kind {
        NormKind::Layer => buffer(rows),
        NormKind::Rms => Vec::new(),
    };
    let (x_numbers, weight, bias) = (numbers(&x), numbers(&weight), present(&bias));
    let epsilon = epsilon as f32;
    match (kind, sum.as_mut().map(FlexTensor::storage_mut)) {
        (NormKind::Layer, None) => {
            norms::layer_norm(
                x_numbers,
                weight,
                bias,
                epsilon,
                &mut y,
                &mut mean,
                &mut inverse,
            );
        }
        (NormKind::Layer, Some(sum)) => norms::add_layer_norm(
            x_numbers,
            weight,
            bias,
            epsilon,
            sum,
            &mut y,
            &mut mean,
            &mut inverse,
        ),
        (NormKind::Rms, None) => {
            norms::rms_norm(x_numbers, weight, bias, epsilon, &mut y, &mut inverse);
        }
        (NormKind::Rms, Some(sum)) => {
            norms::add_rms_norm(x_numbers, weight, bias, epsilon, sum, &mut y, &mut inverse);
        }
    }
    let shape = x.layout().shape().clone();
    Normed {
        output: tensor(y, shape),
        sum: sum.unwrap_or(x),
        statistics: Statistics { mean, inverse },
    }
}

/// The tensor in memory that nobody else holds: its own, or a copy.
fn owned(x: FlexTensor) -> FlexTensor {
    let mut x = into_dense(x);
    if x.try_storage_mut::<f32>().is_some() {
        return x;
    }
    let mut copy = buffer(numbers(&x).len());
    copy.copy_from_slice(numbers(&x));
    tensor(copy, x.layout().shape().clone())
}

/// The sum and its norm.
pub(super) fn tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    branch: Tracked<C>,
    weight: Tracked<C>,
    bias: Tracked<C>,
    kind: NormKind,
    epsilon: f64,
) -> [Tracked<C>; 2] {
    let (x, x_node) = x.into_parts();
    let (branch, branch_node) = branch.into_parts();
    let (weight, weight_node) = weight.into_parts();
    let (bias, bias_node) = bias.into_parts();
    let normed = forward(&x, branch, &weight, &bias, kind, epsilon);
    // Unless somebody kept it, for the way back first of all.
    recycle([x]);
    let nodes = [x_node, branch_node, weight_node, bias_node];
    let outputs = [normed.sum.clone(), normed.output];
    record_several::<C, _, 4, 2>(Norm(kind), nodes, outputs, |slots| Saved {
        sum: normed.sum,
        weight: dense(&weight),
        statistics: normed.statistics,
        slots,
    })
}

#[derive(Debug)]
struct Norm(NormKind);

#[derive(Clone, Debug)]
struct Saved {
    sum: FlexTensor,
    weight: FlexTensor,
    statistics: Statistics,
    slots: Slots,
}

impl Backward<Flex, 4> for Norm {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let Saved {
            sum,
            weight,
            statistics,
            slots,
        } = ops.state;
        let [beside, dy] = slots.take::<2>().map(|it| it.map(|it| dense(&it)));
        let [x_parent, branch_parent, weight_parent, bias_parent] = &ops.parents;
        let Some(dy) = dy else {
            // The loss depends on the sum alone. Whoever made weight and bias still waits for their gradients.
            statistics.keep();
            let beside = beside.expect("a node is visited when an output has a gradient");
            for parent in [x_parent, branch_parent].into_iter().flatten() {
                gradients.register::<Flex>(parent.id, beside.clone());
            }
            let width = weight.layout().num_elements();
            for parent in [weight_parent, bias_parent].into_iter().flatten() {
                gradients.register::<Flex>(parent.id, tensor(vec![0.0; width], [width]));
            }
            return;
        };
        let (rows, width) = rows_and_width(&sum);
        let (mut dx, mut dweight) = (buffer(rows * width), buffer(width));
        let mut dbias = bias_parent.as_ref().map(|_| buffer(width));
        let (dy_numbers, x, weight) = (numbers(&dy), numbers(&sum), numbers(&weight));
        let beside_numbers = beside.as_ref().map(numbers);
        match self.0 {
            NormKind::Layer => norms::layer_norm_backward(
                dy_numbers,
                beside_numbers,
                x,
                weight,
                &statistics.mean,
                &statistics.inverse,
                &mut dx,
                &mut dweight,
                dbias.as_deref_mut(),
            ),
            NormKind::Rms => norms::rms_norm_backward(
                dy_numbers,
                beside_numbers,
                x,
                weight,
                &statistics.inverse,
                &mut dx,
                &mut dweight,
                dbias.as_deref_mut(),
            ),
        }
        let dx = tensor(dx, sum.layout().shape().clone());
        for parent in [x_parent, branch_parent].into_iter().flatten() {
            gradients.register::<Flex>(parent.id, dx.clone());
        }
        if let Some(parent) = weight_parent {
            gradients.register::<Flex>(parent.id, tensor(dweight, [width]));
        }
        if let (Some(parent), Some(dbias)) = (bias_parent, dbias) {
            gradients.register::<Flex>(parent.id, tensor(dbias, [width]));
        }
        recycle([sum, dy]);
        recycle(beside);
        statistics.keep();
    }
}
