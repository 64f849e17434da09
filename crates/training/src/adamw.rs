//! Adam with decoupled weight decay. Kingma and Ba 2014; Loshchilov and Hutter 2019.

use attentive_tensor::{AdamWState, AdamWStep, adamw};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::Gradients;

/// Settings of the optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// The peak learning rate.
    pub learning_rate: f64,
    /// Weight decay, of matrices and embeddings only, not of biases and norms.
    #[serde(default = "default_weight_decay")]
    pub weight_decay: f64,
    /// Decay rate of the first moment.
    #[serde(default = "default_beta1")]
    pub beta1: f64,
    /// Decay rate of the second moment.
    #[serde(default = "default_beta2")]
    pub beta2: f64,
    /// Added to the denominator for numerical stability.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// The maximum norm of the gradient; larger gradients are scaled down to it.
    #[serde(default = "default_max_grad_norm")]
    pub max_grad_norm: f64,
}

impl AdamWConfig {
    /// The defaults with this peak learning rate.
    pub fn new(learning_rate: f64) -> Self {
        Self {
            learning_rate,
            weight_decay: default_weight_decay(),
            beta1: default_beta1(),
            beta2: default_beta2(),
            epsilon: default_epsilon(),
            max_grad_norm: default_max_grad_norm(),
        }
    }
}

fn default_weight_decay() -> f64 {
    0.1
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.95
}

fn default_epsilon() -> f64 {
    1e-8
}

fn default_max_grad_norm() -> f64 {
    1.0
}

/// The optimizer and its state.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    /// Number of updates so far.
    step: u64,
    /// Per parameter, in the order of the model's fields.
    moments: Vec<Option<Moments>>,
}

#[derive(Clone, Debug)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The moments of one parameter, as data.
#[derive(Clone, Debug)]
pub struct MomentData {
    /// The mean gradient.
    pub first: TensorData,
    /// The mean squared gradient.
    pub second: TensorData,
}

impl AdamW {
    /// An optimizer without moments.
    pub fn new(config: &AdamWConfig) -> Self {
        Self {
            config: config.clone(),
            step: 0,
            moments: Vec::new(),
        }
    }

    /// An optimizer that resumes from saved moments.
    pub fn restored(
        config: &AdamWConfig,
        step: u64,
        moments: Vec<Option<MomentData>>,
        device: &Device,
    ) -> Self {
        let tensors = |data: MomentData| Moments {
            first: Tensor::from_data(data.first, device),
            second: Tensor::from_data(data.second, device),
        };
        Self {
            config: config.clone(),
            step,
            moments: moments.into_iter().map(|data| data.map(tensors)).collect(),
        }
    }

    /// The moments, as data.
    pub fn moments(&self) -> Vec<Option<MomentData>> {
        let data = |moments: &Moments| MomentData {
            first: moments.first.to_data(),
            second: moments.second.to_data(),
        };
        self.moments
            .iter()
            .map(|it| it.as_ref().map(data))
            .collect()
    }

    /// Updates `model` with the peak learning rate times `learning_rate_factor`.
    pub fn update<M: Module>(
        &mut self,
        model: M,
        gradients: Gradients,
        learning_rate_factor: f64,
    ) -> M {
        self.step += 1;
        let (gradients, gradient_scale) = gradients.into_parts();
        self.moments.resize(gradients.len(), None);
        let config = &self.config;
        let mut update = AdamWUpdate {
            step: AdamWStep {
                learning_rate: config.learning_rate * learning_rate_factor,
                beta1: config.beta1,
                beta2: config.beta2,
                epsilon: config.epsilon,
                weight_decay: config.weight_decay,
                step: self.step,
                gradient_scale,
            },
            gradients: gradients.into_iter(),
            moments: self.moments.iter_mut(),
        };
        model.map(&mut update)
    }
}

/// Updates each parameter that `map` visits, in the order of the model's fields.
struct AdamWUpdate<'a> {
    step: AdamWStep,
    gradients: std::vec::IntoIter<Option<Tensor<1>>>,
    moments: std::slice::IterMut<'a, Option<Moments>>,
}

impl ModuleMapper for AdamWUpdate<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let gradient = self.gradients.next().flatten();
        let moments = self.moments.next().expect("one entry per parameter");
        // Frozen parameters do not decay either.
        if !param.is_require_grad() {
            return param;
        }
        let weight_decay = if D >= 2 { self.step.weight_decay } else { 0.0 };
        let step = AdamWStep {
            weight_decay,
            ..self.step
        };
        param.map(|value| {
            let dims = value.dims();
            let value = value.inner().reshape([dims.iter().product::<usize>()]);
            // A parameter may have no gradient in a step, such as those of an expert without tokens: its gradient is then zero,
            // and its moments decay.
            let gradient = gradient.unwrap_or_else(|| value.zeros_like());
            let Moments { first, second } = moments.take().unwrap_or_else(|| Moments {
                first: gradient.zeros_like(),
                second: gradient.zeros_like(),
            });
            let state = AdamWState {
                value,
                first_moment: first,
                second_moment: second,
            };
            let AdamWState {
                value,
                first_moment: first,
                second_moment: second,
            } = adamw(&step, state, gradient);
            *moments = Some(Moments { first, second });
            Tensor::from_inner(value.reshape(dims)).require_grad()
        })
    }
}
