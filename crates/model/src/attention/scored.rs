//! Attention by a score of one's choice: dot and scaled dot products (Luong et al. 2015; Vaswani et al. 2017), bilinear (Luong
//! et al. 2015) and additive (Bahdanau et al. 2015).
//!
//! `output = softmax(score(query, key)) · values`, of sequences as they are, or of heads with maps of their own. All heads have
//! the same score.

use attentive_tensor::Scores;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::additive::Additive;
use super::pattern::{Call, Context, Projected};
use super::{
    Attention, AttentionSettings, CacheSize, CommonSettings, HeadsConfig, Pattern, Place,
    place::rotated, unprojected::maybe_projected,
};
use crate::checks::{probability, refuse, size};
use crate::{ConfigError, Initializer, Operations};

/// Settings of attention by a score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoredConfig {
    /// How well a key fits a query.
    pub score: ScoreConfig,
    /// How many heads map queries, keys and values first; without, these are taken as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
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

impl ScoredConfig {
    /// Width of the keys that are compared, in a model of this width.
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
        Some(HeadsConfig::plain(heads, self.dropout))
    }
}

impl AttentionSettings for ScoredConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.take_positions(path, "scored", rotated(self.heads))?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        if let ScoreConfig::Additive { hidden_width } = self.score {
            size(&format!("{path}.score.hidden_width"), hidden_width)?;
        }
        let widths = place.widths;
        if let Some(heads) = self.heads() {
            return heads.validate_plain(path, widths.queries);
        }
        place.give_values(path, "scored")?;
        match self.score {
            ScoreConfig::Dot {} | ScoreConfig::ScaledDot {} if widths.queries != widths.keys => {
                refuse(
                    &format!("{path}.score.kind"),
                    format!(
                        "a dot product needs queries (width {}) as wide as keys (width {}); use bilinear or additive, or say heads",
                        widths.queries, widths.keys
                    ),
                )
            }
            _ => Ok(()),
        }
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let heads = self.heads();
        let [queries, keys] = match &heads {
            Some(heads) => [heads.head_width(place.widths.queries); 2],
            None => [place.widths.queries, place.widths.keys],
        };
        let score = Score::new(&self.score, [queries, keys], place.deviation, initial);
        let pattern = Pattern::Scored(Scored { score });
        maybe_projected(pattern, heads, self.dropout, place, initial)
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let met = (length as u64).div_ceil(2);
        let count = self.heads.unwrap_or(1) as u64;
        let key_width = self.key_width(width) as u64;
        let (weights, scored) = match self.score {
            ScoreConfig::Dot {} | ScoreConfig::ScaledDot {} => (0, 2 * key_width),
            ScoreConfig::Bilinear {} => (2 * key_width * key_width, 2 * key_width),
            ScoreConfig::Additive { hidden_width } => {
                (4 * key_width * hidden_width as u64, 4 * hidden_width as u64)
            }
        };
        let maps = self
            .heads()
            .map_or(0, |heads| heads.operations(width, 0).weights);
        Operations {
            weights: maps + count * weights,
            attention: (count * (scored + 2 * key_width)).saturating_mul(met),
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

/// Weighs the values by the softmax of a score.
#[derive(Module, Debug)]
pub struct Scored {
    score: Score,
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

impl Score {
    /// For queries and keys of these widths.
    fn new(
        config: &ScoreConfig,
        [queries, keys]: [usize; 2],
        deviation: f64,
        initial: &mut Initializer,
    ) -> Self {
        match *config {
            ScoreConfig::Dot {} => Self::Dot(Dot { scale: 1.0 }),
            ScoreConfig::ScaledDot {} => Self::Dot(Dot {
                scale: 1.0 / (keys as f64).sqrt(),
            }),
            ScoreConfig::Bilinear {} => Self::Bilinear(Bilinear {
                bilinear: initial.normal([queries, keys], deviation),
            }),
            ScoreConfig::Additive { hidden_width } => Self::Additive(Additive::new(
                [queries, keys],
                hidden_width,
                deviation,
                initial,
            )),
        }
    }
}

impl Scored {
    pub(super) fn attend(&self, heads: Projected, mut call: Call) -> Context {
        let Projected { query, key, value } = heads;
        let (query, key) = match &self.score {
            Score::Dot(_) => (query, key),
            Score::Bilinear(score) => (
                attentive_tensor::linear(query, score.bilinear.val().transpose(), None),
                key,
            ),
            Score::Additive(score) => (score.map_queries(query), score.map_keys(key)),
        };
        let (heads, _) = call.remember(Projected { query, key, value }, None);
        let mask = call.mask(0);
        match &self.score {
            Score::Dot(score) => call.attend(heads, &Scores::new(mask, score.scale)),
            Score::Bilinear(_) => call.attend(heads, &Scores::new(mask, 1.0)),
            Score::Additive(score) => {
                let scores = score.of(heads.query, heads.key);
                call.weigh_by(scores, &mask, heads.value)
            }
        }
    }
}
