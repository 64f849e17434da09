//! Scores of the vocabulary for each position: of the next token, or of one that is hidden.

use attentive_tensor::{Activation, activate, linear};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::{positive, refuse};
use crate::{AdaptiveConfig, ConfigError, Initializer, Linear, ModelConfig, Norm, NormConfig};

/// Which scores of the vocabulary a model gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadConfig {
    /// The token embedding serves in both directions. Press and Wolf 2016.
    Tied,
    /// A matrix of its own.
    Separate,
    /// One of these with more around it.
    Words(WordsConfig),
    /// Logarithms of probabilities, by the clusters of the embedding.
    Adaptive(AdaptiveConfig),
    /// None.
    None,
}

/// Settings of scores of the vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WordsConfig {
    /// Whether the token embedding serves in both directions.
    #[serde(default)]
    pub tied: bool,
    /// Whether a number per token is added.
    #[serde(default)]
    pub bias: bool,
    /// Whether the states are divided by √width, which a tied matrix of large numbers needs (Raffel et al. 2020).
    #[serde(default)]
    pub scaled: bool,
    /// What the states go through before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformConfig>,
}

/// A map, an activation and a norm before the scores. Devlin et al. 2019.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformConfig {
    /// After the map.
    pub activation: Activation,
    /// After the activation.
    pub norm: NormConfig,
}

impl HeadConfig {
    /// Scores of the vocabulary, if there are any.
    pub fn words(&self) -> Option<WordsConfig> {
        match self {
            Self::Tied => Some(WordsConfig {
                tied: true,
                ..WordsConfig::default()
            }),
            Self::Separate => Some(WordsConfig::default()),
            Self::Words(config) => Some(config.clone()),
            Self::Adaptive(_) | Self::None => None,
        }
    }

    /// The same in the shortest spelling.
    pub(crate) fn canonical(&self) -> Self {
        let spellings = [Self::Tied, Self::Separate];
        let Some(words) = self.words() else {
            return self.clone();
        };
        let short = spellings
            .into_iter()
            .find(|it| it.words() == Some(words.clone()));
        short.unwrap_or_else(|| self.clone())
    }

    /// Whether the settings can work in `model`.
    pub(crate) fn validate(&self, model: &ModelConfig) -> Result<(), ConfigError> {
        if let Self::Adaptive(config) = self {
            return config.validate("head.adaptive", model);
        }
        let Some(config) = self.words() else {
            return Ok(());
        };
        if model.embedding.clusters.is_some() && config.tied {
            return refuse(
                "head",
                "clusters of tokens are no one table; use \"adaptive\" or \"separate\"",
            );
        }
        if let Some(transform) = &config.transform {
            positive(
                "head.words.transform.norm.epsilon",
                transform.norm.epsilon(),
            )?;
        }
        let narrow = model.embedding_width() != model.states_width();
        if model.patches.is_some() {
            return refuse(
                "head",
                "this model reads pictures and has no vocabulary; use \"none\"",
            );
        }
        if config.tied && narrow && config.transform.is_none() {
            return refuse(
                "head",
                format!(
                    "tokens of width {} cannot score states of width {}; give it a transform, or use \"separate\"",
                    model.embedding_width(),
                    model.states_width()
                ),
            );
        }
        Ok(())
    }
}

/// Scores the vocabulary.
#[derive(Module, Debug)]
pub struct Words {
    transform: Option<Transform>,
    /// `[vocabulary, width]`, where the embedding's does not serve
    weight: Option<Param<Tensor<2>>>,
    /// `[vocabulary]`
    bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    scale: Option<f64>,
}

#[derive(Module, Debug)]
struct Transform {
    map: Linear,
    norm: Norm,
    #[module(skip)]
    activation: Activation,
}

impl Words {
    /// Builds the head of `model`.
    pub fn new(config: &WordsConfig, model: &ModelConfig, initial: &mut Initializer) -> Self {
        let (width, deviation) = (model.states_width(), model.initial_deviation);
        // A transform maps to the embedding's width, as a tied table needs it.
        let inner = match config.tied || config.transform.is_some() {
            true => model.embedding_width(),
            false => width,
        };
        let transform = config.transform.as_ref().map(|transform| Transform {
            map: Linear::new(width, inner, true, deviation, initial),
            norm: Norm::new(&transform.norm, inner, initial),
            activation: transform.activation,
        });
        Self {
            transform,
            weight: (!config.tied).then(|| initial.normal([model.vocabulary, inner], deviation)),
            bias: config
                .bias
                .then(|| initial.constant([model.vocabulary], 0.0)),
            scale: config.scaled.then(|| 1.0 / (width as f64).sqrt()),
        }
    }

    /// Scores `[batch, length, vocabulary]` of states; `tokens` is the table of the embedding.
    pub fn forward(&self, states: Tensor<3>, tokens: impl FnOnce() -> Tensor<2>) -> Tensor<3> {
        let mut states = states;
        if let Some(scale) = self.scale {
            states = states * scale;
        }
        if let Some(transform) = &self.transform {
            let mapped = transform.map.forward(states);
            states = transform
                .norm
                .forward(activate(transform.activation, mapped));
        }
        let weight = self.weight.as_ref().map_or_else(tokens, Param::val);
        linear(states, weight, self.bias.as_ref().map(Param::val))
    }
}
