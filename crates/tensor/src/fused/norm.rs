//! Layer and root-mean-square normalization.

use attentive_kernels::norms;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{dense, numbers, record, rows_and_width, tensor};

/// Which normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// Zero mean and unit variance.
    Layer,
    /// Unit mean square.
    Rms,
}

/// The result, and what the backward pass needs of each row.
pub(super) struct Normed {
    pub output: FlexTensor,
    statistics: Statistics,
}

#[derive(Clone, Debug)]
struct Statistics {
    mean: Vec<f32>,
    inverse: Vec<f32>,
}

pub(super) fn forward(
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: Option<&FlexTensor>,
    kind: NormKind,
    epsilon: f64,
) -> Normed {
    let (x, weight, bias) = (dense(x), dense(weight), bias.map(dense));
    let (rows, width) = rows_and_width(&x);
    let mut y = vec![0.0; rows * width];
    let mut inverse = vec![0.0; rows];
    let mut mean = Vec::new();
    let epsilon = epsilon as f32;
    match kind {
        NormKind::Layer => {
            mean.resize(rows, 0.0);
            let bias = bias.as_ref().map(numbers);
            norms::layer_norm(
                numbers(&x),
                numbers(&weight),
                bias,
                epsilon,
                &mut y,
                &mut mean,
                &mut inverse,
            );
        }
        NormKind::Rms => {
            norms::rms_norm(numbers(&x), numbers(&weight), epsilon, &mut y, &mut inverse);
        }
    }
    Normed {
        output: tensor(y, x.layout().shape().clone()),
        statistics: Statistics { mean, inverse },
    }
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
    weight: FloatTensor<Autodiff<Flex, C>>,
    bias: Option<FloatTensor<Autodiff<Flex, C>>>,
    kind: NormKind,
    epsilon: f64,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, x_node) = x.into_parts();
    let (weight, weight_node) = weight.into_parts();
    let (x, weight) = (dense(&x), dense(&weight));
    match bias.map(|bias| bias.into_parts()) {
        Some((bias, bias_node)) => {
            let normed = forward(&x, &weight, Some(&bias), kind, epsilon);
            let nodes = [x_node, weight_node, bias_node];
            record::<C, _, 3>(Norm(kind), nodes, normed.output, || {
                (x, weight, normed.statistics)
            })
        }
        None => {
            let normed = forward(&x, &weight, None, kind, epsilon);
            let nodes = [x_node, weight_node];
            record::<C, _, 2>(Norm(kind), nodes, normed.output, || {
                (x, weight, normed.statistics)
            })
        }
    }
}

#[derive(Debug)]
struct Norm(NormKind);

/// Two inputs, or three with a bias.
impl<const N: usize> Backward<Flex, N> for Norm {
    type State = (FlexTensor, FlexTensor, Statistics);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (x, weight, Statistics { mean, inverse }) = &ops.state;
        let dy = dense(&gradients.consume::<Flex>(&ops.node));
        let (rows, width) = rows_and_width(x);
        let mut dx = vec![0.0; rows * width];
        let mut dweight = vec![0.0; width];
        let mut dbias = (N == 3).then(|| vec![0.0; width]);
        let (dy, x_numbers, weight) = (numbers(&dy), numbers(x), numbers(weight));
        match self.0 {
            NormKind::Layer => {
                let dbias = dbias.as_deref_mut();
                norms::layer_norm_backward(
                    dy,
                    x_numbers,
                    weight,
                    mean,
                    inverse,
                    &mut dx,
                    &mut dweight,
                    dbias,
                );
            }
            NormKind::Rms => {
                norms::rms_norm_backward(dy, x_numbers, weight, inverse, &mut dx, &mut dweight);
            }
        }
        let x_shape = x.layout().shape().clone();
        let slopes = [
            Some(tensor(dx, x_shape)),
            Some(tensor(dweight, [width])),
            dbias.map(|dbias| tensor(dbias, [width])),
        ];
        for (parent, slopes) in ops.parents.iter().zip(slopes) {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                gradients.register::<Flex>(parent.id, slopes);
            }
        }
    }
}
