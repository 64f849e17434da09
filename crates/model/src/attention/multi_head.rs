//! Multi-head attention (Vaswani et al. 2017), also with grouped key-value heads (Ainslie et al. 2023).

use attentive_tensor::{
    Scores, apply_weights, attention, attention_weights, dropout, rotary, three_linears,
};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::checks::{probability, refuse, size};
use crate::{ConfigError, Initializer, Linear, Operations, Pass};

/// Settings of full softmax attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullAttentionConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each shared by `heads / key_value_heads` query heads; as many as `heads` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_value_heads: Option<usize>,
    /// Width of one head; the model's width divided by `heads` unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Dropout on the attention weights.
    #[serde(default)]
    pub dropout: f64,
    /// Whether the query, key and value maps have biases.
    #[serde(default)]
    pub bias: bool,
    /// Whether the output map has a bias.
    #[serde(default)]
    pub output_bias: bool,
}

impl FullAttentionConfig {
    /// Key-value heads, said or implied.
    pub fn key_value_heads(&self) -> usize {
        self.key_value_heads.unwrap_or(self.heads)
    }

    /// Width of one head, said or implied by the model's width.
    pub fn head_width(&self, width: usize) -> usize {
        self.head_width.unwrap_or(width / self.heads.max(1))
    }

    /// Whether the settings can work in a model of this width; `path` is where they stand.
    pub(super) fn validate(&self, path: &str, width: usize) -> Result<(), ConfigError> {
        size(&format!("{path}.heads"), self.heads)?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        let (heads, shared) = (self.heads, self.key_value_heads());
        if shared == 0 || !heads.is_multiple_of(shared) {
            return refuse(
                &format!("{path}.key_value_heads"),
                format!("{shared} does not divide the {heads} heads"),
            );
        }
        if self.head_width.is_none() && !width.is_multiple_of(heads) {
            return refuse(
                &format!("{path}.heads"),
                format!(
                    "{heads} does not divide the width {width}; say head_width, or choose a divisor"
                ),
            );
        }
        let head_width = self.head_width(width);
        size(&format!("{path}.head_width"), head_width)?;
        size(&format!("{path}.heads"), heads.saturating_mul(head_width))
    }

    /// Operations per token: four maps, and scores and weighted sums, where each query meets half of the positions.
    pub(super) fn operations(&self, width: usize, length: usize) -> Operations {
        let head_width = self.head_width(width) as u64;
        let inner = self.heads as u64 * head_width;
        let shared = self.key_value_heads() as u64 * head_width;
        Operations {
            weights: 4 * width as u64 * (inner + shared),
            attention: 2 * inner * length as u64,
        }
    }
}

/// Projects to heads, attends, and projects back.
#[derive(Module, Debug)]
pub struct MultiHead {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    key_value_heads: usize,
    #[module(skip)]
    head_width: usize,
    #[module(skip)]
    dropout: f64,
}

impl MultiHead {
    /// Builds the layer; `residual_deviation` is the spread of the map that writes into the residual stream.
    pub fn new(
        config: &FullAttentionConfig,
        width: usize,
        deviation: f64,
        residual_deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        let head_width = config.head_width(width);
        let key_value_heads = config.key_value_heads();
        let (inner, shared) = (config.heads * head_width, key_value_heads * head_width);
        Self {
            query: Linear::new(width, inner, config.bias, deviation, initial),
            key: Linear::new(width, shared, config.bias, deviation, initial),
            value: Linear::new(width, shared, config.bias, deviation, initial),
            output: Linear::new(
                inner,
                width,
                config.output_bias,
                residual_deviation,
                initial,
            ),
            heads: config.heads,
            key_value_heads,
            head_width,
            dropout: config.dropout,
        }
    }

    /// Self-attention of `x` `[batch, length, width]`, as layer number `layer`.
    pub fn forward(&self, x: Tensor<3>, layer: usize, pass: &mut Pass) -> Tensor<3> {
        let [batch, length, _] = x.dims();
        let maps = [
            self.query.operands(),
            self.key.operands(),
            self.value.operands(),
        ];
        let [query, key, value] = three_linears(x, maps);
        let mut query = self.split(query, self.heads);
        let mut key = self.split(key, self.key_value_heads);
        let mut value = self.split(value, self.key_value_heads);
        if let Some(angles) = &pass.rotary {
            query = rotary(query, angles);
            key = rotary(key, angles);
        }
        if let Some(cache) = pass.cache.as_deref_mut() {
            (key, value) = cache.append(layer, key, value);
        }
        let context = self.attend(query, key, value, layer, pass);
        let inner = self.heads * self.head_width;
        self.output
            .forward(context.swap_dims(1, 2).reshape([batch, length, inner]))
    }

    /// `[batch, heads, queries, head_width]`; the weights exist only when an observer asks for them.
    fn attend(
        &self,
        query: Tensor<4>,
        key: Tensor<4>,
        value: Tensor<4>,
        layer: usize,
        pass: &mut Pass,
    ) -> Tensor<4> {
        let scale = 1.0 / (self.head_width as f64).sqrt();
        let (queries, keys) = (query.dims()[2], key.dims()[2]);
        let bias = pass.distance_bias.as_ref();
        let scores = Scores {
            bias: bias.map(|bias| bias.pairs(queries, keys)),
            ..Scores::new(pass.mask.clone(), scale)
        };
        match pass.observer.as_deref_mut() {
            Some(observer) if observer.wants_weights(layer) => {
                let weights = attention_weights(query, key, &scores);
                let weights = observer.weights(layer, weights);
                let randomness = pass.randomness.as_deref_mut();
                apply_weights(dropout(weights, self.dropout, randomness), value)
            }
            _ => {
                let randomness = pass.randomness.as_deref_mut();
                attention(query, key, value, &scores, self.dropout, randomness)
            }
        }
    }

    /// `[batch, length, heads · head_width]` to `[batch, heads, length, head_width]`
    fn split(&self, x: Tensor<3>, heads: usize) -> Tensor<4> {
        let [batch, length, _] = x.dims();
        x.reshape([batch, length, heads, self.head_width])
            .swap_dims(1, 2)
    }
}
