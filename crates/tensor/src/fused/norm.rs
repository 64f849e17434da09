//! LayerNorm and RMSNorm, alone or of a residual sum; the normalized tensor is an output too.

use attentive_kernels::norms;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::outputs::{GradientSlots, record_outputs};
use super::{
    buffer, contiguous, data, into_contiguous, is_present, optional_data, recycle, release,
    rows_and_width, tensor,
};
use crate::NormKind;

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

/// The sum that was normalized, its norm, and the row statistics that the backward pass needs.
pub(super) struct NormForward {
    pub sum: FlexTensor,
    pub norm: FlexTensor,
    pub statistics: RowStatistics,
}

#[derive(Clone, Debug)]
pub(super) struct RowStatistics {
    mean: Vec<f32>,
    inverse_std: Vec<f32>,
}

impl RowStatistics {
    /// Returns the buffers to the pool.
    pub fn release(self) {
        release(self.mean);
        release(self.inverse_std);
    }
}

/// Normalizes `x + branch`, or `x` without a branch. The sum is made in the branch's storage, unless that is shared.
pub(super) fn forward(
    x: &FlexTensor,
    branch: FlexTensor,
    weight: &FlexTensor,
    bias: &FlexTensor,
    kind: NormKind,
    epsilon: f64,
) -> NormForward {
    let (x, weight, bias) = (contiguous(x), contiguous(weight), contiguous(bias));
    let mut sum = is_present(&branch).then(|| owned(branch));
    let (rows, width) = rows_and_width(&x);
    let (mut y, mut inverse_std) = (buffer(rows * width), buffer(rows));
    let mut mean = match kind {
        NormKind::Layer => buffer(rows),
        NormKind::Rms => Vec::new(),
    };
    let (x_data, weight, bias) = (data(&x), data(&weight), optional_data(&bias));
    let epsilon = epsilon as f32;
    match (kind, sum.as_mut().map(FlexTensor::storage_mut)) {
        (NormKind::Layer, None) => {
            norms::layer_norm(
                x_data,
                weight,
                bias,
                epsilon,
                &mut y,
                &mut mean,
                &mut inverse_std,
            );
        }
        (NormKind::Layer, Some(sum)) => norms::add_layer_norm(
            x_data,
            weight,
            bias,
            epsilon,
            sum,
            &mut y,
            &mut mean,
            &mut inverse_std,
        ),
        (NormKind::Rms, None) => {
            norms::rms_norm(x_data, weight, bias, epsilon, &mut y, &mut inverse_std);
        }
        (NormKind::Rms, Some(sum)) => {
            norms::add_rms_norm(x_data, weight, bias, epsilon, sum, &mut y, &mut inverse_std);
        }
    }
    let shape = x.layout().shape().clone();
    NormForward {
        norm: tensor(y, shape),
        sum: sum.unwrap_or(x),
        statistics: RowStatistics { mean, inverse_std },
    }
}

/// The tensor with storage that is not shared: its own, or a copy.
fn owned(x: FlexTensor) -> FlexTensor {
    let mut x = into_contiguous(x);
    if x.try_storage_mut::<f32>().is_some() {
        return x;
    }
    let mut copy = buffer(data(&x).len());
    copy.copy_from_slice(data(&x));
    tensor(copy, x.layout().shape().clone())
}

/// The sum and its norm, recorded in the graph.
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
    let output = forward(&x, branch, &weight, &bias, kind, epsilon);
    // Without a branch the sum shares its storage, which then stays.
    recycle([x]);
    let nodes = [x_node, branch_node, weight_node, bias_node];
    let outputs = [output.sum.clone(), output.norm];
    record_outputs::<C, _, 4, 2>(NormBackward(kind), nodes, outputs, |slots| SavedNorm {
        sum: output.sum,
        weight: contiguous(&weight),
        statistics: output.statistics,
        slots,
    })
}

#[derive(Debug)]
struct NormBackward(NormKind);

#[derive(Clone, Debug)]
struct SavedNorm {
    sum: FlexTensor,
    weight: FlexTensor,
    statistics: RowStatistics,
    slots: GradientSlots,
}

impl Backward<Flex, 4> for NormBackward {
    type State = SavedNorm;

    fn backward(self, ops: Ops<SavedNorm, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        gradients.consume::<Flex>(&ops.node);
        let SavedNorm {
            sum,
            weight,
            statistics,
            slots,
        } = ops.state;
        let [dsum, dy] = slots.take::<2>().map(|it| it.map(|it| contiguous(&it)));
        let [x_parent, branch_parent, weight_parent, bias_parent] = &ops.parents;
        let Some(dy) = dy else {
            // The loss depends on the sum alone; the nodes of weight and bias still expect gradients.
            statistics.release();
            let dsum = dsum.expect("a node is visited when an output has a gradient");
            for parent in [x_parent, branch_parent].into_iter().flatten() {
                gradients.register::<Flex>(parent.id, dsum.clone());
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
        let (dy_data, x, weight) = (data(&dy), data(&sum), data(&weight));
        let dsum_data = dsum.as_ref().map(data);
        match self.0 {
            NormKind::Layer => norms::layer_norm_backward(
                dy_data,
                dsum_data,
                x,
                weight,
                &statistics.mean,
                &statistics.inverse_std,
                &mut dx,
                &mut dweight,
                dbias.as_deref_mut(),
            ),
            NormKind::Rms => norms::rms_norm_backward(
                dy_data,
                dsum_data,
                x,
                weight,
                &statistics.inverse_std,
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
        recycle(dsum);
        statistics.release();
    }
}
