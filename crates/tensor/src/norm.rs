//! LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) over the last axis, alone or fused with a residual
//! addition.

use burn::tensor::Tensor;

use crate::exact_dims::ExactDims;
use crate::fused;

/// Which normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `(x - mean) / sqrt(variance + epsilon) · weight + bias`
    Layer,
    /// `x / sqrt(mean of x² + epsilon) · weight + bias`; models as a rule give it no bias
    Rms,
}

/// The kind of norm, its learned scale and shift, and its epsilon.
#[derive(Clone, Debug)]
pub struct NormParameters {
    /// Which normalization.
    pub kind: NormKind,
    /// The scale, `[width]`.
    pub weight: Tensor<1>,
    /// The shift, `[width]`.
    pub bias: Option<Tensor<1>>,
    /// Added to the variance or mean square.
    pub epsilon: f64,
}

/// The norm of `x`.
///
/// # Panics
/// When the last axis of `x` or the bias is not of the weight's size.
pub fn norm<const D: usize>(x: Tensor<D>, parameters: NormParameters) -> Tensor<D> {
    let [_, y] = sum_with_norm("norm", x, None, parameters);
    y
}

/// `x` and its norm, for pre-norm residual blocks: the backward pass sums the gradients of both in one pass.
///
/// # Panics
/// When the last axis of `x` or the bias is not of the weight's size.
pub fn norm_with_input<const D: usize>(x: Tensor<D>, parameters: NormParameters) -> [Tensor<D>; 2] {
    sum_with_norm("norm_with_input", x, None, parameters)
}

/// The norm of `x + branch`, for post-norm residual blocks.
///
/// # Panics
/// When the shapes differ, or the last axis or the bias is not of the weight's size.
pub fn add_norm<const D: usize>(
    x: Tensor<D>,
    branch: Tensor<D>,
    parameters: NormParameters,
) -> Tensor<D> {
    let [_, y] = sum_with_norm("add_norm", x, Some(branch), parameters);
    y
}

/// `x + branch` and its norm, for pre-norm residual blocks: the addition of one block is fused with the norm of the next.
///
/// # Panics
/// When the shapes differ, or the last axis or the bias is not of the weight's size.
pub fn add_norm_with_sum<const D: usize>(
    x: Tensor<D>,
    branch: Tensor<D>,
    parameters: NormParameters,
) -> [Tensor<D>; 2] {
    sum_with_norm("add_norm_with_sum", x, Some(branch), parameters)
}

/// `x + y`, element by element.
///
/// # Panics
/// When the shapes differ.
pub fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    assert_eq!(
        x.dims(),
        y.dims(),
        "add: {:?} does not match {:?}",
        x.dims(),
        y.dims()
    );
    if fused::has_kernels(&x) {
        return fused::add(x, y);
    }
    x + y
}

fn sum_with_norm<const D: usize>(
    operation: &str,
    x: Tensor<D>,
    branch: Option<Tensor<D>>,
    parameters: NormParameters,
) -> [Tensor<D>; 2] {
    if let Some(branch) = &branch {
        assert_eq!(
            x.dims(),
            branch.dims(),
            "{operation}: {:?} does not match {:?}",
            x.dims(),
            branch.dims()
        );
    }
    let (dims, width) = (x.dims(), parameters.weight.dims()[0]);
    assert_eq!(
        dims[D - 1],
        width,
        "{operation}: input {dims:?} does not match weight [{width}]"
    );
    if let Some(bias) = &parameters.bias {
        assert_eq!(
            bias.dims(),
            [width],
            "{operation}: bias {:?} does not match weight [{width}]",
            bias.dims()
        );
    }
    if fused::has_kernels(&x) {
        return fused::add_norm(x, branch, parameters);
    }
    let NormParameters {
        kind,
        weight,
        bias,
        epsilon,
    } = parameters;
    let sum = match branch {
        Some(branch) => x + branch,
        None => x,
    };
    let centred = match kind {
        NormKind::Layer => sum.clone() - sum.clone().mean_dim(D - 1),
        NormKind::Rms => sum.clone(),
    };
    let mean_square = centred.clone().square().mean_dim(D - 1);
    let last_axis = |it: Tensor<1>| {
        let mut dims = [1; D];
        dims[D - 1] = width;
        it.reshape(ExactDims(dims))
    };
    let normed = centred / (mean_square + epsilon).sqrt() * last_axis(weight);
    let normed = match bias {
        Some(bias) => normed + last_axis(bias),
        None => normed,
    };
    [sum, normed]
}
