//! The backward pass of linear projections, several in one job.

use attentive_kernels::Init;
use attentive_kernels::linear;
use burn::backend::flex::FlexTensor;

use super::linear::shape;
use super::{buffer, data, matrix, recycle, rows_and_width, tensor, tensor_like};

/// A projection: its weight, the gradient of its output, and whether weight and bias need gradients.
pub(super) struct Projection<'a> {
    pub weight: &'a FlexTensor,
    pub dy: FlexTensor,
    pub needs_gradient: [bool; 2],
}

/// An input, and the projections that were applied to it.
pub(super) struct ProjectedInput<'a> {
    pub x: FlexTensor,
    pub needs_gradient: bool,
    pub projections: Vec<Projection<'a>>,
}

/// The gradients of an input, and of weight and bias of each of its projections.
pub(super) struct InputGradients {
    pub dx: Option<FlexTensor>,
    pub parameters: Vec<[Option<FlexTensor>; 2]>,
}

/// The gradients of inputs and of the projections applied to them. All matrix products are one job, which accumulates the
/// gradient of each input.
pub(super) fn backward<const N: usize>(inputs: [ProjectedInput; N]) -> [InputGradients; N] {
    let mut buffers = inputs.each_ref().map(ProjectedInput::gradient_buffers);
    let work = inputs.iter().zip(&mut buffers);
    linear::backward(work.map(|(input, buffers)| input.kernel_arguments(buffers)));
    let mut buffers = buffers.into_iter();
    inputs.map(|input| input.into_gradients(buffers.next().expect("buffers of each input")))
}

/// Buffers for the gradients of an input, and of weight and bias of each of its projections.
struct GradientBuffers {
    dx: Option<Vec<f32>>,
    parameters: Vec<[Option<Vec<f32>>; 2]>,
}

impl ProjectedInput<'_> {
    fn gradient_buffers(&self) -> GradientBuffers {
        let (rows, width) = rows_and_width(&self.x);
        let of_projection = |projection: &Projection| {
            let shape = shape(&self.x, projection.weight);
            let sizes = [shape.output * shape.input, shape.output];
            std::array::from_fn(|i| projection.needs_gradient[i].then(|| buffer(sizes[i])))
        };
        GradientBuffers {
            dx: self.needs_gradient.then(|| buffer(rows * width)),
            parameters: self.projections.iter().map(of_projection).collect(),
        }
    }

    fn kernel_arguments<'a>(
        &'a self,
        buffers: &'a mut GradientBuffers,
    ) -> linear::InputBackward<'a> {
        let dx = buffers.dx.as_deref_mut();
        let projections = self.projections.iter().zip(&mut buffers.parameters);
        let projections =
            projections.map(|(projection, [dweight, dbias])| linear::LinearBackward {
                shape: shape(&self.x, projection.weight),
                dy: data(&projection.dy),
                weight: matrix(projection.weight),
                dweight: dweight.as_deref_mut(),
                dbias: dbias.as_deref_mut(),
            });
        linear::InputBackward {
            x: data(&self.x),
            dx: dx.map(|dx| (dx, Init::Zero)),
            projections: projections.collect(),
        }
    }

    /// The gradients as tensors. Input and output gradients are recycled.
    fn into_gradients(self, buffers: GradientBuffers) -> InputGradients {
        let parameters = self.projections.into_iter().zip(buffers.parameters);
        let parameters = parameters.map(|(projection, [dweight, dbias])| {
            let output = projection.weight.layout().shape()[0];
            recycle([projection.dy]);
            [
                dweight.map(|it| tensor_like(it, projection.weight)),
                dbias.map(|it| tensor(it, [output])),
            ]
        });
        let gradients = InputGradients {
            parameters: parameters.collect(),
            dx: buffers.dx.map(|dx| tensor_like(dx, &self.x)),
        };
        recycle([self.x]);
        gradients
    }
}
