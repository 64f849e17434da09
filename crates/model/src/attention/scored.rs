//! Attention by a score alone, without heads and without projections of the values: dot and scaled dot products (Luong et al.
//! 2015; Vaswani et al. 2017), bilinear (Luong et al. 2015) and additive (Bahdanau et al. 2015).
//!
//! `output = softmax(score(query, key)) · values`, so the result is as wide as the values.

use attentive_tensor::Scores;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionInput, AttentionOutput, AttentionSettings, CacheSize, CommonSettings,
    Place, Role,
};
use crate::checks::{probability, refuse, size};
use crate::{AttentionSite, ConfigError, Initializer, Linear, Operations, Pass};

/// Settings of attention by a score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoredConfig {
    /// How well a key fits a query.
    pub score: ScoreConfig,
    /// Dropout on the attention weights.
    #[serde(default)]
    pub dropout: f64,
}

/// How well a key fits a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ScoreConfig {
    /// `query · key`
    Dot {},
    /// `query · key / √width`
    ScaledDot {},
    /// `queryᵀ · bilinear · key`, also for queries and keys of different widths
    Bilinear {},
    /// `score · tanh(query map + key map)`, also for queries and keys of different widths
    Additive {
        /// Width inside the tangent.
        hidden_width: usize,
    },
}

impl CommonSettings for ScoredConfig {
    fn dropout_mut(&mut self) -> Option<&mut f64> {
        Some(&mut self.dropout)
    }
}

impl AttentionSettings for ScoredConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.take_positions(path, "scored", &[])?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        let widths = place.widths;
        place.give_values(path, "scored")?;
        match self.score {
            ScoreConfig::Dot {} | ScoreConfig::ScaledDot {} if widths.queries != widths.keys => {
                refuse(
                    &format!("{path}.score.kind"),
                    format!(
                        "a dot product needs queries (width {}) as wide as keys (width {}); use bilinear or additive",
                        widths.queries, widths.keys
                    ),
                )
            }
            ScoreConfig::Additive { hidden_width } => {
                size(&format!("{path}.score.hidden_width"), hidden_width)
            }
            _ => Ok(()),
        }
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let (widths, deviation) = (place.widths, place.deviation);
        let score = match self.score {
            ScoreConfig::Dot {} => Score::Dot(Dot { scale: 1.0 }),
            ScoreConfig::ScaledDot {} => Score::Dot(Dot {
                scale: 1.0 / (widths.keys as f64).sqrt(),
            }),
            ScoreConfig::Bilinear {} => Score::Bilinear(Bilinear {
                bilinear: initial.normal([widths.queries, widths.keys], deviation),
            }),
            ScoreConfig::Additive { hidden_width } => Score::Additive(Additive {
                query: Linear::new(widths.queries, hidden_width, false, deviation, initial),
                key: Linear::new(widths.keys, hidden_width, false, deviation, initial),
                score: Linear::new(hidden_width, 1, false, deviation, initial),
            }),
        };
        Attention::Scored(Scored {
            score,
            dropout: self.dropout,
            role: place.role,
        })
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let (width, met) = (width as u64, (length as u64).div_ceil(2));
        let (weights, scored) = match self.score {
            ScoreConfig::Dot {} | ScoreConfig::ScaledDot {} => (0, 2 * width),
            ScoreConfig::Bilinear {} => (2 * width * width, 2 * width),
            ScoreConfig::Additive { hidden_width } => {
                (4 * width * hidden_width as u64, 4 * hidden_width as u64)
            }
        };
        Operations {
            weights,
            attention: (scored + 2 * width).saturating_mul(met),
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        let key = match self.score {
            ScoreConfig::Additive { hidden_width } => hidden_width,
            _ => width,
        };
        CacheSize::Growing((key + width) as u64)
    }

    fn describe(&self, _width: usize) -> String {
        match self.score {
            ScoreConfig::Dot {} => "dot-product attention".to_owned(),
            ScoreConfig::ScaledDot {} => "scaled dot-product attention".to_owned(),
            ScoreConfig::Bilinear {} => "bilinear attention".to_owned(),
            ScoreConfig::Additive { hidden_width } => {
                format!("additive attention of hidden width {hidden_width}")
            }
        }
    }
}

/// Weighs the values by the softmax of a score.
#[derive(Module, Debug)]
pub struct Scored {
    score: Score,
    #[module(skip)]
    dropout: f64,
    #[module(skip)]
    pub(super) role: Role,
}

/// A score and its parameters.
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

#[derive(Module, Debug)]
struct Additive {
    query: Linear,
    key: Linear,
    score: Linear,
}

impl Scored {
    /// Lets the queries gather.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        let sides = input.sides(self.role, pass);
        let (query, key) = match &self.score {
            Score::Dot(_) => (sides.queries, sides.keys),
            Score::Bilinear(score) => (
                attentive_tensor::linear(sides.queries, score.bilinear.val().transpose(), None),
                sides.keys,
            ),
            Score::Additive(score) => (
                score.query.forward(sides.queries),
                score.key.forward(sides.keys),
            ),
        };
        let heads = Projected::one_head(query, key, sides.values);
        let mut call = Call {
            site: AttentionSite {
                layer: input.layer,
                role: self.role,
            },
            real: sides.real,
            dropout: self.dropout,
            pass,
        };
        let (heads, _) = call.remember(heads, None);
        let mask = call.mask(0);
        let Context { context, weights } = match &self.score {
            Score::Dot(score) => call.attend(heads, &Scores::new(mask, score.scale)),
            Score::Bilinear(_) => call.attend(heads, &Scores::new(mask, 1.0)),
            Score::Additive(score) => {
                let scores = score.of(heads.query, heads.key);
                call.weigh_by(scores, &mask, heads.value)
            }
        };
        AttentionOutput {
            output: context.squeeze_dim(1),
            weights,
        }
    }
}

impl Additive {
    /// The scores `[batch, 1, queries, keys]` of mapped queries and keys.
    fn of(&self, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        let [batch, _, queries, hidden] = query.dims();
        let keys = key.dims()[2];
        let each = query.reshape([batch, queries, 1, hidden]) + key;
        let scores = self.score.forward(each.tanh());
        scores.reshape([batch, 1, queries, keys])
    }
}
