//! A bias on the scores: how the kernels read it, and its gradient.

use attentive_kernels::attention::{Bias, BiasLayout, Shape};
use attentive_kernels::elementwise;
use burn::backend::flex::FlexTensor;

use super::{buffer, data, is_present, release, tensor_like};

/// A bias as the kernel reads it, with stride zero along broadcast axes; none if it is absent.
pub(super) fn broadcast_bias(bias: &FlexTensor) -> Option<Bias<'_>> {
    if !is_present(bias) {
        return None;
    }
    let (layout, [batch, heads, size]) = bias_layout(bias);
    Some(Bias {
        data: data(bias),
        layout,
        batch_stride: if batch == 1 { 0 } else { heads * size },
        head_stride: if heads == 1 { 0 } else { size },
    })
}

/// The kind of a bias, from its number of axes; its batch, its heads, and its elements per head.
fn bias_layout(bias: &FlexTensor) -> (BiasLayout, [usize; 3]) {
    match bias.layout().shape()[..] {
        [batch, heads, queries, keys] => (BiasLayout::PerPair, [batch, heads, queries * keys]),
        [batch, heads, keys] => (BiasLayout::PerKey, [batch, heads, keys]),
        [heads, distances] => (BiasLayout::PerDistance, [1, heads, distances]),
        ref other => panic!("attention: a bias of {} axes", other.len()),
    }
}

/// A buffer for the gradient of a bias, per batch and head.
pub(super) fn bias_gradient_buffer(shape: &Shape, bias: &FlexTensor) -> Vec<f32> {
    let (_, [.., size]) = bias_layout(bias);
    buffer(shape.batch * shape.heads * size)
}

/// Sums the per-head gradients of a bias over its broadcast axes.
pub(super) fn reduce_bias_gradient(
    gradient: Vec<f32>,
    shape: &Shape,
    bias: &FlexTensor,
) -> FlexTensor {
    let (_, [batches, heads, size]) = bias_layout(bias);
    let mut sums = vec![0.0; batches * heads * size];
    for (index, gradient) in gradient.chunks_exact(size.max(1)).enumerate() {
        let (batch, head) = (index / shape.heads % batches, index % shape.heads % heads);
        let start = (batch * heads + head) * size;
        elementwise::add_assign(&mut sums[start..start + size], gradient);
    }
    release(gradient);
    tensor_like(sums, bias)
}
