//! The language-model head: logits over the vocabulary at each position, of the next token or of a masked one.

use attentive_tensor::{Activation, linear};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::builders::from_kinds;
use crate::checks::{positive, refuse};
use crate::embeddings::AdaptiveSoftmaxConfig;
use crate::setters;
use crate::{ConfigError, Initializer, Linear, Norm, NormConfig, StackConfig};

/// The language-model head of a stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadConfig {
    /// The output projection is the token embedding. Press and Wolf 2016.
    Tied,
    /// An output projection of its own.
    Separate,
    /// Either of these with further settings.
    LmHead(LmHeadConfig),
    /// Adaptive softmax over the clusters of the embedding: log-probabilities.
    Adaptive(AdaptiveSoftmaxConfig),
    /// None.
    None,
}

from_kinds!(HeadConfig: LmHead(LmHeadConfig), Adaptive(AdaptiveSoftmaxConfig));

/// Settings of a language-model head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmHeadConfig {
    /// Whether the output projection is the token embedding.
    #[serde(default)]
    pub tied: bool,
    /// Whether the output projection has a bias.
    #[serde(default)]
    pub bias: bool,
    /// Whether hidden states are divided by √width, as T5 does for its tied embedding (Raffel et al. 2020).
    #[serde(default)]
    pub scaled: bool,
    /// A transform of the hidden states before the output projection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformConfig>,
}

/// A projection, an activation and a norm before the output projection. Devlin et al. 2019.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformConfig {
    /// The activation after the projection.
    pub activation: Activation,
    /// The norm after the activation.
    pub norm: NormConfig,
}

impl LmHeadConfig {
    setters! {
        with_tied(tied: bool);
        with_bias(bias: bool);
        with_scaled(scaled: bool);
        with_transform(transform: TransformConfig => Some);
    }

    /// Width of what the output projection reads: a transform projects to the embedding's width, which a tied projection needs.
    fn inner_width(&self, stack: &StackConfig) -> usize {
        match self.tied || self.transform.is_some() {
            true => stack.embedding_width(),
            false => stack.states_width(),
        }
    }
}

impl TransformConfig {
    /// A projection, then this activation and this norm.
    pub fn new(activation: Activation, norm: NormConfig) -> Self {
        Self { activation, norm }
    }
}

impl HeadConfig {
    /// The settings of the linear head, if the model has one.
    pub fn lm_head(&self) -> Option<LmHeadConfig> {
        match self {
            Self::Tied => Some(LmHeadConfig {
                tied: true,
                ..LmHeadConfig::default()
            }),
            Self::Separate => Some(LmHeadConfig::default()),
            Self::LmHead(config) => Some(config.clone()),
            Self::Adaptive(_) | Self::None => None,
        }
    }

    /// The same head in its shortest form.
    pub(crate) fn canonical(&self) -> Self {
        let spellings = [Self::Tied, Self::Separate];
        let Some(head) = self.lm_head() else {
            return self.clone();
        };
        let short = spellings
            .into_iter()
            .find(|it| it.lm_head() == Some(head.clone()));
        short.unwrap_or_else(|| self.clone())
    }

    /// Flops per token on `stack`.
    pub(crate) fn flops(&self, stack: &StackConfig) -> u64 {
        if let (Self::Adaptive(_), Some(embedding)) = (self, &stack.embedding.adaptive) {
            return embedding.softmax_flops(stack);
        }
        let Some(config) = self.lm_head() else {
            return 0;
        };
        let (width, inner) = (
            stack.states_width() as u64,
            config.inner_width(stack) as u64,
        );
        let transform = config.transform.map_or(0, |_| 2 * width * inner);
        (2 * inner)
            .saturating_mul(stack.vocabulary as u64)
            .saturating_add(transform)
    }

    /// Whether the settings are valid for a head on `stack`.
    pub(crate) fn validate(&self, stack: &StackConfig) -> Result<(), ConfigError> {
        if let Self::Adaptive(config) = self {
            return config.validate("head.adaptive", stack);
        }
        let Some(config) = self.lm_head() else {
            return Ok(());
        };
        if stack.embedding.adaptive.is_some() && config.tied {
            return refuse(
                "head",
                "an adaptive embedding cannot be tied; use \"adaptive\" or \"separate\"",
            );
        }
        if let Some(transform) = &config.transform {
            positive(
                "head.lm_head.transform.norm.epsilon",
                transform.norm.epsilon(),
            )?;
        }
        let narrow = stack.embedding_width() != stack.states_width();
        if stack.patches.is_some() {
            return refuse(
                "head",
                "this model reads images and has no vocabulary; use \"none\"",
            );
        }
        if config.tied && narrow && config.transform.is_none() {
            return refuse(
                "head",
                format!(
                    "token embeddings of width {} cannot project hidden states of width {}; give the head a transform, or use \"separate\"",
                    stack.embedding_width(),
                    stack.states_width()
                ),
            );
        }
        Ok(())
    }
}

/// A language-model head.
#[derive(Module, Debug)]
pub struct LmHead {
    transform: Option<Transform>,
    /// `[vocabulary, width]`, absent where tied to the token embedding
    weight: Option<Param<Tensor<2>>>,
    /// `[vocabulary]`
    bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    scale: Option<f64>,
}

#[derive(Module, Debug)]
struct Transform {
    projection: Linear,
    norm: Norm,
    #[module(skip)]
    activation: Activation,
}

impl LmHead {
    /// Builds the head of `stack`.
    pub fn new(config: &LmHeadConfig, stack: &StackConfig, initializer: &mut Initializer) -> Self {
        let (width, std) = (stack.states_width(), stack.init_std);
        let inner = config.inner_width(stack);
        let transform = config.transform.as_ref().map(|transform| Transform {
            projection: Linear::new(width, inner, true, std, initializer),
            norm: Norm::new(&transform.norm, inner, initializer),
            activation: transform.activation,
        });
        Self {
            transform,
            weight: (!config.tied).then(|| initializer.normal([stack.vocabulary, inner], std)),
            bias: config
                .bias
                .then(|| initializer.constant([stack.vocabulary], 0.0)),
            scale: config.scaled.then(|| 1.0 / (width as f64).sqrt()),
        }
    }

    /// Logits `[batch, length, vocabulary]` of hidden states; `tokens` is the token embedding, for a tied head.
    pub fn forward(&self, states: Tensor<3>, tokens: impl FnOnce() -> Tensor<2>) -> Tensor<3> {
        let mut states = states;
        if let Some(scale) = self.scale {
            states = states * scale;
        }
        if let Some(transform) = &self.transform {
            let (projection, activation) = (&transform.projection, transform.activation);
            states = projection.forward_activated(activation, states);
            states = transform.norm.forward(states);
        }
        let weight = self.weight.as_ref().map_or_else(tokens, Param::val);
        linear(states, weight, self.bias.as_ref().map(Param::val))
    }
}
