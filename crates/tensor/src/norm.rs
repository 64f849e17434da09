//! Normalizations over the last axis: layer (Ba et al. 2016) and root-mean-square (Zhang and Sennrich 2019), alone, of a
//! residual sum, and with what is normalized beside them.

use burn::tensor::Tensor;

use crate::exactly::Exactly;
use crate::fused;

/// Which normalization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `(x - mean) / sqrt(variance + epsilon) · weight + bias`
    Layer,
    /// `x / sqrt(mean of x² + epsilon) · weight + bias`; models as a rule give it no bias
    Rms,
}

/// The learned scale and shift, and what keeps a norm from dividing by zero.
#[derive(Clone, Debug)]
pub struct NormOperands {
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
pub fn norm<const D: usize>(x: Tensor<D>, operands: NormOperands) -> Tensor<D> {
    sum_and_norm("norm", x, None, operands).1
}

/// `x` and its norm: on the way back, the gradients of both meet in one pass. For norms before a sublayer.
///
/// # Panics
/// When the last axis of `x` or the bias is not of the weight's size.
pub fn norm_beside<const D: usize>(x: Tensor<D>, operands: NormOperands) -> [Tensor<D>; 2] {
    sum_and_norm("norm_beside", x, None, operands).into()
}

/// The norm of `x + branch`. For norms after a sublayer.
///
/// # Panics
/// When the shapes differ, or the last axis or the bias is not of the weight's size.
pub fn norm_of_sum<const D: usize>(
    x: Tensor<D>,
    branch: Tensor<D>,
    operands: NormOperands,
) -> Tensor<D> {
    sum_and_norm("norm_of_sum", x, Some(branch), operands).1
}

/// `x + branch` and its norm. For norms before a sublayer that follows another.
///
/// # Panics
/// When the shapes differ, or the last axis or the bias is not of the weight's size.
pub fn norm_beside_sum<const D: usize>(
    x: Tensor<D>,
    branch: Tensor<D>,
    operands: NormOperands,
) -> [Tensor<D>; 2] {
    sum_and_norm("norm_beside_sum", x, Some(branch), operands).into()
}

/// `x + y`, element by element.
///
/// # Panics
/// When the shapes differ.
pub fn add<const D: usize>(x: Tensor<D>, y: Tensor<D>) -> Tensor<D> {
    assert_eq!(
        x.dims(),
        y.dims(),
        "add: {:?} does not fit {:?}",
        x.dims(),
        y.dims()
    );
    if fused::has_kernels(&x) {
        return fused::add(x, y);
    }
    x + y
}

fn sum_and_norm<const D: usize>(
    operation: &str,
    x: Tensor<D>,
    branch: Option<Tensor<D>>,
    operands: NormOperands,
) -> (Tensor<D>, Tensor<D>) {
    let NormOperands {
        kind,
        weight,
        bias,
        epsilon,
    } = operands;
    if let Some(branch) = &branch {
        assert_eq!(
            x.dims(),
            branch.dims(),
            "{operation}: {:?} does not fit {:?}",
            x.dims(),
            branch.dims()
        );
    }
    let (dims, width) = (x.dims(), weight.dims()[0]);
    assert_eq!(
        dims[D - 1],
        width,
        "{operation}: input {dims:?} does not fit weight [{width}]"
    );
    if let Some(bias) = &bias {
        assert_eq!(
            bias.dims(),
            [width],
            "{operation}: bias {:?} does not fit weight [{width}]",
            bias.dims()
        );
    }
    if fused::has_kernels(&x) {
        return fused::norm(x, branch, weight, bias, kind, epsilon);
    }
    let sum = match branch {
        Some(branch) => x + branch,
        None => x,
    };
    let centred = match kind {
        NormKind::Layer => sum.clone() - sum.clone().mean_dim(D - 1),
        NormKind::Rms => sum.clone(),
    };
    let squares = centred.clone().square().mean_dim(D - 1);
    let last_axis = |it: Tensor<1>| {
        let mut dims = [1; D];
        dims[D - 1] = width;
        it.reshape(Exactly(dims))
    };
    let normed = centred / (squares + epsilon).sqrt() * last_axis(weight);
    let normed = match bias {
        Some(bias) => normed + last_axis(bias),
        None => normed,
    };
    (sum, normed)
}
