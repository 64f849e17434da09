//! Features of queries and keys for linear attention: positive feature maps, and random features.

use attentive_kernels::{feature_maps, random_features};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{buffer, contiguous, data, into_contiguous, record, recycle, tensor};
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

pub(super) fn feature_map(x: &FlexTensor, map: FeatureMap) -> FlexTensor {
    let x = contiguous(x);
    let mut y = buffer(data(&x).len());
    feature_maps::forward(kernel(map), data(&x), &mut y);
    tensor(y, x.layout().shape().clone())
}

pub(super) fn feature_map_tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    kind: FeatureMap,
) -> Tracked<C> {
    let (x, node) = x.into_parts();
    let x = contiguous(&x);
    let output = feature_map(&x, kind);
    record::<C, _, 1>(FeatureMapBackward(kind), [node], output, || x)
}

#[derive(Debug)]
struct FeatureMapBackward(FeatureMap);

impl Backward<Flex, 1> for FeatureMapBackward {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let x = ops.state;
        let dy = contiguous(&gradients.consume::<Flex>(&ops.node));
        if let [Some(parent)] = &ops.parents {
            let mut dx = buffer(data(&x).len());
            feature_maps::backward(kernel(self.0), data(&x), data(&dy), &mut dx);
            gradients.register::<Flex>(parent.id, tensor(dx, x.layout().shape().clone()));
        }
        recycle([x, dy]);
    }
}

fn sizes(x: &FlexTensor, projection: &FlexTensor, epsilon: f64) -> random_features::FeatureShape {
    let shape = x.layout().shape();
    random_features::FeatureShape {
        heads: shape[0] * shape[1],
        length: shape[2],
        head_width: shape[3],
        features: projection.layout().shape()[0],
        epsilon: epsilon as f32,
    }
}

pub(super) fn random_features(
    x: &FlexTensor,
    projection: &FlexTensor,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> FlexTensor {
    let (x, projection) = (contiguous(x), contiguous(projection));
    let sizes = sizes(&x, &projection, epsilon);
    let mut y = buffer(sizes.heads * sizes.length * sizes.features);
    let stabilizer = match stabilizer {
        Stabilizer::RowMaximum => random_features::Stabilizer::RowMaximum,
        Stabilizer::KeysMaximum => random_features::Stabilizer::HeadMaximum,
        Stabilizer::Constant => random_features::Stabilizer::Constant,
    };
    random_features::forward(sizes, data(&x), data(&projection), stabilizer, &mut y);
    let shape = x.layout().shape();
    tensor(y, [shape[0], shape[1], shape[2], sizes.features])
}

pub(super) fn random_features_tracked<C: CheckpointStrategy>(
    x: Tracked<C>,
    projection: Tracked<C>,
    stabilizer: Stabilizer,
    epsilon: f64,
) -> Tracked<C> {
    let (x, x_node) = x.into_parts();
    let (projection, projection_node) = projection.into_parts();
    let (x, projection) = (contiguous(&x), contiguous(&projection));
    let y = random_features(&x, &projection, stabilizer, epsilon);
    let state = || SavedRandomFeatures {
        x,
        projection,
        y: y.clone(),
        epsilon,
    };
    let nodes = [x_node, projection_node];
    record::<C, _, 2>(RandomFeaturesBackward, nodes, y.clone(), state)
}

#[derive(Debug)]
struct RandomFeaturesBackward;

#[derive(Clone, Debug)]
struct SavedRandomFeatures {
    x: FlexTensor,
    projection: FlexTensor,
    y: FlexTensor,
    epsilon: f64,
}

impl Backward<Flex, 2> for RandomFeaturesBackward {
    type State = SavedRandomFeatures;

    fn backward(
        self,
        ops: Ops<SavedRandomFeatures, 2>,
        gradients: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let SavedRandomFeatures {
            x,
            projection,
            y,
            epsilon,
        } = ops.state;
        // Overwritten with the gradient of the scores.
        let mut dy = into_contiguous(gradients.consume::<Flex>(&ops.node));
        let [x_parent, projection_parent] = &ops.parents;
        let mut dx = x_parent.as_ref().map(|_| buffer(data(&x).len()));
        let mut dprojection = (projection_parent.as_ref()).map(|_| buffer(data(&projection).len()));
        random_features::backward(
            sizes(&x, &projection, epsilon),
            [data(&x), data(&projection), data(&y)],
            dy.storage_mut::<f32>(),
            random_features::Gradients {
                x: dx.as_deref_mut(),
                projection: dprojection.as_deref_mut(),
            },
        );
        for (parent, gradient, of) in [
            (x_parent, dx, &x),
            (projection_parent, dprojection, &projection),
        ] {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                let shape = of.layout().shape().clone();
                gradients.register::<Flex>(parent.id, tensor(gradient, shape));
            }
        }
        recycle([x, y, dy]);
    }
}
