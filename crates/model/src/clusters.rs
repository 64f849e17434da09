//! Tokens in clusters: frequent ones have wide vectors, rare ones narrow, each mapped to the model's width; and scores of the
//! same clusters, in which rare tokens cost little. Grave et al. 2017; Baevski and Auli 2019; Dai et al. 2019.
//!
//! ```text
//! cutoffs = [20, 38], width = 16, divisor = 2, vocabulary 61
//!
//! tokens   0 … 19    width 16        scores: the first cluster's tokens and one entry per other cluster in one softmax,
//!         20 … 37    width  8        log p(token) = log p(cluster) + log p(token | cluster)
//!         38 … 60    width  4
//! ```

use attentive_tensor::{embedding, linear};
use burn::module::{Module, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::{refuse, size};
use crate::{ConfigError, Embedding, Initializer, Linear, ModelConfig};

/// Settings of tokens in clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClustersConfig {
    /// The first token of each cluster but the first.
    pub cutoffs: Vec<usize>,
    /// Width of the first cluster's vectors.
    pub width: usize,
    /// How many times narrower than the one before each further cluster is.
    pub divisor: usize,
}

/// One cluster: its tokens from the first on, and the width of their vectors.
struct Cluster {
    tokens: usize,
    width: usize,
}

impl ClustersConfig {
    /// Whether the settings can work in `model`.
    pub(crate) fn validate(&self, path: &str, model: &ModelConfig) -> Result<(), ConfigError> {
        size(&format!("{path}.width"), self.width)?;
        size(&format!("{path}.divisor"), self.divisor)?;
        let ends = self.cutoffs.iter().chain([&model.vocabulary]);
        let mut before = 0;
        for end in ends {
            if *end <= before {
                return refuse(
                    &format!("{path}.cutoffs"),
                    format!(
                        "{:?} leave a cluster without tokens; use rising numbers between 0 and {}",
                        self.cutoffs, model.vocabulary
                    ),
                );
            }
            before = *end;
        }
        match self.parts(model.vocabulary).iter().all(|it| it.width > 0) {
            true => Ok(()),
            false => refuse(
                &format!("{path}.divisor"),
                format!(
                    "{} leaves nothing of the width {} in {} clusters; use less",
                    self.divisor,
                    self.width,
                    self.cutoffs.len() + 1
                ),
            ),
        }
    }

    fn parts(&self, vocabulary: usize) -> Vec<Cluster> {
        let (mut start, mut width) = (0, self.width);
        let ends = self.cutoffs.iter().copied().chain([vocabulary]);
        ends.map(|end| {
            let part = Cluster {
                tokens: end - start,
                width,
            };
            (start, width) = (end, width / self.divisor);
            part
        })
        .collect()
    }
}

/// The vectors of one cluster's tokens, and their way to the model's width.
#[derive(Module, Debug)]
pub struct ClusterEmbedding {
    table: Embedding,
    map: Linear,
}

impl ClusterEmbedding {
    /// Builds all clusters of `model`.
    pub(crate) fn all(
        config: &ClustersConfig,
        model: &ModelConfig,
        initial: &mut Initializer,
    ) -> Vec<Self> {
        let deviation = model.initial_deviation;
        let parts = config.parts(model.vocabulary).into_iter();
        parts
            .map(|part| Self {
                table: Embedding::new([part.tokens, part.width], deviation, initial),
                map: Linear::new(part.width, model.width, false, deviation, initial),
            })
            .collect()
    }

    /// The table's weights.
    pub(crate) fn table(&self) -> &Param<Tensor<2>> {
        &self.table.weight
    }
}

/// The vectors `[batch, length, width]` of `ids` `[batch, length]`.
pub(crate) fn embed(clusters: &[ClusterEmbedding], ids: &Tensor<2, Int>) -> Tensor<3> {
    let device = ids.device();
    let [batch, length] = ids.dims();
    let numbers = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
    let mut start = 0;
    let parts = clusters.iter().map(|cluster| {
        let tokens = cluster.table.weight.dims()[0] as i64;
        let inside = |id: &i64| (start..start + tokens).contains(id);
        // Tokens of other clusters are looked up as the first here, and weigh nothing.
        let places = numbers.iter().map(|id| match inside(id) {
            true => id - start,
            false => 0,
        });
        let places = TensorData::new(places.collect::<Vec<_>>(), [batch, length]);
        let shares = numbers.iter().map(|id| f32::from(inside(id)));
        let shares = TensorData::new(shares.collect::<Vec<_>>(), [batch, length, 1]);
        start += tokens;
        let places = Tensor::from_data(places, &device);
        let vectors = embedding(cluster.table.weight.val(), places);
        cluster.map.forward(vectors) * Tensor::<3>::from_data(shares, &device)
    });
    parts.reduce(Tensor::add).expect("there is a cluster")
}

