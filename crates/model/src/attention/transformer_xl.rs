//! Transformer-XL: attention over the segment and a memory of earlier ones, with relative positions. Dai et al. 2019.
//!
//! ```text
//! score(query i, key j) = ((query_i + content_bias) · key_j + (query_i + position_bias) · position_(i - j)) / √head_width
//! ```
//!
//! A position is the map of the sinusoidal encoding of a distance, so the scores know no place in the sequence but only how
//! far back a key lies, and keys of an earlier segment can be met again. The memory is the last `memory` inputs of this
//! layer, kept by the cache: keys and values are made of it anew, with the weights of today, and no gradient flows into it.

use attentive_tensor::{ScoreBias, Scores};
use burn::module::{Module, Param};
use burn::tensor::{Int, Shape, Tensor};

use super::heads::with_heads;
use super::pattern::{Call, Projected};
use super::{
    Attention, AttentionInput, AttentionOutput, AttentionSettings, CacheSize, Place, Role, Sides,
};
use crate::checks::{refuse, size};
use crate::{
    AttentionSite, ConfigError, Initializer, Linear, Operations, Pass, SinusoidLayout, sinusoid,
};

with_heads! {
    /// Settings of Transformer-XL's attention.
    pub struct TransformerXlConfig {
        /// How many earlier positions are remembered from pass to pass.
        pub memory: usize,
    }
}

impl AttentionSettings for TransformerXlConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        let kind = "Transformer-XL";
        place.serve(path, kind, &[Role::Causal])?;
        place.take_positions(path, kind, &[])?;
        size(&format!("{path}.memory"), self.memory)?;
        let width = place.widths.queries;
        if !width.is_multiple_of(2) {
            return refuse(
                &format!("{path}.kind"),
                format!(
                    "{kind} attention has as many sines as cosines; use an even width, not {width}"
                ),
            );
        }
        self.shared().validate(path, width)?;
        self.shared().refuse_head_norm(path, kind)?;
        self.shared().refuse_groups(path, kind)
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let (shared, width, deviation) = (self.shared(), place.widths.queries, place.deviation);
        let head_width = shared.head_width(width);
        let (heads, inner) = (shared.heads, shared.heads * head_width);
        let mut map = |bias| Linear::new(width, inner, bias, deviation, initial);
        Attention::TransformerXl(TransformerXl {
            query: map(shared.bias),
            key: map(shared.bias),
            value: map(shared.bias),
            positions: map(false),
            output: Linear::new(
                inner,
                place.widths.output,
                shared.output_bias,
                place.residual_deviation,
                initial,
            ),
            content_bias: initial.normal([heads, head_width], deviation),
            position_bias: initial.normal([heads, head_width], deviation),
            memory: self.memory,
            dropout: shared.dropout,
        })
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let shared = self.shared();
        let inner = (shared.heads * shared.head_width(width)) as u64;
        let met = (length as u64).div_ceil(2);
        let Operations { weights, attention } = shared.operations(width, met);
        // There are as many distances as tokens, and every query meets each of them before the shift.
        Operations {
            weights: weights + 2 * width as u64 * inner,
            attention: attention.saturating_add((2 * inner).saturating_mul(length as u64)),
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Fixed((self.memory as u64).saturating_mul(width as u64))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("Transformer-XL with a memory of {}", self.memory);
        self.shared().describe(&kind, width)
    }
}

/// Attention over a segment and its memory.
#[derive(Module, Debug)]
pub struct TransformerXl {
    query: Linear,
    key: Linear,
    value: Linear,
    /// Maps encoded distances.
    positions: Linear,
    output: Linear,
    /// `[heads, head_width]`, what every query asks of contents; `u` in the paper.
    content_bias: Param<Tensor<2>>,
    /// `[heads, head_width]`, what every query asks of distances; `v` in the paper.
    position_bias: Param<Tensor<2>>,
    #[module(skip)]
    memory: usize,
    #[module(skip)]
    dropout: f64,
}

