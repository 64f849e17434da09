//! Initial values of parameters, lazy: a model that is about to be loaded never draws them.

use attentive_tensor::{Purpose, Randomness};
use burn::module::{Param, ParamId};
use burn::tensor::{Device, Shape, Tensor, TensorData};
use rand::Rng;

/// Makes the parameters of a model; the values are a function of the seed and of the order of creation.
#[derive(Debug)]
pub struct Initializer {
    randomness: Randomness,
    device: Device,
}

impl Initializer {
    /// Parameters on `device`, drawn from `seed`.
    pub fn new(seed: u64, device: &Device) -> Self {
        Self {
            randomness: Randomness::new(Purpose::Weights, seed, 0),
            device: device.clone(),
        }
    }

    /// Normal values around zero.
    pub fn normal<const D: usize>(
        &mut self,
        shape: [usize; D],
        deviation: f64,
    ) -> Param<Tensor<D>> {
        let numbers = self.randomness.next_normal(deviation);
        self.lazy(shape, move |count| rounded(numbers.take(count)))
    }

    /// The same value everywhere.
    pub fn constant<const D: usize>(&mut self, shape: [usize; D], value: f32) -> Param<Tensor<D>> {
        self.lazy(shape, move |count| vec![value; count])
    }

    /// Normal values of deviation one that training leaves as they are. They are a function of a seed of their own: what
    /// is drawn before them does not change them.
    pub fn frozen_normal<const D: usize>(&self, shape: [usize; D], seed: u64) -> Param<Tensor<D>> {
        let numbers = Randomness::new(Purpose::Frozen, seed, 0).next_normal(1.0);
        let param = self.lazy(shape, move |count| rounded(numbers.take(count)));
        param.set_require_grad(false)
    }

    /// Numbers that training leaves as they are, made by `draw`.
    pub fn frozen<const D: usize>(
        &self,
        shape: [usize; D],
        draw: impl FnOnce(&Device) -> Tensor<D> + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        Param::uninitialized(
            ParamId::new(),
            move |device, require_grad| draw(device).set_require_grad(require_grad),
            self.device.clone(),
            true,
            Shape::from(shape),
        )
        .set_require_grad(false)
    }

    /// A seed for what a layer draws by itself.
    pub fn seed(&mut self) -> u64 {
        self.randomness.next_generator().random()
    }

    fn lazy<const D: usize>(
        &self,
        shape: [usize; D],
        draw: impl FnOnce(usize) -> Vec<f32> + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        Param::uninitialized(
            ParamId::new(),
            move |device, require_grad| {
                let data = TensorData::new(draw(shape.iter().product()), shape);
                Tensor::from_data(data, device).set_require_grad(require_grad)
            },
            self.device.clone(),
            true,
            Shape::from(shape),
        )
    }
}

fn rounded(numbers: impl Iterator<Item = f64>) -> Vec<f32> {
    numbers.map(|number| number as f32).collect()
}
