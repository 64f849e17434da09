//! One vector for a whole sequence.

use std::ops::Range;

use attentive_tensor::{Activation, activate};
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::size;
use crate::{ConfigError, Initializer, Linear, ModelConfig};

/// Settings of a vector for the whole sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolerConfig {
    /// What it is taken from.
    pub from: PooledFrom,
    /// What it goes through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<PoolerMap>,
}

/// What the vector of a sequence is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PooledFrom {
    /// The first position, whatever it is.
    First,
    /// The last position that is no padding.
    Last,
    /// The mean of all positions that are no padding.
    Mean,
}

/// A map and its activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolerMap {
    /// Width of the result; the model's unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// After the map; the hyperbolic tangent unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
}

impl PoolerConfig {
    /// Whether the settings can work.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self.map.as_ref().and_then(|map| map.width) {
            Some(width) => size("pooler.map.width", width),
            None => Ok(()),
        }
    }

    /// Width of the vector in `model`.
    pub fn width(&self, model: &ModelConfig) -> usize {
        match &self.map {
            Some(map) => map.width.unwrap_or(model.width),
            None => model.states_width(),
        }
    }

    /// The same settings with implied sizes written out.
    pub(crate) fn canonical(&self, width: usize) -> Self {
        let mut config = self.clone();
        if let Some(map) = &mut config.map {
            map.width = Some(map.width.unwrap_or(width));
        }
        config
    }
}

/// Makes one vector of a sequence.
#[derive(Module, Debug)]
pub struct Pooler {
    map: Option<Linear>,
    #[module(skip)]
    config: PoolerConfig,
}

impl Pooler {
    /// Builds the pooler of `model`.
    pub fn new(config: &PoolerConfig, model: &ModelConfig, initial: &mut Initializer) -> Self {
        let (width, pooled) = (model.states_width(), config.width(model));
        let map = || Linear::new(width, pooled, true, model.initial_deviation, initial);
        Self {
            map: config.map.is_some().then(map),
            config: config.clone(),
        }
    }

    /// `[batch, length, width]` to `[batch, width]`; `real` says where padding leaves real positions.
    pub fn forward(&self, states: Tensor<3>, real: Option<&[Range<usize>]>) -> Tensor<2> {
        let pooled = gather(states, self.config.from, real);
        let Some(map) = &self.map else { return pooled };
        let mapped = map.forward(pooled);
        match self.config.map.as_ref().and_then(|map| map.activation) {
            Some(activation) => activate(activation, mapped),
            None => mapped.tanh(),
        }
    }
}

/// One vector of each row's states `[batch, length, width]`; zeros where a mean has nothing but padding.
fn gather(states: Tensor<3>, from: PooledFrom, real: Option<&[Range<usize>]>) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    let range = |row: usize| match real {
        Some(real) => real[row].start.min(length)..real[row].end.min(length),
        None => 0..length,
    };
    match from {
        PooledFrom::First => states.narrow(1, 0, 1).reshape([batch, width]),
        PooledFrom::Last => {
            let last = |row: usize| (row * length + range(row).end.saturating_sub(1)) as i64;
            let places: Vec<i64> = (0..batch).map(last).collect();
            let data = TensorData::new(places, [batch]);
            let places = Tensor::<1, Int>::from_data(data, &states.device());
            states.reshape([batch * length, width]).select(0, places)
        }
        PooledFrom::Mean => {
            let share = |row: usize| {
                let range = range(row);
                let share = 1.0 / range.len().max(1) as f32;
                (0..length).map(move |it| if range.contains(&it) { share } else { 0.0 })
            };
            let shares: Vec<f32> = (0..batch).flat_map(share).collect();
            let data = TensorData::new(shares, [batch, 1, length]);
            let shares = Tensor::<3>::from_data(data, &states.device());
            shares.matmul(states).reshape([batch, width])
        }
    }
}
