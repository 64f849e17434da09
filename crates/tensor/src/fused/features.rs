//! Features of queries and keys for linear attention: positive maps, and random features.

use attentive_kernels::{feature_maps, random_features};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, dense, into_dense, numbers, record, recycle, tensor};
use crate::{FeatureMap, Stabilizer};

type Tracked<C> = FloatTensor<Autodiff<Flex, C>>;

fn kernel(map: FeatureMap) -> feature_maps::FeatureMap {
    match map {
        FeatureMap::EluPlusOne => feature_maps::FeatureMap::EluPlusOne,
        FeatureMap::Relu => feature_maps::FeatureMap::Relu,
        FeatureMap::Exp => feature_maps::FeatureMap::Exp,
        FeatureMap::Softplus => feature_maps::FeatureMap::Softplus,
    }
}

pub(super) fn map(x: &FlexTensor, map: FeatureMap) -> FlexTensor {
    let x = dense(x);
    let mut y = buffer(numbers(&x).len());
    feature_maps::forward(kernel(map), numbers(&x), &mut y);
    tensor(y, x.layout().shape().clone())
}

pub(super) fn map_tracked<C: CheckpointStrategy>(x: Tracked<C>, kind: FeatureMap) -> Tracked<C> {
    let (x, node) = x.into_parts();
    let x = dense(&x);
    let output = map(&x, kind);
    record::<C, _, 1>(Mapped(kind), [node], output, || x)
}

#[derive(Debug)]
struct Mapped(FeatureMap);

impl Backward<Flex, 1> for Mapped {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let x = ops.state;
        let dy = dense(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let mut dx = buffer(numbers(&x).len());
            feature_maps::backward(kernel(self.0), numbers(&x), numbers(&dy), &mut dx);
            gradients.register::<Flex>(parent.id, tensor(dx, x.layout().shape().clone()));
        }
        recycle([x, dy]);
    }
}

fn sizes(x: &FlexTensor, projection: &FlexTensor, epsilon: f64) -> random_features::Sizes {
    let shape = x.layout().shape();
    random_features::Sizes {
        heads: shape[0] * shape[1],
        length: shape[2],
        head_width: shape[3],
        features: projection.layout().shape()[0],
        epsilon: epsilon as f32,
    }
}

pub(super) fn random(
    x: &FlexTensor,
    projection: &FlexTensor,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> FlexTensor {
    let (x, projection) = (dense(x), dense(projection));
    let sizes = sizes(&x, &projection, epsilon);
    let mut y = buffer(sizes.heads * sizes.length * sizes.features);
    let stabilizer = match stabilizer {
        Stabilizer::RowMaximum => random_features::Stabilizer::RowMaximum,
        Stabilizer::KeysMaximum => random_features::Stabilizer::HeadMaximum,
        Stabilizer::Constant => random_features::Stabilizer::Constant,
    };
    random_features::forward(sizes, numbers(&x), numbers(&projection), stabilizer, &mut y);
    let shape = x.layout().shape();
    tensor(y, [shape[0], shape[1], shape[2], sizes.features])
}

pub(super) fn random_tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    projection: Tracked<C>,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> Tracked<C> {
    let (x, x_node) = x.into_parts();
    let (projection, projection_node) = projection.into_parts();
    let (x, projection) = (dense(&x), dense(&projection));
    let y = random(&x, &projection, stabilizer, epsilon);
    let state = || Saved {
        x,
        projection,
        y: y.clone(),
        epsilon,
    };
    let nodes = [x_node, projection_node];
    record::<C, _, 2>(RandomFeatures, nodes, y.clone(), state)
}

#[derive(Debug)]
struct RandomFeatures;

#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    projection: FlexTensor,
    y: FlexTensor,
    epsilon: f64,
}

impl Backward<Flex, 2> for RandomFeatures {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Saved {
            x,
            projection,
            y,
            epsilon,
        } = ops.state;
        // The gradient of the scores takes its place.
        let mut dy = into_dense(gradients.consume::<Flex>(&ops.node));
        let [x_parent, projection_parent] = &ops.parents;
        let mut dx = x_parent.as_ref().map(|_| buffer(numbers(&x).len()));
        let mut dprojection =
            (projection_parent.as_ref()).map(|_| buffer(numbers(&projection).len()));
        random_features::backward(
            sizes(&x, &projection, epsilon),
            [numbers(&x), numbers(&projection), numbers(&y)],
            dy.storage_mut::<f32>(),
            random_features::Gradients {
                x: dx.as_deref_mut(),
                projection: dprojection.as_deref_mut(),
            },
        );
        for (parent, slopes, of) in [
            (x_parent, dx, &x),
            (projection_parent, dprojection, &projection),
        ] {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                let shape = of.layout().shape().clone();
                gradients.register::<Flex>(parent.id, tensor(slopes, shape));
            }
        }
        recycle([x, y, dy]);
    }
}
