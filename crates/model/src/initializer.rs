//! Initial values of parameters, sampled lazily: a model that is about to be loaded never samples them.

use attentive_tensor::{Purpose, Randomness};
use burn::module::{Param, ParamId};
use burn::tensor::{Device, Shape, Tensor, TensorData};
use rand::Rng;

/// Creates the parameters of a model. Values are a function of the seed and the order of creation.
#[derive(Debug)]
pub struct Initializer {
    randomness: Randomness,
    device: Device,
}

impl Initializer {
    /// Parameters on `device`, initialized from `seed`.
    pub fn new(seed: u64, device: &Device) -> Self {
        Self {
            randomness: Randomness::new(Purpose::Weights, seed, 0),
            device: device.clone(),
        }
    }

    /// Normal values of mean zero.
    pub fn normal<const D: usize>(&mut self, shape: [usize; D], std: f64) -> Param<Tensor<D>> {
        let samples = self.randomness.next_normal(std);
        self.lazy(shape, move |count| to_f32(samples.take(count)))
    }

    /// The same value everywhere.
    pub fn constant<const D: usize>(&mut self, shape: [usize; D], value: f32) -> Param<Tensor<D>> {
        self.lazy(shape, move |count| vec![value; count])
    }

    /// These values, the last axis fastest.
    pub fn values<const D: usize>(
        &mut self,
        shape: [usize; D],
        values: Vec<f32>,
    ) -> Param<Tensor<D>> {
        self.lazy(shape, move |_| values)
    }

    /// Standard normal values that are not trained. They are a function of their own seed, independent of the order of creation.
    pub fn frozen_normal<const D: usize>(&self, shape: [usize; D], seed: u64) -> Param<Tensor<D>> {
        let samples = Randomness::new(Purpose::Frozen, seed, 0).next_normal(1.0);
        let param = self.lazy(shape, move |count| to_f32(samples.take(count)));
        param.set_require_grad(false)
    }

    /// Values from `init` that are not trained.
    pub fn frozen<const D: usize>(
        &self,
        shape: [usize; D],
        init: impl FnOnce(&Device) -> Tensor<D> + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        Param::uninitialized(
            ParamId::new(),
            move |device, require_grad| init(device).set_require_grad(require_grad),
            self.device.clone(),
            true,
            Shape::from(shape),
        )
        .set_require_grad(false)
    }

    /// A seed for a layer's own random numbers.
    pub fn seed(&mut self) -> u64 {
        self.randomness.next_generator().random()
    }

    fn lazy<const D: usize>(
        &self,
        shape: [usize; D],
        init: impl FnOnce(usize) -> Vec<f32> + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        Param::uninitialized(
            ParamId::new(),
            move |device, require_grad| {
                let data = TensorData::new(init(shape.iter().product()), shape);
                Tensor::from_data(data, device).set_require_grad(require_grad)
            },
            self.device.clone(),
            true,
            Shape::from(shape),
        )
    }
}

fn to_f32(values: impl Iterator<Item = f64>) -> Vec<f32> {
    values.map(|value| value as f32).collect()
}
