//! Linear map with the weight kept `[output, input]`, as checkpoints store it.

use burn::tensor::Tensor;

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
    let y = x.reshape([rows, input]).matmul(weight.transpose());
    let y = match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    };
    dims[D - 1] = output;
    y.reshape(dims)
}
