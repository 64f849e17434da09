//! Random features of queries and keys for linear attention.

use attentive_kernels::random_features as kernels;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use super::operation::{FusedOperation, run};
use super::{buffer, contiguous, data, into_contiguous, recycle, single, tensor, tensor_like};
use crate::Stabilizer;

/// Random features of rows.
pub(crate) fn random_features(
    x: Tensor<4>,
    projection: Tensor<2>,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> Tensor<4> {
    let features = RandomFeatures {
        stabilizer,
        epsilon: epsilon as f32,
    };
    let [y] = run(features, [x.into_dispatch(), projection.into_dispatch()]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct RandomFeatures {
    stabilizer: Stabilizer,
    epsilon: f32,
}

#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    projection: FlexTensor,
    y: FlexTensor,
}

impl RandomFeatures {
    fn shape(&self, x: &FlexTensor, projection: &FlexTensor) -> kernels::FeatureShape {
        let shape = x.layout().shape();
        kernels::FeatureShape {
            heads: shape[0] * shape[1],
            length: shape[2],
            head_width: shape[3],
            features: projection.layout().shape()[0],
            epsilon: self.epsilon,
        }
    }
}

impl FusedOperation<2, 1> for RandomFeatures {
    type Saved = Saved;

    fn forward(&self, inputs: [FlexTensor; 2]) -> [FlexTensor; 1] {
        let (outputs, saved) = self.forward_and_save(inputs);
        recycle([saved.x]);
        outputs
    }

    fn forward_and_save(&self, inputs: [FlexTensor; 2]) -> ([FlexTensor; 1], Saved) {
        let [x, projection] = inputs.each_ref().map(contiguous);
        let shape = self.shape(&x, &projection);
        let mut y = buffer(shape.heads * shape.length * shape.features);
        let stabilizer = match self.stabilizer {
            Stabilizer::RowMaximum => kernels::Stabilizer::RowMaximum,
            Stabilizer::KeysMaximum => kernels::Stabilizer::KeysMaximum,
            Stabilizer::Constant => kernels::Stabilizer::Constant,
        };
        kernels::forward(shape, data(&x), data(&projection), stabilizer, &mut y);
        let [batch, heads] = [0, 1].map(|axis| x.layout().shape()[axis]);
        let y = tensor(y, [batch, heads, shape.length, shape.features]);
        ([y.clone()], Saved { x, projection, y })
    }

    fn backward(
        &self,
        Saved { x, projection, y }: Saved,
        dys: [Option<FlexTensor>; 1],
        needs_gradient: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        // Overwritten with the gradient of the scores.
        let mut dy = into_contiguous(single(dys));
        let [x_needs, projection_needs] = needs_gradient;
        let mut dx = x_needs.then(|| buffer(data(&x).len()));
        let mut dprojection = projection_needs.then(|| buffer(data(&projection).len()));
        kernels::backward(
            self.shape(&x, &projection),
            [data(&x), data(&projection), data(&y)],
            dy.storage_mut::<f32>(),
            kernels::Gradients {
                x: dx.as_deref_mut(),
                projection: dprojection.as_deref_mut(),
            },
        );
        let dx = dx.map(|dx| tensor_like(dx, &x));
        let dprojection = dprojection.map(|it| tensor_like(it, &projection));
        recycle([x, y, dy]);
        [dx, dprojection]
    }
}
