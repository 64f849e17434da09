//! Linear map with the weight kept `[output, input]`, as checkpoints store it.

use burn::tensor::Tensor;

use crate::fused;

/// `x · weightᵀ + bias` along the last axis of `x`.
///
/// # Panics
/// When the last axis of `x` is not the weight's input size.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let mut dims = x.dims();
    let [output, input] = weight.dims();
    assert_eq!(
        dims[D - 1],
        input,
        "linear: input {dims:?} does not fit weight {:?} [output, input]",
        [output, input]
    );
    // One flat product of all rows: a batched product would broadcast the weight per batch.
    let rows = dims[..D - 1].iter().product::<usize>();
    let x = x.reshape([rows, input]);
    let y = if fused::has_kernels(&x) {
        fused::linear(x, weight, bias)
    } else {
        composed(x, weight, bias)
    };
    dims[D - 1] = output;
    y.reshape(dims)
}

fn composed(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let y = x.matmul(weight.transpose());
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}
