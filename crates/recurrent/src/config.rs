//! The settings of a recurrent encoder-decoder.

use attentive_model::checks::{MAX_BLOCKS, positive, probability, refuse, size, within};
use attentive_model::{ConfigError, setters};
use serde::{Deserialize, Serialize};

/// Settings of a recurrent encoder-decoder with additive attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentConfig {
    /// The kind of recurrent cell.
    pub cell: CellKind,
    /// Size of the encoder's vocabulary.
    pub source_vocabulary: usize,
    /// Size of the decoder's vocabulary.
    pub target_vocabulary: usize,
    /// The maximum sequence length, of source and target.
    pub length: usize,
    /// Width of the token embeddings.
    pub width: usize,
    /// Width of the hidden states.
    pub hidden_width: usize,
    /// Layers of the encoder, and of the decoder.
    #[serde(default = "one")]
    pub layers: usize,
    /// Whether the encoder is bidirectional.
    #[serde(default)]
    pub directions: Directions,
    /// The source of the decoder's initial state.
    #[serde(default)]
    pub first_state: FirstState,
    /// Width of the additive attention's hidden layer.
    pub attention_width: usize,
    /// Dropout on non-recurrent connections (Zaremba et al. 2014): on token embeddings, between layers, and on the input of the
    /// output projection.
    #[serde(default)]
    pub dropout: f64,
    /// Standard deviation of the initial weights.
    #[serde(default = "default_init_std")]
    pub init_std: f64,
}

/// The kind of recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// A gated recurrent unit (Cho et al. 2014).
    Gru,
    /// Long short-term memory (Hochreiter and Schmidhuber 1997).
    Lstm,
}

impl CellKind {
    /// The number of gates, counting the candidate: each has the hidden width in the projections of a step.
    pub(crate) fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }
}

/// The directions of an encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// From the first token to the last.
    #[default]
    Forward,
    /// Both, each with weights of its own; their outputs are concatenated (Bahdanau et al. 2015).
    Both,
}

impl Directions {
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Forward => 1,
            Self::Both => 2,
        }
    }
}

/// The source of the decoder's initial state, layer by layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstState {
    /// The last state of a unidirectional encoder.
    #[default]
    Copied,
    /// `tanh(projection · state)` of the backward direction, which ends at the first token (Bahdanau et al. 2015).
    Backward,
    /// `tanh(projection · state)` of the concatenated last states of both directions.
    Joined,
}

fn one() -> usize {
    1
}

fn default_init_std() -> f64 {
    0.05
}

impl RecurrentConfig {
    /// Vocabularies of source and target, and the maximum length. Embeddings, hidden states and attention have one width.
    pub fn new(cell: CellKind, vocabularies: [usize; 2], length: usize, width: usize) -> Self {
        let [source_vocabulary, target_vocabulary] = vocabularies;
        Self {
            cell,
            source_vocabulary,
            target_vocabulary,
            length,
            width,
            hidden_width: width,
            layers: one(),
            directions: Directions::default(),
            first_state: FirstState::default(),
            attention_width: width,
            dropout: 0.0,
            init_std: default_init_std(),
        }
    }

    setters! {
        with_hidden_width(hidden_width: usize);
        with_layers(layers: usize);
        with_directions(directions: Directions);
        with_first_state(first_state: FirstState);
        with_attention_width(attention_width: usize);
        with_dropout(dropout: f64);
        with_init_std(init_std: f64);
    }

    /// Whether the settings are valid, each alone and together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        size("source_vocabulary", self.source_vocabulary)?;
        size("target_vocabulary", self.target_vocabulary)?;
        size("length", self.length)?;
        size("width", self.width)?;
        size("hidden_width", self.hidden_width)?;
        size("attention_width", self.attention_width)?;
        within("layers", self.layers, MAX_BLOCKS)?;
        probability("dropout", self.dropout)?;
        positive("init_std", self.init_std)?;
        match (self.directions, self.first_state) {
            (Directions::Both, FirstState::Copied) => refuse(
                "first_state",
                "a bidirectional encoder has two states where the decoder has one; use backward or joined",
            ),
            (Directions::Forward, FirstState::Backward | FirstState::Joined) => refuse(
                "first_state",
                "the encoder has no backward direction; use copied, or set directions to both",
            ),
            _ => Ok(()),
        }
    }

    /// Width of the encoder's outputs, which the decoder attends to.
    pub fn memory_width(&self) -> usize {
        self.directions.count() * self.hidden_width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constructor_has_the_defaults_of_files() {
        let file = serde_json::json!({
            "cell": "gru", "source_vocabulary": 10, "target_vocabulary": 11, "length": 8, "width": 4,
            "hidden_width": 4, "attention_width": 4,
        });
        let read: RecurrentConfig = serde_json::from_value(file).unwrap();
        assert_eq!(RecurrentConfig::new(CellKind::Gru, [10, 11], 8, 4), read);
    }
}
