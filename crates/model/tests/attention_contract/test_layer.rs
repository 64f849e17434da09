//! A layer under test and its inputs.

use std::fmt::Display;
use std::ops::Range;

use attentive_model::attention::{
    Attention, AttentionConfig, AttentionInput, AttentionSpec, Memory, Role, Widths,
};
use attentive_model::{
    Cache, ConfigError, ForwardContext, Initializer, Purpose, Randomness, Recorder,
};
use attentive_testing::{Scale, assert_close, difference, ulps_of_sum};
use burn::tensor::{Device, Tensor, TensorData};

pub const BATCH: usize = 2;
pub const LENGTH: usize = 11;
pub const WIDTH: usize = 16;
/// The length of the memory of cross-attention.
pub const MEMORY: usize = 9;

pub const ROLES: [Role; 3] = [Role::Bidirectional, Role::Causal, Role::Cross];

/// A layer with its config and role.
pub struct TestLayer {
    pub layer: Attention,
    pub config: AttentionConfig,
    pub role: Role,
}

/// An output, and the weights that an observer saw; none if the kind has none.
pub struct Observed {
    pub output: Tensor<3>,
    pub weights: Option<Tensor<4>>,
}

/// Approximately normal values from a fixed generator, independent of the code under test.
pub fn noise<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let samples: Vec<f32> = (0..shape.iter().product())
        .map(|_| 2.0 * (uniform() + uniform() + uniform() - 1.5))
        .collect();
    Tensor::from_data(TensorData::new(samples, shape), device)
}

pub fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

/// The largest difference, infinite for NaN.
pub fn max_difference<const D: usize>(one: Tensor<D>, other: Tensor<D>) -> f64 {
    assert_eq!(one.dims(), other.dims());
    difference(&values(one), &values(other), Scale::One)
}

/// Fails unless outputs differ by far more than rounding errors.
#[track_caller]
pub fn assert_differs<const D: usize>(what: impl Display, one: Tensor<D>, other: Tensor<D>) {
    assert_eq!(one.dims(), other.dims(), "{what}");
    attentive_testing::assert_differs(what, &values(one), &values(other), Scale::One, 1e-3);
}

/// Fails unless two outputs are the same up to rounding: four sums (projections, scores, weighted values, output projection) of at
/// most 24 terms each, one after another.
///
/// Partial sums are about as large as the outputs, whose standard deviation is at most 2.6: that of the noise is one, and each of two
/// projections multiplies it by 1.6. So the scale is at most 4: a single output beyond does not make others less exact.
#[track_caller]
pub fn assert_same<const D: usize>(what: impl Display, found: Tensor<D>, expected: Tensor<D>) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    let (found, expected) = (values(found), values(expected));
    let largest = expected.iter().fold(0.0, |max: f32, it| max.max(it.abs()));
    let scale = Scale::Of(f64::from(largest.min(4.0)));
    assert_close(what, &found, &expected, scale, ulps_of_sum(4 * 24));
}

impl TestLayer {
    pub fn new(config: &AttentionConfig, role: Role, device: &Device) -> Result<Self, ConfigError> {
        let spec = AttentionSpec {
            init_std: 0.4,
            residual_std: 0.4,
            ..AttentionSpec::new(role, Widths::all(WIDTH), 24)
        };
        Ok(Self {
            layer: Attention::new(config, &spec, &mut Initializer::new(5, device))?,
            config: config.clone(),
            role,
        })
    }

    /// The layer of this JSON config.
    pub fn from_json(config: &str, role: Role, device: &Device) -> Self {
        let config: AttentionConfig = serde_json::from_str(config).unwrap();
        Self::new(&config, role, device).unwrap()
    }

    /// The memory of cross-attention.
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

    pub fn run(
        &self,
        x: Tensor<3>,
        memory: Option<Memory>,
        pass: &mut ForwardContext,
    ) -> Tensor<3> {
        let input = AttentionInput {
            queries: x,
            memory,
            layer: 0,
        };
        self.layer.forward(input, pass)
    }

    /// The output in a default context.
    pub fn output(&self, x: Tensor<3>) -> Tensor<3> {
        let memory = self.memory(&x.device());
        self.run(x, memory, &mut ForwardContext::default())
    }

    /// The output if only these keys are not padding.
    pub fn output_with_padding(
        &self,
        x: Tensor<3>,
        memory: Option<Memory>,
        non_padding: Vec<Range<usize>>,
    ) -> Tensor<3> {
        let mut pass = ForwardContext::default();
        let memory = match memory {
            Some(memory) => Some(Memory {
                non_padding: Some(non_padding),
                ..memory
            }),
            None => {
                pass.non_padding = Some(non_padding);
                None
            }
        };
        self.run(x, memory, &mut pass)
    }

    /// The output of passes of these lengths with a cache. The first `padding` positions of the last sequence are padding.
    pub fn output_with_cache(&self, x: Tensor<3>, lengths: &[usize], padding: usize) -> Tensor<3> {
        let memory = self.memory(&x.device());
        let mut cache = Cache::new();
        let mut start = 0;
        let mut outputs = Vec::new();
        for &length in lengths {
            let end = start + length;
            let non_padding = vec![0..end, padding.min(end)..end];
            let mut pass = ForwardContext {
                non_padding: (padding > 0).then_some(non_padding),
                cache: Some(&mut cache),
                ..ForwardContext::default()
            };
            let part = x.clone().narrow(1, start, length);
            outputs.push(self.run(part, memory.clone(), &mut pass));
            cache.advance(length);
            start = end;
        }
        Tensor::cat(outputs, 1)
    }

    /// The output with dropout from this seed.
    pub fn output_with_dropout(&self, x: Tensor<3>, seed: u64) -> Tensor<3> {
        let memory = self.memory(&x.device());
        let mut randomness = Randomness::new(Purpose::Dropout, seed, 0);
        let mut pass = ForwardContext {
            randomness: Some(&mut randomness),
            ..ForwardContext::default()
        };
        self.run(x, memory, &mut pass)
    }

    /// The weights, if the kind has them.
    pub fn weights(&self, x: Tensor<3>) -> Option<Tensor<4>> {
        self.observed(x).weights
    }

    /// The output and the weights that an observer sees.
    pub fn observed(&self, x: Tensor<3>) -> Observed {
        let input = AttentionInput {
            memory: self.memory(&x.device()),
            ..AttentionInput::self_attention(x, 0)
        };
        observed(&self.layer, input, None, None)
    }
}

/// The output of a layer and the weights that an observer sees, in a pass with this padding and these globals.
pub fn observed(
    layer: &Attention,
    input: AttentionInput,
    non_padding: Option<Vec<Range<usize>>>,
    globals: Option<Vec<Vec<usize>>>,
) -> Observed {
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let mut pass = ForwardContext {
        non_padding,
        globals,
        observer: Some(&mut recorder),
        ..ForwardContext::default()
    };
    let output = layer.forward(input, &mut pass);
    let weights = recorder.weights.pop().map(|(_, weights)| weights);
    Observed { output, weights }
}
