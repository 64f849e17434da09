//! LayerNorm and RMSNorm, alone or of a residual sum; the normalized tensor is an output too.

use attentive_kernels::norms;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, optional, run};
use super::{
    buffer, contiguous, data, into_contiguous, is_present, optional_data, recycle, release,
    rows_and_width, tensor, tensor_like,
};
use crate::{NormKind, NormParameters};

/// `x + branch` and its norm; without a branch, `x` and its norm.
pub(crate) fn add_norm<const D: usize>(
    x: Tensor<D>,
    branch: Option<Tensor<D>>,
    parameters: NormParameters,
) -> [Tensor<D>; 2] {
    let device = x.device();
    let operation = AddNorm {
        kind: parameters.kind,
        epsilon: parameters.epsilon as f32,
    };
    let inputs = [
        x.into_dispatch(),
        optional(branch, &device),
        parameters.weight.into_dispatch(),
        optional(parameters.bias, &device),
    ];
    run(operation, inputs).map(Tensor::from_dispatch)
}

/// Inputs: x, branch, weight, bias.
#[derive(Clone, Debug)]
struct AddNorm {
    kind: NormKind,
    epsilon: f32,
}

#[derive(Clone, Debug)]
struct Saved {
    sum: FlexTensor,
    weight: FlexTensor,
    /// The mean of each row; none for RMSNorm.
    mean: Option<Vec<f32>>,
    /// The reciprocal standard deviation or root mean square of each row.
    rstd: Vec<f32>,
}

impl FusedOperation<4, 2> for AddNorm {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 4]) -> [FlexTensor; 2] {
        let (outputs, saved) = self.forward_and_save(inputs);
        saved.mean.into_iter().chain([saved.rstd]).for_each(release);
        outputs
    }

    /// The sum is written to the branch's storage, unless that is shared.
    fn forward_and_save(
        &self,
        [x, branch, weight, bias]: [FlexTensor; 4],
    ) -> ([FlexTensor; 2], Saved) {
        let [x, weight, bias] = [x, weight, bias].map(into_contiguous);
        let mut sum = is_present(&branch).then(|| owned(branch));
        let (rows, width) = rows_and_width(&x);
        let (mut y, mut rstd) = (buffer(rows * width), buffer(rows));
        let mut mean = (self.kind == NormKind::Layer).then(|| buffer(rows));
        norms::NormForward {
            x: data(&x),
            sum: sum.as_mut().map(FlexTensor::storage_mut),
            weight: data(&weight),
            bias: optional_data(&bias),
            epsilon: self.epsilon,
            y: &mut y,
            mean: mean.as_deref_mut(),
            rstd: &mut rstd,
        }
        .run();
        let y = tensor_like(y, &x);
        let sum = match sum {
            Some(sum) => {
                recycle([x]);
                sum
            }
            None => x,
        };
        let saved = Saved {
            sum: sum.clone(),
            weight,
            mean,
            rstd,
        };
        ([sum, y], saved)
    }

    fn backward(
        &self,
        saved: Saved,
        dys: [Option<FlexTensor>; 2],
        needs_gradient: [bool; 4],
    ) -> [Option<FlexTensor>; 4] {
        let Saved {
            sum,
            weight,
            mean,
            rstd,
        } = saved;
        let [dsum, dy] = dys.map(|it| it.map(|it| contiguous(&it)));
        let [x_needs, branch_needs, weight_needs, bias_needs] = needs_gradient;
        let (rows, width) = rows_and_width(&sum);
        let (dx, dweight, dbias) = match dy {
            Some(dy) => {
                let (mut dx, mut dweight) = (buffer(rows * width), buffer(width));
                let mut dbias = bias_needs.then(|| buffer(width));
                norms::NormBackward {
                    dy: data(&dy),
                    residual_gradient: dsum.as_ref().map(data),
                    x: data(&sum),
                    weight: data(&weight),
                    mean: mean.as_deref(),
                    rstd: &rstd,
                    dx: &mut dx,
                    dweight: &mut dweight,
                    dbias: dbias.as_deref_mut(),
                }
                .run();
                let dx = tensor_like(dx, &sum);
                recycle([sum, dy]);
                recycle(dsum);
                (dx, dweight, dbias)
            }
            // The loss depends on the sum alone.
            None => {
                let dsum = dsum.expect("backward runs when an output has a gradient");
                let dbias = bias_needs.then(|| vec![0.0; width]);
                (dsum, vec![0.0; width], dbias)
            }
        };
        mean.into_iter().chain([rstd]).for_each(release);
        [
            x_needs.then(|| dx.clone()),
            branch_needs.then_some(dx),
            weight_needs.then(|| tensor(dweight, [width])),
            dbias.map(|dbias| tensor(dbias, [width])),
        ]
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
    tensor_like(copy, &x)
}
