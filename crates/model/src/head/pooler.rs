//! One vector for a whole sequence.

use std::ops::Range;

use attentive_tensor::{Activation, activate};
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::size;
use crate::{ConfigError, Initializer, Linear, ModelConfig, Source};

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
    /// The last position whose token is another than this one, wherever padding is said to be; the first where none is. Of
    /// a picture, the last position.
    LastBut(u32),
    /// The last position, even if it is padding: for one sequence at a time, which needs none.
    End,
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

    /// `[batch, length, width]` to `[batch, width]` of what was read; `real` says where padding leaves real positions.
    pub fn forward(
        &self,
        states: Tensor<3>,
        source: &Source,
        real: Option<&[Range<usize>]>,
    ) -> Tensor<2> {
        let pooled = gather(states, self.config.from, source, real);
        let Some(map) = &self.map else { return pooled };
        let mapped = map.forward(pooled);
        match self.config.map.as_ref().and_then(|map| map.activation) {
            Some(activation) => activate(activation, mapped),
            None => mapped.tanh(),
        }
    }
}

/// The states `[batch, length, width]` at one position of each row.
fn chosen(states: Tensor<3>, positions: &[usize]) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    let places = positions.iter().enumerate();
    let places: Vec<i64> = places.map(|(row, at)| (row * length + at) as i64).collect();
    let data = TensorData::new(places, [batch]);
    let places = Tensor::<1, Int>::from_data(data, &states.device());
    states.reshape([batch * length, width]).select(0, places)
}

/// Where the last token of each row stands that is not `padding`.
fn last_but(ids: &Tensor<2, Int>, padding: u32) -> Vec<usize> {
    let [_, length] = ids.dims();
    let ids: Vec<i64> = ids.to_data().iter::<i64>().collect();
    let last = |row: &[i64]| row.iter().rposition(|id| *id != i64::from(padding));
    ids.chunks(length.max(1))
        .map(|row| last(row).unwrap_or(0))
        .collect()
}

/// One vector of each row's states `[batch, length, width]`; zeros where a mean has nothing but padding.
fn gather(
    states: Tensor<3>,
    from: PooledFrom,
    source: &Source,
    real: Option<&[Range<usize>]>,
) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    let range = |row: usize| match real {
        Some(real) => real[row].start.min(length)..real[row].end.min(length),
        None => 0..length,
    };
    match from {
        PooledFrom::First => states.narrow(1, 0, 1).reshape([batch, width]),
        PooledFrom::Last => {
            let last = |row: usize| range(row).end.saturating_sub(1);
            chosen(states, &(0..batch).map(last).collect::<Vec<usize>>())
        }
        PooledFrom::LastBut(padding) => match source {
            Source::Ids(ids) => chosen(states, &last_but(ids, padding)),
            Source::Pixels(_) => chosen(states, &vec![length.saturating_sub(1); batch]),
        },
        PooledFrom::End => chosen(states, &vec![length.saturating_sub(1); batch]),
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
