//! The settings of a recurrent encoder-decoder.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::checks::{MOST_BLOCKS, positive, probability, refuse, size, within};

/// Settings of a recurrent encoder-decoder with additive attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentConfig {
    /// What a layer does at each step.
    pub cell: CellKind,
    /// How many tokens the encoder knows.
    pub source_vocabulary: usize,
    /// How many tokens the decoder knows.
    pub target_vocabulary: usize,
    /// The longest sequence, of either side.
    pub length: usize,
    /// Width of the tokens' vectors.
    pub width: usize,
    /// Width of the states.
    pub hidden_width: usize,
    /// Layers of the encoder, and of the decoder.
    #[serde(default = "one")]
    pub layers: usize,
    /// Which ways the encoder reads.
    #[serde(default)]
    pub directions: Directions,
    /// What the decoder's first state is made from.
    #[serde(default)]
    pub first_state: FirstState,
    /// Width inside the tangent of the attention.
    pub attention_width: usize,
    /// Dropout where no state passes from step to step (Zaremba et al. 2014): on the tokens' vectors, between layers, and on
    /// what the scores of the vocabulary are made from.
    #[serde(default)]
    pub dropout: f64,
    /// Spread of the initial weights.
    #[serde(default = "default_deviation")]
    pub initial_deviation: f64,
}

/// What a layer does at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// Two gates (Cho et al. 2014).
    Gru,
    /// Three gates, and a memory beside the state (Hochreiter and Schmidhuber 1997).
    Lstm,
}

impl CellKind {
    /// How many vectors of the hidden width a step is made from.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }
}

/// Which ways an encoder reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// From the first token to the last.
    #[default]
    Forward,
    /// Both ways, each with weights of its own; what they give is joined (Bahdanau et al. 2015).
    Both,
}

impl Directions {
    pub(super) fn count(self) -> usize {
        match self {
            Self::Forward => 1,
            Self::Both => 2,
        }
    }
}

/// What the decoder's first state is made from, layer by layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstState {
    /// The encoder's last state as it is, of an encoder that reads one way.
    #[default]
    Copied,
    /// `tanh(map · state)` of the way back, which ends at the first token (Bahdanau et al. 2015).
    Backward,
    /// The same of the last states of both ways, joined.
    Joined,
}

fn one() -> usize {
    1
}

fn default_deviation() -> f64 {
    0.05
}

impl RecurrentConfig {
    /// Whether the settings can work together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        size("source_vocabulary", self.source_vocabulary)?;
        size("target_vocabulary", self.target_vocabulary)?;
        size("length", self.length)?;
        size("width", self.width)?;
        size("hidden_width", self.hidden_width)?;
        size("attention_width", self.attention_width)?;
        within("layers", self.layers, MOST_BLOCKS)?;
        probability("dropout", self.dropout)?;
        positive("initial_deviation", self.initial_deviation)?;
        match (self.directions, self.first_state) {
            (Directions::Both, FirstState::Copied) => refuse(
                "first_state",
                "the states of an encoder that reads both ways are two where the decoder has one; use backward or joined",
            ),
            (Directions::Forward, FirstState::Backward | FirstState::Joined) => refuse(
                "first_state",
                "the encoder does not read backward; use copied, or directions of both",
            ),
            _ => Ok(()),
        }
    }

    /// Width of what the decoder looks at.
    pub fn memory_width(&self) -> usize {
        self.directions.count() * self.hidden_width
    }
}
