//! A layer under test, and what it is run on.

use std::ops::Range;

use attentive_model::{
    Attention, AttentionConfig, AttentionInput, AttentionOutput, AttentionSite, Cache, ConfigError,
    Initializer, Memory, Observer, Pass, Place, Purpose, Randomness, Role, Widths,
};
use burn::tensor::{Device, Tensor, TensorData};

pub const BATCH: usize = 2;
pub const LENGTH: usize = 11;
pub const WIDTH: usize = 16;
/// The other sequence of cross-attention.
pub const MEMORY: usize = 9;

/// A layer in its role.
pub struct Setting {
    pub layer: Attention,
    pub config: AttentionConfig,
    pub role: Role,
}

/// Numbers of a fixed generator, about normal: tests must not depend on anything else.
pub fn noise<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let numbers: Vec<f32> = (0..shape.iter().product())
        .map(|_| 2.0 * (uniform() + uniform() + uniform() - 1.5))
        .collect();
    Tensor::from_data(TensorData::new(numbers, shape), device)
}

pub fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

/// The largest difference, NaN told as infinity.
pub fn gap<const D: usize>(one: Tensor<D>, other: Tensor<D>) -> f32 {
    assert_eq!(one.dims(), other.dims());
    numbers(one - other).into_iter().fold(0.0, |most, it| {
        if it.is_nan() {
            f32::INFINITY
        } else {
            most.max(it.abs())
        }
    })
}

impl Setting {
    pub fn new(config: &AttentionConfig, role: Role, device: &Device) -> Result<Self, ConfigError> {
        let place = Place {
            deviation: 0.4,
            residual_deviation: 0.4,
            ..Place::new(role, Widths::all(WIDTH), 24)
        };
        Ok(Self {
            layer: Attention::new(config, &place, &mut Initializer::new(5, device))?,
            config: config.clone(),
            role,
        })
    }

    /// What the layer looks at, where that is another sequence.
    pub fn memory(&self, device: &Device) -> Option<Memory> {
        (self.role == Role::Cross).then(|| {
            let x = noise([BATCH, MEMORY, WIDTH], 8, device);
            Memory::new(if device.is_autodiff() {
                x.require_grad()
            } else {
                x
            })
        })
    }

    pub fn run(&self, x: Tensor<3>, memory: Option<Memory>, pass: &mut Pass) -> AttentionOutput {
        let input = AttentionInput {
            queries: x,
            memory,
            layer: 0,
        };
        self.layer.forward(input, pass)
    }

    /// The output, with nothing beside the pass.
    pub fn output(&self, x: Tensor<3>) -> Tensor<3> {
        let memory = self.memory(&x.device());
        self.run(x, memory, &mut Pass::default()).output
    }

    /// The output when only these positions of what is looked at are real.
    pub fn output_of_real(
        &self,
        x: Tensor<3>,
        memory: Option<Memory>,
        real: Vec<Range<usize>>,
    ) -> Tensor<3> {
        let mut pass = Pass::default();
        let memory = match memory {
            Some(memory) => Some(Memory {
                real: Some(real),
                ..memory
            }),
            None => {
                pass.real = Some(real);
                None
            }
        };
        self.run(x, memory, &mut pass).output
    }

    /// The output of positions that come in pieces of these sizes. The first `padded` positions of the last sequence are
    /// none.
    pub fn output_in_pieces(&self, x: Tensor<3>, pieces: &[usize], padded: usize) -> Tensor<3> {
        let memory = self.memory(&x.device());
        let mut cache = Cache::new();
        let mut start = 0;
        let mut outputs = Vec::new();
        for &piece in pieces {
            let end = start + piece;
            let real = vec![0..end, padded.min(end)..end];
            let mut pass = Pass {
                real: (padded > 0).then_some(real),
                cache: Some(&mut cache),
                ..Pass::default()
            };
            let part = x.clone().narrow(1, start, piece);
            outputs.push(self.run(part, memory.clone(), &mut pass).output);
            cache.advance(piece);
            start = end;
        }
        Tensor::cat(outputs, 1)
    }

    /// The output with dropout drawn from `seed`.
    pub fn output_with_dropout(&self, x: Tensor<3>, seed: u64) -> Tensor<3> {
        let memory = self.memory(&x.device());
        let mut randomness = Randomness::new(Purpose::Dropout, seed, 0);
        let mut pass = Pass {
            randomness: Some(&mut randomness),
            ..Pass::default()
        };
        self.run(x, memory, &mut pass).output
    }

    /// The weights, if the kind has them.
    pub fn weights(&self, x: Tensor<3>) -> Option<Tensor<4>> {
        self.observed(x).weights
    }

    /// Output and weights, when somebody looks at the weights.
    pub fn observed(&self, x: Tensor<3>) -> AttentionOutput {
        let memory = self.memory(&x.device());
        let mut asker = Asker;
        let mut pass = Pass {
            observer: Some(&mut asker),
            ..Pass::default()
        };
        self.run(x, memory, &mut pass)
    }
}

/// Asks for weights and leaves them as they are.
pub struct Asker;

impl Observer for Asker {
    fn wants_weights(&self, _site: AttentionSite) -> bool {
        true
    }
}