/// Settings of scores by clusters. The tables are those of the embedding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveConfig {
    /// Whether each cluster's map is that of the embedding, the other way round.
    pub tied_maps: Vec<bool>,
}

impl AdaptiveConfig {
    /// Whether the settings can work in `model`.
    pub(crate) fn validate(&self, path: &str, model: &ModelConfig) -> Result<(), ConfigError> {
        let Some(clusters) = &model.embedding.clusters else {
            return refuse(
                path,
                "there are no clusters to score; say embedding.clusters too",
            );
        };
        let count = clusters.cutoffs.len() + 1;
        match self.tied_maps.len() == count {
            true => Ok(()),
            false => refuse(
                &format!("{path}.tied_maps"),
                format!(
                    "{} are said and there are {count} clusters; say one for each",
                    self.tied_maps.len()
                ),
            ),
        }
    }
}

/// Logarithms of the probabilities of all tokens, by clusters.
#[derive(Module, Debug)]
pub struct Adaptive {
    /// One entry per cluster but the first, which has no other.
    gate: Option<Linear>,
    clusters: Vec<ClusterScores>,
}

/// What a cluster's scores have beside the embedding's table.
#[derive(Module, Debug)]
struct ClusterScores {
    /// `[tokens]`
    bias: Param<Tensor<1>>,
    /// `[width, width of the cluster]`, where the embedding's does not serve
    map: Option<Param<Tensor<2>>>,
}

impl Adaptive {
    /// Builds the head of `model`.
    pub(crate) fn new(
        config: &AdaptiveConfig,
        clusters: &ClustersConfig,
        model: &ModelConfig,
        initial: &mut Initializer,
    ) -> Self {
        let (width, deviation) = (model.states_width(), model.initial_deviation);
        let others = clusters.cutoffs.len();
        let gate =
            (others > 0).then(|| Linear::new(clusters.width, others, true, deviation, initial));
        let parts = clusters.parts(model.vocabulary).into_iter();
        let scores = parts.zip(&config.tied_maps).map(|(part, tied)| {
            let bias = initial.constant([part.tokens], 0.0);
            let map = (!tied).then(|| initial.normal([width, part.width], deviation));
            ClusterScores { bias, map }
        });
        Self {
            clusters: scores.collect(),
            gate,
        }
    }

    /// Logarithms of probabilities `[batch, length, vocabulary]` of states; `tokens` are the embedding's clusters.
    pub fn forward(&self, states: Tensor<3>, tokens: &[ClusterEmbedding]) -> Tensor<3> {
        let mut gates: Option<Tensor<3>> = None;
        let mut scores = Vec::new();
        for (index, (own, tokens)) in self.clusters.iter().zip(tokens).enumerate() {
            let map = own.map.as_ref().unwrap_or(&tokens.map.weight).val();
            let mapped = linear(states.clone(), map.transpose(), None);
            let (weight, bias) = (tokens.table.weight.val(), own.bias.val());
            let Some(gates) = &gates else {
                let words = linear(mapped.clone(), weight, Some(bias));
                let words_only = words.dims()[2];
                let first = match &self.gate {
                    Some(gate) => Tensor::cat(vec![words, gate.forward(mapped)], 2),
                    None => words,
                };
                let first = log_softmax(first, 2);
                scores.push(first.clone().narrow(2, 0, words_only));
                let others = first.dims()[2] - words_only;
                gates = Some(match others {
                    0 => first,
                    others => first.narrow(2, words_only, others),
                });
                continue;
            };
            let inside = log_softmax(linear(mapped, weight, Some(bias)), 2);
            scores.push(inside + gates.clone().narrow(2, index - 1, 1));
        }
        Tensor::cat(scores, 2)
    }
}
