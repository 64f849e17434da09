//! Adaptive embedding and softmax: clusters of frequent tokens have wide embeddings, rare ones narrow, each projected to the
//! model's width; the softmax over the same clusters is cheap for rare tokens. Grave et al. 2017; Baevski and Auli 2019; Dai
//! et al. 2019.
//!
//! ```text
//! cutoffs = [20, 38], width = 16, divisor = 2, vocabulary 61
//!
//! tokens   0 … 19    width 16        head: one softmax over the first cluster's tokens and one entry per further cluster
//!         20 … 37    width  8        tail: log p(token) = log p(cluster) + log p(token | cluster)
//!         38 … 60    width  4
//! ```

use attentive_tensor::{embedding, linear};
use burn::module::{Module, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::checks::{refuse, size};
use crate::embeddings::Embedding;
use crate::{ConfigError, Initializer, Linear, StackConfig};

/// Settings of an adaptive embedding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveEmbeddingConfig {
    /// The first token of each cluster but the first.
    pub cutoffs: Vec<usize>,
    /// Width of the first cluster's embeddings.
    pub width: usize,
    /// By how much each cluster is narrower than the one before.
    pub divisor: usize,
}

/// The number of tokens of a cluster, and the width of their embeddings.
struct ClusterSize {
    tokens: usize,
    width: usize,
}

impl AdaptiveEmbeddingConfig {
    /// Clusters that end at these tokens; the embeddings of the first have this width.
    pub fn new(cutoffs: impl Into<Vec<usize>>, width: usize, divisor: usize) -> Self {
        Self {
            cutoffs: cutoffs.into(),
            width,
            divisor,
        }
    }

    /// Whether the settings are valid in `stack`.
    pub(crate) fn validate(&self, path: &str, stack: &StackConfig) -> Result<(), ConfigError> {
        size(&format!("{path}.width"), self.width)?;
        size(&format!("{path}.divisor"), self.divisor)?;
        let ends = self.cutoffs.iter().chain([&stack.vocabulary]);
        let mut start = 0;
        for end in ends {
            if *end <= start {
                return refuse(
                    &format!("{path}.cutoffs"),
                    format!(
                        "{:?} leave a cluster without tokens; use increasing numbers between 0 and {}",
                        self.cutoffs, stack.vocabulary
                    ),
                );
            }
            start = *end;
        }
        match self
            .clusters(stack.vocabulary)
            .iter()
            .all(|it| it.width > 0)
        {
            true => Ok(()),
            false => refuse(
                &format!("{path}.divisor"),
                format!(
                    "{} reduces the width {} to zero in {} clusters; use less",
                    self.divisor,
                    self.width,
                    self.cutoffs.len() + 1
                ),
            ),
        }
    }

    /// Flops per token of the softmax over all clusters on `stack`.
    pub(crate) fn softmax_flops(&self, stack: &StackConfig) -> u64 {
        let gate = 2 * self.width as u64 * self.cutoffs.len() as u64;
        let clusters = self.clusters(stack.vocabulary).into_iter();
        clusters.fold(gate, |sum, cluster| {
            let rows = (stack.states_width() as u64).saturating_add(cluster.tokens as u64);
            sum.saturating_add((2 * cluster.width as u64).saturating_mul(rows))
        })
    }

    fn clusters(&self, vocabulary: usize) -> Vec<ClusterSize> {
        let (mut start, mut width) = (0, self.width);
        let ends = self.cutoffs.iter().copied().chain([vocabulary]);
        ends.map(|end| {
            let cluster = ClusterSize {
                tokens: end - start,
                width,
            };
            (start, width) = (end, width / self.divisor);
            cluster
        })
        .collect()
    }
}

/// One cluster of an adaptive embedding: its table and the projection to the model's width.
#[derive(Module, Debug)]
pub struct AdaptiveEmbedding {
    table: Embedding,
    projection: Linear,
}

impl AdaptiveEmbedding {
    /// Builds all clusters of `stack`.
    pub(crate) fn all(
        config: &AdaptiveEmbeddingConfig,
        stack: &StackConfig,
        initializer: &mut Initializer,
    ) -> Vec<Self> {
        let std = stack.init_std;
        let clusters = config.clusters(stack.vocabulary).into_iter();
        clusters
            .map(|cluster| Self {
                table: Embedding::new([cluster.tokens, cluster.width], std, initializer),
                projection: Linear::new(cluster.width, stack.width, false, std, initializer),
            })
            .collect()
    }
}

