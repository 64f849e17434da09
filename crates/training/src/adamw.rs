//! Adam with decoupled weight decay. Kingma and Ba 2014; Loshchilov and Hutter 2017.

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
        let gradients = gradients.into_vec();
        self.moments.resize(gradients.len(), None);
        let config = &self.config;
        let power = i32::try_from(self.step).unwrap_or(i32::MAX);
        let mut update = Update {
            rate: config.learning_rate * factor,
            first_correction: 1.0 - config.beta1.powi(power),
            second_correction: 1.0 - config.beta2.powi(power),
            config,
            gradients: gradients.into_iter(),
            moments: self.moments.iter_mut(),
        };
        model.map(&mut update)
    }
}

struct Update<'a> {
    config: &'a AdamWConfig,
    rate: f64,
    first_correction: f64,
    second_correction: f64,
    gradients: std::vec::IntoIter<Option<Tensor<1>>>,
    moments: std::slice::IterMut<'a, Option<Moments>>,
}

impl Update<'_> {
    fn step(
        &self,
        value: Tensor<1>,
        gradient: Tensor<1>,
        moments: &mut Option<Moments>,
        decay: f64,
    ) -> Tensor<1> {
        let AdamWConfig {
            beta1,
            beta2,
            epsilon,
            ..
        } = *self.config;
        let held = moments.take().unwrap_or_else(|| Moments {
            first: gradient.zeros_like(),
            second: gradient.zeros_like(),
        });
        let first = held.first * beta1 + gradient.clone() * (1.0 - beta1);
        let second = held.second * beta2 + gradient.square() * (1.0 - beta2);
        let spread = (second.clone() / self.second_correction).sqrt() + epsilon;
        let change = first.clone() * (self.rate / self.first_correction) / spread;
        *moments = Some(Moments { first, second });
        value * (1.0 - self.rate * decay) - change
    }
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let gradient = self.gradients.next().flatten();
        let moments = self.moments.next().expect("one entry per parameter");
        let Some(gradient) = gradient else {
            return param;
        };
        let decay = if D >= 2 { self.config.decay } else { 0.0 };
        param.map(|value| {
            let dims = value.dims();
            let flat = value.inner().reshape([dims.iter().product::<usize>()]);
            let updated = self.step(flat, gradient, moments, decay);
            Tensor::from_inner(updated.reshape(dims)).require_grad()
        })
    }
}
