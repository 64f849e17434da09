//! Score and mask modifiers: softmax attention whose scores a closure changes, for experiments that need no file of their own.
//! In the manner of PyTorch's FlexAttention, Dong et al. 2024.
//!
//! ```text
//! weights = softmax(score(q·k / √head_width, head, query, key) where mask(head, query, key))
//! ```
//!
//! The closure of scores works on tensors of all pairs, so that gradients flow through it. Scores are then materialized, and
//! memory is quadratic in the length; a mask alone leaves the kernel of full attention in use.

use std::fmt;
use std::sync::Arc;

use attentive_tensor::{Mask, ScoreBias, Scores};
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{
    CustomPattern, PatternInput, PatternParameter, PatternParameters, PatternSpec, RegisterError,
    register,
};
use crate::attention::pairwise_bias::mask_bias;
use crate::attention::{PatternOutput, Qkv, RelativePositions};

type Score = dyn Fn(PairScores) -> Tensor<4> + Send + Sync;
type MaskFn = dyn Fn(Pair) -> bool + Send + Sync;
type Declare = dyn Fn(&PatternSpec) -> Vec<PatternParameter> + Send + Sync;

/// Softmax attention with a closure that changes scores, one that masks pairs, or both. Closures cannot be saved: the name under
/// which they are registered is.
///
/// ```
/// use attentive_model::attention::ScoreModifier;
///
/// // ALiBi within blocks of 64 positions.
/// ScoreModifier::new()
///     .score(|pairs| pairs.scores.clone() - pairs.distances().abs() * 0.25)
///     .mask(|pair| pair.query / 64 == pair.key / 64)
///     .register("near_in_block")?;
/// # Ok::<(), attentive_model::attention::RegisterError>(())
/// ```
#[derive(Clone, Default)]
pub struct ScoreModifier {
    score: Option<Arc<Score>>,
    mask: Option<Arc<MaskFn>>,
    parameters: Option<Arc<Declare>>,
}

/// The scores of all pairs, before the mask and the softmax, and where each pair is. The index tensors broadcast to the scores.
#[derive(Clone, Debug)]
pub struct PairScores<'a> {
    /// `q·k / √head_width`, plus the relative position bias of the model: `[batch, heads, queries, keys]`
    pub scores: Tensor<4>,
    /// The head, `[1, heads, 1, 1]`
    pub heads: Tensor<4, Int>,
    /// The position of the query, `[1, 1, queries, 1]`
    pub queries: Tensor<4, Int>,
    /// The position of the key, `[1, 1, 1, keys]`
    pub keys: Tensor<4, Int>,
    /// The parameters that the modifier declares.
    pub parameters: PatternParameters<'a>,
}

impl PairScores<'_> {
    /// The position of the key minus that of the query, `[1, 1, queries, keys]`
    pub fn distances(&self) -> Tensor<4> {
        (self.keys.clone() - self.queries.clone()).float()
    }
}

/// A pair of a query and a key, in one head. Positions count from the first of the sequence, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The head.
    pub head: usize,
    /// The position of the query.
    pub query: usize,
    /// The position of the key.
    pub key: usize,
}

impl ScoreModifier {
    /// Full attention.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes the scores. The new score of a pair should depend on that pair alone: what is computed across keys sees later
    /// positions and padding, which are masked only afterwards.
    #[must_use]
    pub fn score(
        mut self,
        score: impl Fn(PairScores) -> Tensor<4> + Send + Sync + 'static,
    ) -> Self {
        self.score = Some(Arc::new(score));
        self
    }

    /// Masks the pairs for which the closure returns false, besides later positions of causal attention and padding.
    #[must_use]
    pub fn mask(mut self, mask: impl Fn(Pair) -> bool + Send + Sync + 'static) -> Self {
        self.mask = Some(Arc::new(mask));
        self
    }

    /// Declares parameters that the scores depend on.
    #[must_use]
    pub fn with_parameters(
        mut self,
        declare: impl Fn(&PatternSpec) -> Vec<PatternParameter> + Send + Sync + 'static,
    ) -> Self {
        self.parameters = Some(Arc::new(declare));
        self
    }

    /// Registers it as a kind without settings besides those of the heads. One with settings is registered by [`register`],
    /// whose factory makes a modifier from them.
    pub fn register(self, kind: &str) -> Result<(), RegisterError> {
        register(kind, move |settings| match settings.keys().next() {
            None => Ok(self.clone()),
            // As serde has it, so that recipes report it as they do for other kinds.
            Some(key) => Err(format!("unknown field `{key}`, there are no fields")),
        })
    }
}

impl fmt::Debug for ScoreModifier {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter
            .debug_struct("ScoreModifier")
            .field("score", &self.score.is_some())
            .field("mask", &self.mask.is_some())
            .field("parameters", &self.parameters.is_some())
            .finish()
    }
}

impl CustomPattern for ScoreModifier {
    fn positions(&self) -> &[RelativePositions] {
        &[RelativePositions::Rotary, RelativePositions::Bias]
    }

    fn parameters(&self, spec: &PatternSpec) -> Vec<PatternParameter> {
        let declare = self.parameters.as_ref();
        declare.map_or_else(Vec::new, |declare| declare(spec))
    }

    fn attend(&self, input: PatternInput) -> PatternOutput {
        let PatternInput {
            qkv,
            mask,
            bias,
            first_query,
            first_key,
            parameters,
            mut context,
        } = input;
        let scale = qkv.scale();
        let [_, heads, queries, _] = qkv.query.dims();
        let keys = qkv.key.dims()[2];
        let device = qkv.query.device();
        let mask_of_pairs = self.mask.as_ref().map(|mask| {
            let pairs = (0..heads).flat_map(|head| {
                let queries = first_query..first_query + queries;
                queries.flat_map(move |query| {
                    let keys = first_key..first_key + keys;
                    keys.map(move |key| Pair { head, query, key })
                })
            });
            let values: Vec<f32> = pairs.map(|pair| mask_bias(mask(pair))).collect();
            let values = TensorData::new(values, [1, heads, queries, keys]);
            Tensor::<4>::from_data(values, &device)
        });
        if self.score.is_none() && (bias.is_none() || mask_of_pairs.is_none()) {
            let bias = mask_of_pairs.map(ScoreBias::Pairs).or(bias);
            return context.attend(qkv, &Scores { mask, scale, bias });
        }
        let Qkv { query, key, value } = qkv;
        let unmasked = Scores {
            mask: Mask::none(),
            scale,
            bias,
        };
        let mut scores = unmasked.of(query, key);
        if let Some(score) = &self.score {
            let dims = scores.dims();
            let indices = |axis: usize, first: usize| indices(axis, first, dims[axis], &device);
            scores = score(PairScores {
                scores,
                heads: indices(1, 0),
                queries: indices(2, first_query),
                keys: indices(3, first_key),
                parameters,
            });
            assert!(
                scores.dims() == dims,
                "{} attention: the modified scores {:?} do not match {dims:?}",
                parameters.kind,
                scores.dims()
            );
        }
        if let Some(mask_of_pairs) = mask_of_pairs {
            scores = scores + mask_of_pairs;
        }
        context.attend_with_scores(scores, &mask, value)
    }
}

/// `first`, `first + 1`, … along one of the four axes.
fn indices(axis: usize, first: usize, count: usize, device: &Device) -> Tensor<4, Int> {
    let mut shape = [1; 4];
    shape[axis] = count;
    let indices: Vec<i64> = (first..first + count).map(|index| index as i64).collect();
    Tensor::from_data(TensorData::new(indices, shape), device)
}
