//! One update of AdamW (Loshchilov and Hutter 2017) and the length of gradients, in place where memory allows.

use attentive_kernels::adamw as kernels;
use burn::backend::flex::{Flex, FlexTensor};
use burn::tensor::Tensor;

use crate::fused;

/// The numbers of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// The learning rate.
    pub rate: f64,
    /// Memory of the mean gradient.
    pub beta1: f64,
    /// Memory of the mean squared gradient.
    pub beta2: f64,
    /// Keeps the division finite.
    pub epsilon: f64,
    /// Weight decay, times the rate.
    pub decay: f64,
    /// How many updates were made, with this one.
    pub step: u64,
    /// Multiplies the gradient: what clipping leaves of it.
    pub gradient_scale: f64,
}

/// A parameter and its memory, flat.
#[derive(Clone, Debug)]
pub struct AdamWState {
    /// The parameter.
    pub value: Tensor<1>,
    /// The mean gradient.
    pub first: Tensor<1>,
    /// The mean squared gradient.
    pub second: Tensor<1>,
}

/// The state after one update. None of the tensors may be part of an autodiff graph.
///
/// # Panics
/// When the tensors have different lengths.
pub fn adamw(step: &AdamWStep, state: AdamWState, gradient: Tensor<1>) -> AdamWState {
    for (name, other) in [
        ("gradient", &gradient),
        ("first", &state.first),
        ("second", &state.second),
    ] {
        assert_eq!(
            state.value.dims(),
            other.dims(),
            "adamw: value {:?} does not fit {name} {:?}",
            state.value.dims(),
            other.dims()
        );
    }
    let power = i32::try_from(step.step).unwrap_or(i32::MAX);
    let first_correction = 1.0 - step.beta1.powi(power);
    let second_correction = 1.0 - step.beta2.powi(power);
    let AdamWState {
        value,
        first,
        second,
    } = state;
    if fused::has_kernels(&value) {
        let kernel = kernels::AdamW {
            rate: step.rate,
            beta1: step.beta1,
            beta2: step.beta2,
            epsilon: step.epsilon,
            decay: step.decay,
            first_correction,
            second_correction,
            gradient_scale: step.gradient_scale,
        };
        let [mut value, mut first, mut second] = [value, first, second].map(primitive);
        let gradient = primitive(gradient);
        // Storage that nobody shares is written in place; shared storage is copied first.
        kernel.update(
            value.storage_mut(),
            gradient.as_slice().expect("gradients are dense"),
            first.storage_mut(),
            second.storage_mut(),
        );
        fused::recycle([gradient]);
        let [value, first, second] = [value, first, second].map(Tensor::from_primitive::<Flex>);
        return AdamWState {
            value,
            first,
            second,
        };
    }
    let gradient = gradient * step.gradient_scale;
    let first = first * step.beta1 + gradient.clone() * (1.0 - step.beta1);
    let second = second * step.beta2 + gradient.square() * (1.0 - step.beta2);
    let spread = (second.clone() / second_correction).sqrt() + step.epsilon;
    let change = first.clone() * (step.rate / first_correction) / spread;
    AdamWState {
        value: value * (1.0 - step.rate * step.decay) - change,
        first,
        second,
    }
}

/// The sum of the squares of all numbers.
pub fn sum_of_squares(x: &Tensor<1>) -> f64 {
    if fused::has_kernels(x) {
        let x = primitive(x.clone());
        return kernels::sum_of_squares(x.as_slice().expect("dense"));
    }
    f64::from(x.clone().square().sum().into_scalar::<f32>())
}

/// The numbers of a flat tensor on the CPU, following each other from the start of their storage.
fn primitive(x: Tensor<1>) -> FlexTensor {
    let x = x
        .try_into_primitive::<Flex>()
        .expect("the tensor is on the CPU, without autodiff");
    let whole = x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements();
    if whole {
        x
    } else {
        FlexTensor::from_data(x.into_data())
    }
}
