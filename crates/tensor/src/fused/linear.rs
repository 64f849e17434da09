//! Linear maps.

use attentive_kernels::linear::{self, Gradients as Slopes, Shape};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::{Flex, FlexTensor};
use burn::backend::tensor::FloatTensor;

use super::{dense, numbers, record, rows_and_width, tensor};

fn shape(x: &FlexTensor, weight: &FlexTensor) -> Shape {
    let (rows, input) = rows_and_width(x);
    let output = weight.layout().shape()[0];
    Shape {
        rows,
        input,
        output,
    }
}

pub(super) fn forward(
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: Option<&FlexTensor>,
) -> FlexTensor {
    let (x, weight, bias) = (dense(x), dense(weight), bias.map(dense));
    let shape = shape(&x, &weight);
    let mut y = vec![0.0; shape.rows * shape.output];
    let bias = bias.as_ref().map(numbers);
    linear::forward(
        shape,
        numbers(&x),
        numbers(&weight),
        bias,
        None,
        None,
        &mut y,
    );
    tensor(y, [shape.rows, shape.output])
}

pub(super) fn tracked<C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<Flex, C>>,
    weight: FloatTensor<Autodiff<Flex, C>>,
    bias: Option<FloatTensor<Autodiff<Flex, C>>>,
) -> FloatTensor<Autodiff<Flex, C>> {
    let (x, x_node) = x.into_parts();
    let (weight, weight_node) = weight.into_parts();
    let (x, weight) = (dense(&x), dense(&weight));
    match bias.map(|bias| bias.into_parts()) {
        Some((bias, bias_node)) => {
            let output = forward(&x, &weight, Some(&bias));
            record::<C, _, 3>(Linear, [x_node, weight_node, bias_node], output, || {
                (x, weight)
            })
        }
        None => {
            let output = forward(&x, &weight, None);
            record::<C, _, 2>(Linear, [x_node, weight_node], output, || (x, weight))
        }
    }
}

#[derive(Debug)]
struct Linear;

/// Two inputs, or three with a bias.
impl<const N: usize> Backward<Flex, N> for Linear {
    type State = (FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (x, weight) = &ops.state;
        let shape = shape(x, weight);
        let dy = dense(&gradients.consume::<Flex>(&ops.node));
        let sizes = [
            shape.rows * shape.input,
            shape.output * shape.input,
            shape.output,
        ];
        let mut slopes: [Option<Vec<f32>>; 3] = std::array::from_fn(|i| {
            let parent = ops.parents.get(i).and_then(Option::as_ref);
            parent.map(|_| vec![0.0; sizes[i]])
        });
        let [dx, dweight, dbias] = &mut slopes;
        let wanted = Slopes {
            x: dx.as_deref_mut(),
            weight: dweight.as_deref_mut(),
            bias: dbias.as_deref_mut(),
        };
        linear::backward(shape, numbers(&dy), numbers(x), numbers(weight), wanted);
        let shapes = [
            vec![shape.rows, shape.input],
            vec![shape.output, shape.input],
            vec![shape.output],
        ];
        for ((parent, slopes), shape) in ops.parents.iter().zip(slopes).zip(shapes) {
            if let (Some(parent), Some(slopes)) = (parent, slopes) {
                gradients.register::<Flex>(parent.id, tensor(slopes, shape));
            }
        }
    }
}