impl TransformerXl {
    /// Lets the queries gather.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        let Sides { queries, real, .. } = input.sides(Role::Causal, pass);
        let (met, dropped) = match pass.cache.as_deref_mut() {
            Some(cache) => {
                let segment = cache.segment(input.layer, self.memory);
                (segment.extend(queries.clone()), segment.dropped())
            }
            None => (queries.clone(), 0),
        };
        let query = self.split(self.query.forward(queries));
        let mut call = Call {
            site: AttentionSite {
                layer: input.layer,
                role: Role::Causal,
            },
            real,
            dropout: self.dropout,
            pass,
        };
        let heads = Projected {
            query: query.clone() + per_head(&self.content_bias),
            key: self.split(self.key.forward(met.clone())),
            value: self.split(self.value.forward(met)),
        };
        let scale = call.scale(&heads);
        let keys = heads.key.dims()[2];
        let bias = self.position_scores(query * scale, scale, keys);
        let scores = Scores {
            bias: Some(ScoreBias::Pairs(bias)),
            ..Scores::new(call.mask(dropped), scale)
        };
        let attended = call.attend(heads, &scores);
        let [batch, heads, length, head_width] = attended.context.dims();
        let context = attended.context.swap_dims(1, 2);
        AttentionOutput {
            output: self
                .output
                .forward(context.reshape([batch, length, heads * head_width])),
            weights: attended.weights,
        }
    }

    /// What the distance of each pair adds to its score, `[batch, heads, queries, keys]`, of scaled queries.
    fn position_scores(&self, query: Tensor<4>, scale: f64, keys: usize) -> Tensor<4> {
        let width = self.positions.weight.dims()[1];
        // Farthest first, as the keys stand.
        let distances = Tensor::<1, Int>::arange(0..keys as i64, &query.device()).flip([0]);
        let encodings = sinusoid(distances.unsqueeze(), width, SinusoidLayout::Concatenated);
        let positions = self.split(self.positions.forward(encodings));
        let positions = positions.squeeze_dim::<3>(0).swap_dims(1, 2);
        let query = query + per_head(&self.position_bias) * scale;
        // All sequences meet the same distances, so they stand below each other in one product per head. (Broadcast to no
        // sequences at all, Flex reads beyond its operands.)
        let [batch, heads, queries, head_width] = query.dims();
        let rows: Tensor<3> =
            query
                .swap_dims(0, 1)
                .reshape(Shape::from([heads, batch * queries, head_width]));
        let scores = rows.matmul(positions);
        let scores: Tensor<4> = scores.reshape(Shape::from([heads, batch, queries, keys]));
        shifted(scores.swap_dims(0, 1))
    }

    /// `[batch, length, heads · head_width]` to `[batch, heads, length, head_width]`
    fn split(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, length, _] = x.dims();
        let [heads, head_width] = self.content_bias.dims();
        x.reshape([batch, length, heads, head_width])
            .swap_dims(1, 2)
    }
}

/// A bias of each head, ready to be added to its queries.
fn per_head(bias: &Param<Tensor<2>>) -> Tensor<4> {
    let [heads, head_width] = bias.dims();
    bias.val().reshape([1, heads, 1, head_width])
}

/// Moves each query's scores by distance to the keys at these distances, without an index: a column in front, and the
/// numbers read in rows that are one shorter.
///
/// ```text
/// distances 3 2 1 0          0 a3 a2 a1 a0                  keys 0  1  2  3
///   query 0 a3 a2 a1 a0      0 b3 b2 b1 b0    the numbers     0 a2 a1 a0  0   query 0 stands at key 2
///   query 1 b3 b2 b1 b0                       from a2 on      1 b3 b2 b1 b0   query 1 stands at key 3
/// ```
///
/// What lies behind a query's own key is of no meaning, and hidden by the causal mask.
fn shifted(scores: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, keys] = scores.dims();
    let front = Tensor::zeros([batch, heads, queries, 1], &scores.device());
    Tensor::cat(vec![front, scores], 3)
        .reshape([batch, heads, keys + 1, queries])
        .narrow(2, 1, keys)
        .reshape([batch, heads, queries, keys])
}
