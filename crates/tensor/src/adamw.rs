//! One step of AdamW (Loshchilov and Hutter 2019), in place unless storage is shared, and the squared norm of gradients.

use attentive_kernels::adamw as kernels;
use burn::backend::flex::{Flex, FlexTensor};
use burn::tensor::Tensor;

use crate::fused;

/// The hyperparameters of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// The learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub epsilon: f64,
    /// Decoupled weight decay; multiplied by the learning rate.
    pub weight_decay: f64,
    /// The number of this step, from one.
    pub step: u64,
    /// Multiplies the gradient, for clipping.
    pub gradient_scale: f64,
}

/// A parameter and its moments, flat.
#[derive(Clone, Debug)]
pub struct AdamWState {
    /// The parameter.
    pub value: Tensor<1>,
    /// The first moment: the moving average of the gradient.
    pub first_moment: Tensor<1>,
    /// The second moment: the moving average of the squared gradient.
    pub second_moment: Tensor<1>,
}

/// The state after one step. None of the tensors may be part of an autodiff graph.
///
/// # Panics
/// When the tensors have different lengths.
pub fn adamw(step: &AdamWStep, state: AdamWState, gradient: Tensor<1>) -> AdamWState {
    for (name, other) in [
        ("gradient", &gradient),
        ("first_moment", &state.first_moment),
        ("second_moment", &state.second_moment),
    ] {
        assert_eq!(
            state.value.dims(),
            other.dims(),
            "adamw: value {:?} does not match {name} {:?}",
            state.value.dims(),
            other.dims()
        );
    }
    let power = i32::try_from(step.step).unwrap_or(i32::MAX);
    let bias_correction1 = 1.0 - step.beta1.powi(power);
    let bias_correction2 = 1.0 - step.beta2.powi(power);
    let AdamWState {
        value,
        first_moment,
        second_moment,
    } = state;
    if fused::has_kernels(&value) {
        let kernel = kernels::AdamW {
            learning_rate: step.learning_rate,
            beta1: step.beta1,
            beta2: step.beta2,
            epsilon: step.epsilon,
            weight_decay: step.weight_decay,
            bias_correction1,
            bias_correction2,
            gradient_scale: step.gradient_scale,
        };
        let [mut value, mut first_moment, mut second_moment] =
            [value, first_moment, second_moment].map(primitive);
        let gradient = primitive(gradient);
        // In place; shared storage is copied first.
        kernel.update(
            value.storage_mut(),
            gradient.as_slice().expect("contiguous"),
            first_moment.storage_mut(),
            second_moment.storage_mut(),
        );
        fused::recycle([gradient]);
        let [value, first_moment, second_moment] =
            [value, first_moment, second_moment].map(Tensor::from_primitive::<Flex>);
        return AdamWState {
            value,
            first_moment,
            second_moment,
        };
    }
    let gradient = gradient * step.gradient_scale;
    let first_moment = first_moment * step.beta1 + gradient.clone() * (1.0 - step.beta1);
    let second_moment = second_moment * step.beta2 + gradient.square() * (1.0 - step.beta2);
    let denominator = (second_moment.clone() / bias_correction2).sqrt() + step.epsilon;
    let update = first_moment.clone() * (step.learning_rate / bias_correction1) / denominator;
    AdamWState {
        value: value * (1.0 - step.learning_rate * step.weight_decay) - update,
        first_moment,
        second_moment,
    }
}

/// The sum of the squares of all elements.
pub fn sum_of_squares(x: &Tensor<1>) -> f64 {
    if fused::has_kernels(x) {
        let x = primitive(x.clone());
        return kernels::sum_of_squares(x.as_slice().expect("contiguous"));
    }
    f64::from(x.clone().square().sum().into_scalar::<f32>())
}

/// A flat CPU tensor that is contiguous and owns its whole storage.
fn primitive(x: Tensor<1>) -> FlexTensor {
    let x = x
        .try_into_primitive::<Flex>()
        .expect("the tensor is on the CPU, without autodiff");
    let owns_storage = x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements();
    if owns_storage {
        x
    } else {
        FlexTensor::from_data(x.into_data())
    }
}
