//! Pooling: one vector for a whole sequence.

use std::ops::Range;

use attentive_tensor::Activation;
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::size;
use crate::indices::indices;
use crate::setters;
use crate::{ConfigError, Initializer, InputData, Linear, StackConfig};

/// Settings of a pooler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolerConfig {
    /// Which positions are pooled.
    pub from: PooledFrom,
    /// A projection of the pooled vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projection: Option<PoolerProjection>,
}

/// Which positions are pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PooledFrom {
    /// The first position.
    First,
    /// The last position that is not padding, by the ranges of the input.
    Last,
    /// The last position whose token is not this padding token, regardless of the ranges of the input; the first position if there
    /// is none. For images, the last position.
    LastNonPad(u32),
    /// The last position, even if it is padding: for single sequences, which need none.
    End,
    /// The mean of all positions that are not padding.
    Mean,
}

/// A projection and its activation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolerProjection {
    /// Output width; the model's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
    /// The activation after the projection; the hyperbolic tangent by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
}

impl PoolerProjection {
    setters! {
        with_width(width: usize => Some);
        with_activation(activation: Activation => Some);
    }
}

impl PoolerConfig {
    /// Pools these positions, without a projection.
    pub fn new(from: PooledFrom) -> Self {
        Self {
            from,
            projection: None,
        }
    }

    setters! {
        with_projection(projection: PoolerProjection => Some);
    }

    /// Whether the settings are valid.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self.projection.as_ref().and_then(|it| it.width) {
            Some(width) => size("pooler.projection.width", width),
            None => Ok(()),
        }
    }

    /// Width of the pooled vector of `stack`.
    pub fn width(&self, stack: &StackConfig) -> usize {
        match &self.projection {
            Some(projection) => projection.width.unwrap_or(stack.width),
            None => stack.states_width(),
        }
    }

    /// The same settings with defaults written out.
    pub(crate) fn canonical(&self, width: usize) -> Self {
        let mut config = self.clone();
        if let Some(projection) = &mut config.projection {
            projection.width = Some(projection.width.unwrap_or(width));
        }
        config
    }
}

/// Pools hidden states to one vector per sequence.
#[derive(Module, Debug)]
pub struct Pooler {
    projection: Option<Linear>,
    #[module(skip)]
    config: PoolerConfig,
}

impl Pooler {
    /// Builds the pooler of `stack`.
    pub fn new(config: &PoolerConfig, stack: &StackConfig, initializer: &mut Initializer) -> Self {
        let (width, pooled) = (stack.states_width(), config.width(stack));
        let projection = || Linear::new(width, pooled, true, stack.init_std, initializer);
        Self {
            projection: config.projection.is_some().then(projection),
            config: config.clone(),
        }
    }

    /// `[batch, length, width]` to `[batch, width]`; `data` is the input of the stack.
    pub fn forward(
        &self,
        states: Tensor<3>,
        data: &InputData,
        non_padding: Option<&[Range<usize>]>,
    ) -> Tensor<2> {
        let pooled = pool(states, self.config.from, data, non_padding);
        let Some(projection) = &self.projection else {
            return pooled;
        };
        match self.config.projection.as_ref().and_then(|it| it.activation) {
            Some(activation) => projection.forward_activated(activation, pooled),
            None => projection.forward(pooled).tanh(),
        }
    }
}

/// The states `[batch, length, width]` at one position of each row.
fn select(states: Tensor<3>, positions: &[usize]) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    let rows = positions.iter().enumerate();
    let rows = rows.map(|(row, at)| row * length + at);
    let rows = indices(rows, &states.device());
    states.reshape([batch * length, width]).select(0, rows)
}

/// The position of each row's last token that is not `padding`.
fn last_non_pad(ids: &Tensor<2, Int>, padding: u32) -> Vec<usize> {
    let [_, length] = ids.dims();
    let ids: Vec<i64> = ids.to_data().iter::<i64>().collect();
    let last = |row: &[i64]| row.iter().rposition(|id| *id != i64::from(padding));
    ids.chunks(length.max(1))
        .map(|row| last(row).unwrap_or(0))
        .collect()
}

/// One vector of each row's states `[batch, length, width]`; zeros for the mean of a fully padded row.
fn pool(
    states: Tensor<3>,
    from: PooledFrom,
    data: &InputData,
    non_padding: Option<&[Range<usize>]>,
) -> Tensor<2> {
    let [batch, length, width] = states.dims();
    let range = |row: usize| match non_padding {
        Some(non_padding) => non_padding[row].start.min(length)..non_padding[row].end.min(length),
        None => 0..length,
    };
    match from {
        PooledFrom::First => states.narrow(1, 0, 1).reshape([batch, width]),
        PooledFrom::Last => {
            let last = |row: usize| range(row).end.saturating_sub(1);
            select(states, &(0..batch).map(last).collect::<Vec<usize>>())
        }
        PooledFrom::LastNonPad(padding) => match data {
            InputData::Ids(ids) => select(states, &last_non_pad(ids, padding)),
            InputData::Pixels(_) => select(states, &vec![length.saturating_sub(1); batch]),
        },
        PooledFrom::End => select(states, &vec![length.saturating_sub(1); batch]),
        PooledFrom::Mean => {
            let weights = |row: usize| {
                let range = range(row);
                let weight = 1.0 / range.len().max(1) as f32;
                (0..length).map(move |it| if range.contains(&it) { weight } else { 0.0 })
            };
            let weights: Vec<f32> = (0..batch).flat_map(weights).collect();
            let weights = TensorData::new(weights, [batch, 1, length]);
            let weights = Tensor::<3>::from_data(weights, &states.device());
            weights.matmul(states).reshape([batch, width])
        }
    }
}
