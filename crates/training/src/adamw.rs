//! Adam with decoupled weight decay. Kingma and Ba 2014; Loshchilov and Hutter 2017.

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
    /// Weight decay; only matrices and embeddings decay, never biases and norms.
    #[serde(default = "default_decay")]
    pub decay: f64,
    /// Memory of the mean gradient.
    #[serde(default = "default_beta1")]
    pub beta1: f64,
    /// Memory of the mean squared gradient.
    #[serde(default = "default_beta2")]
    pub beta2: f64,
    /// Keeps the division finite.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// The longest gradient; longer ones are shortened to it.
    #[serde(default = "default_clip")]
    pub clip: f64,
}

fn default_decay() -> f64 {
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

fn default_clip() -> f64 {
    1.0
}

/// The optimizer and its memory.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    /// How many updates were made.
    step: u64,
    /// Per parameter, in the order of the model's fields: means of the gradient and of its square.
    moments: Vec<Option<Moments>>,
}

#[derive(Clone, Debug)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The memory of one parameter, as data.
#[derive(Clone, Debug)]
pub struct MomentData {
    /// The mean gradient.
    pub first: TensorData,
    /// The mean squared gradient.
    pub second: TensorData,
}

impl AdamW {
    /// An optimizer that has seen nothing.
    pub fn new(config: &AdamWConfig) -> Self {
        Self {
            config: config.clone(),
            step: 0,
            moments: Vec::new(),
        }
    }

    /// An optimizer that goes on from a saved memory.
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

    /// The memory, as data.
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

    /// One update of `model` with the peak rate times `factor`.
    pub fn update<M: Module>(&mut self, model: M, gradients: Gradients, factor: f64) -> M {
        self.step += 1;
        let (gradients, gradient_scale) = gradients.into_parts();
        self.moments.resize(gradients.len(), None);
        let config = &self.config;
        let mut update = Update {
            step: AdamWStep {
                rate: config.learning_rate * factor,
                beta1: config.beta1,
                beta2: config.beta2,
                epsilon: config.epsilon,
                decay: config.decay,
                step: self.step,
                gradient_scale,
            },
            gradients: gradients.into_iter(),
            moments: self.moments.iter_mut(),
        };
        model.map(&mut update)
    }
}

struct Update<'a> {
    step: AdamWStep,
    gradients: std::vec::IntoIter<Option<Tensor<1>>>,
    moments: std::slice::IterMut<'a, Option<Moments>>,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let gradient = self.gradients.next().flatten();
        let moments = self.moments.next().expect("one entry per parameter");
        // What was drawn once and is never trained does not decay either.
        if !param.is_require_grad() {
            return param;
        }
        let decay = if D >= 2 { self.step.decay } else { 0.0 };
        let step = AdamWStep { decay, ..self.step };
        param.map(|value| {
            let dims = value.dims();
            let value = value.inner().reshape([dims.iter().product::<usize>()]);
            // The loss need not depend on a parameter in every step: an expert that no token chose. Its gradient is zero
            // then, and its memory fades like any other.
            let gradient = gradient.unwrap_or_else(|| value.zeros_like());
            let Moments { first, second } = moments.take().unwrap_or_else(|| Moments {
                first: gradient.zeros_like(),
                second: gradient.zeros_like(),
            });
            let state = AdamWState {
                value,
                first,
                second,
            };
            let AdamWState {
                value,
                first,
                second,
            } = adamw(&step, state, gradient);
            *moments = Some(Moments { first, second });
            Tensor::from_inner(value.reshape(dims)).require_grad()
        })
    }
}