/// The embeddings `[batch, length, width]` of `ids` `[batch, length]`.
pub(crate) fn embed(clusters: &[AdaptiveEmbedding], ids: &Tensor<2, Int>) -> Tensor<3> {
    let device = ids.device();
    let [batch, length] = ids.dims();
    let all_ids = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
    let mut start = 0;
    let embeddings = clusters.iter().map(|cluster| {
        let tokens = cluster.table.weight.dims()[0] as i64;
        let inside = |id: &i64| (start..start + tokens).contains(id);
        // Tokens of other clusters look up the first row here, and are multiplied by zero.
        let rows = all_ids.iter().map(|id| match inside(id) {
            true => id - start,
            false => 0,
        });
        let rows = TensorData::new(rows.collect::<Vec<_>>(), [batch, length]);
        let weights = all_ids.iter().map(|id| f32::from(inside(id)));
        let weights = TensorData::new(weights.collect::<Vec<_>>(), [batch, length, 1]);
        start += tokens;
        let rows = Tensor::from_data(rows, &device);
        let embeddings = embedding(cluster.table.weight.val(), rows);
        cluster.projection.forward(embeddings) * Tensor::<3>::from_data(weights, &device)
    });
    embeddings.reduce(Tensor::add).expect("there is a cluster")
}

/// Settings of an adaptive softmax. Its tables are those of the embedding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveSoftmaxConfig {
    /// Whether each cluster's projection is the transpose of the embedding's.
    pub tied_projections: Vec<bool>,
}

impl AdaptiveSoftmaxConfig {
    /// Says of each cluster whether its projection is tied to the embedding's.
    pub fn new(tied_projections: impl Into<Vec<bool>>) -> Self {
        Self {
            tied_projections: tied_projections.into(),
        }
    }

    /// Whether the settings are valid in `stack`.
    pub(crate) fn validate(&self, path: &str, stack: &StackConfig) -> Result<(), ConfigError> {
        let Some(embedding) = &stack.embedding.adaptive else {
            return refuse(
                path,
                "an adaptive softmax needs an adaptive embedding; set embedding.adaptive too",
            );
        };
        let count = embedding.cutoffs.len() + 1;
        match self.tied_projections.len() == count {
            true => Ok(()),
            false => refuse(
                &format!("{path}.tied_projections"),
                format!(
                    "{} are given for {count} clusters; give one for each",
                    self.tied_projections.len()
                ),
            ),
        }
    }
}

/// An adaptive softmax.
#[derive(Module, Debug)]
pub struct AdaptiveSoftmax {
    /// One entry per cluster after the first; absent where there is none.
    gate: Option<Linear>,
    clusters: Vec<SoftmaxCluster>,
}

/// The parameters of one cluster, besides the embedding's table.
#[derive(Module, Debug)]
struct SoftmaxCluster {
    /// `[tokens]`
    bias: Param<Tensor<1>>,
    /// `[width, width of the cluster]`, absent where tied to the embedding's projection
    projection: Option<Param<Tensor<2>>>,
}

impl AdaptiveSoftmax {
    /// Builds the head of `stack`.
    pub(crate) fn new(
        config: &AdaptiveSoftmaxConfig,
        embedding: &AdaptiveEmbeddingConfig,
        stack: &StackConfig,
        initializer: &mut Initializer,
    ) -> Self {
        let (width, std) = (stack.states_width(), stack.init_std);
        let others = embedding.cutoffs.len();
        let gate =
            (others > 0).then(|| Linear::new(embedding.width, others, true, std, initializer));
        let sizes = embedding.clusters(stack.vocabulary).into_iter();
        let clusters = sizes.zip(&config.tied_projections).map(|(size, tied)| {
            let bias = initializer.constant([size.tokens], 0.0);
            let projection = (!tied).then(|| initializer.normal([width, size.width], std));
            SoftmaxCluster { bias, projection }
        });
        Self {
            clusters: clusters.collect(),
            gate,
        }
    }

    /// Log-probabilities `[batch, length, vocabulary]` of hidden states; `embedding` has the embedding's clusters.
    pub fn forward(&self, states: Tensor<3>, embedding: &[AdaptiveEmbedding]) -> Tensor<3> {
        let mut gates: Option<Tensor<3>> = None;
        let mut log_probabilities = Vec::new();
        for (index, (own, embedding)) in self.clusters.iter().zip(embedding).enumerate() {
            let tied = &embedding.projection.weight;
            let projection = own.projection.as_ref().unwrap_or(tied).val();
            let projected = linear(states.clone(), projection.transpose(), None);
            let (weight, bias) = (embedding.table.weight.val(), own.bias.val());
            let Some(gates) = &gates else {
                let logits = linear(projected.clone(), weight, Some(bias));
                let tokens = logits.dims()[2];
                let logits = match &self.gate {
                    Some(gate) => Tensor::cat(vec![logits, gate.forward(projected)], 2),
                    None => logits,
                };
                let head = log_softmax(logits, 2);
                log_probabilities.push(head.clone().narrow(2, 0, tokens));
                let others = head.dims()[2] - tokens;
                gates = Some(match others {
                    0 => head,
                    others => head.narrow(2, tokens, others),
                });
                continue;
            };
            let tail = log_softmax(linear(projected, weight, Some(bias)), 2);
            log_probabilities.push(tail + gates.clone().narrow(2, index - 1, 1));
        }
        Tensor::cat(log_probabilities, 2)
    }
}
