//! Attention with a choice of score functions: dot and scaled dot products (Luong et al. 2015; Vaswani et al. 2017), bilinear
//! (Luong et al. 2015) and additive (Bahdanau et al. 2015).
//!
//! `output = softmax(score(query, key)) · values`, on raw sequences or on projected heads. All heads share the parameters of
//! the score.

use attentive_tensor::Scores;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::additive::Additive;
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionSettings, AttentionSpec, CacheSize, CommonSettings, HeadsConfig, Pattern,
    Role, spec::rotary_with_heads, unprojected::with_optional_heads,
};
use crate::checks::{probability, refuse, size};
use crate::setters;
use crate::{ConfigError, Flops, Initializer};

/// Settings of attention with a choice of score functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoredConfig {
    /// The score function.
    pub score: ScoreConfig,
    /// The number of heads; without heads, there are no projections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Dropout on the attention weights.
    #[serde(default)]
    pub dropout: f64,
}

/// The score function of a query and a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScoreConfig {
    /// `query · key`
    Dot {},
    /// `query · key / √width`
    ScaledDot {},
    /// `queryᵀ · bilinear · key`, also for queries and keys of different widths
    Bilinear {},
    /// `score · tanh(W_query query + W_key key)`, also for queries and keys of different widths
    Additive {
        /// Width of the hidden layer.
        hidden_width: usize,
    },
}

impl ScoredConfig {
    /// Without heads, and so without projections.
    pub fn new(score: ScoreConfig) -> Self {
        Self {
            score,
            heads: None,
            dropout: 0.0,
        }
    }

    setters! {
        with_heads(heads: usize => Some);
        with_dropout(dropout: f64);
    }

    /// Width of the keys that the score sees, in a model of this width.
    fn key_width(&self, width: usize) -> usize {
        self.heads().map_or(width, |heads| heads.head_width(width))
    }
}

impl CommonSettings for ScoredConfig {
    fn dropout_mut(&mut self) -> Option<&mut f64> {
        Some(&mut self.dropout)
    }

    fn heads(&self) -> Option<HeadsConfig> {
        let heads = self.heads?;
        Some(HeadsConfig::new(heads).with_dropout(self.dropout))
    }
}

impl AttentionSettings for ScoredConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        spec.require_positions(path, "scored", rotary_with_heads(self.heads))?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        if let ScoreConfig::Additive { hidden_width } = self.score {
            size(&format!("{path}.score.hidden_width"), hidden_width)?;
        }
        let widths = spec.widths;
        if let Some(heads) = self.heads() {
            return heads.validate_plain(path, widths.queries);
        }
        spec.require_value_width(path, "scored")?;
        match self.score {
            ScoreConfig::Dot {} | ScoreConfig::ScaledDot {} if widths.queries != widths.keys => {
                refuse(
                    &format!("{path}.score.kind"),
                    format!(
                        "a dot product needs queries (width {}) as wide as keys (width {}); use bilinear or additive, or set heads",
                        widths.queries, widths.keys
                    ),
                )
            }
            _ => Ok(()),
        }
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let heads = self.heads();
        let [queries, keys] = match &heads {
            Some(heads) => [heads.head_width(spec.widths.queries); 2],
            None => [spec.widths.queries, spec.widths.keys],
        };
        let score = Score::new(&self.score, [queries, keys], spec.init_std, initializer);
        let pattern = Pattern::Scored(Scored { score });
        with_optional_heads(pattern, heads, self.dropout, spec, initializer)
    }

    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        let keys = role.average_keys(length) as u64;
        let count = self.heads.unwrap_or(1) as u64;
        let key_width = self.key_width(width) as u64;
        let (weights, score) = match self.score {
            ScoreConfig::Dot {} | ScoreConfig::ScaledDot {} => (0, 2 * key_width),
            ScoreConfig::Bilinear {} => (2 * key_width * key_width, 2 * key_width),
            ScoreConfig::Additive { hidden_width } => {
                (4 * key_width * hidden_width as u64, 4 * hidden_width as u64)
            }
        };
        let projections = self
            .heads()
            .map_or(0, |heads| heads.flops(width, 0).weights);
        Flops {
            weights: projections + count * weights,
            attention: (count * (score + 2 * key_width)).saturating_mul(keys),
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        let value = self.key_width(width);
        let key = match self.score {
            ScoreConfig::Additive { hidden_width } => hidden_width,
            _ => value,
        };
        CacheSize::Growing((self.heads.unwrap_or(1) * (key + value)) as u64)
    }

    fn describe(&self, width: usize) -> String {
        let score = match self.score {
            ScoreConfig::Dot {} => "dot-product attention".to_owned(),
            ScoreConfig::ScaledDot {} => "scaled dot-product attention".to_owned(),
            ScoreConfig::Bilinear {} => "bilinear attention".to_owned(),
            ScoreConfig::Additive { hidden_width } => {
                format!("additive attention of hidden width {hidden_width}")
            }
        };
        match self.heads() {
            Some(heads) => heads.describe(&score, width),
            None => score,
        }
    }
}

/// Softmax attention with a score function.
#[derive(Module, Debug)]
pub struct Scored {
    score: Score,
}

/// A score function and its parameters.
#[derive(Module, Debug)]
enum Score {
    Dot(Dot),
    Bilinear(Bilinear),
    Additive(Additive),
}

#[derive(Module, Debug)]
struct Dot {
    #[module(skip)]
    scale: f64,
}

#[derive(Module, Debug)]
struct Bilinear {
    /// `[query width, key width]`
    bilinear: Param<Tensor<2>>,
}

impl Score {
    /// For queries and keys of these widths.
    fn new(
        config: &ScoreConfig,
        [queries, keys]: [usize; 2],
        std: f64,
        initializer: &mut Initializer,
    ) -> Self {
        match *config {
            ScoreConfig::Dot {} => Self::Dot(Dot { scale: 1.0 }),
            ScoreConfig::ScaledDot {} => Self::Dot(Dot {
                scale: 1.0 / (keys as f64).sqrt(),
            }),
            ScoreConfig::Bilinear {} => Self::Bilinear(Bilinear {
                bilinear: initializer.normal([queries, keys], std),
            }),
            ScoreConfig::Additive { hidden_width } => Self::Additive(Additive::new(
                [queries, keys],
                hidden_width,
                std,
                initializer,
            )),
        }
    }
}

impl Scored {
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let Qkv { query, key, value } = qkv;
        let (query, key) = match &self.score {
            Score::Dot(_) => (query, key),
            Score::Bilinear(score) => (
                attentive_tensor::linear(query, score.bilinear.val().transpose(), None),
                key,
            ),
            Score::Additive(score) => (score.project_queries(query), score.project_keys(key)),
        };
        let (qkv, _) = context.append_to_cache(Qkv { query, key, value }, None);
        let mask = context.mask(0);
        match &self.score {
            Score::Dot(score) => context.attend(qkv, &Scores::new(mask, score.scale)),
            Score::Bilinear(_) => context.attend(qkv, &Scores::new(mask, 1.0)),
            Score::Additive(score) => {
                let scores = score.scores(qkv.query, qkv.key);
                context.attend_with_scores(scores, &mask, qkv.value)
            }
        }
    }
}
