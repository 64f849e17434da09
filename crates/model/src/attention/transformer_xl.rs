//! Transformer-XL: attention over the segment and a memory of earlier ones, with relative positions. Dai et al. 2019.
//!
//! ```text
//! score(query i, key j) = ((query_i + content_bias) · key_j + (query_i + position_bias) · position_(i - j)) / √head_width
//! ```
//!
//! A position is the map of the sinusoidal encoding of a distance, so the scores know no place in the sequence but only how
//! far back a key lies, and keys of an earlier segment can be met again. The memory is the last `memory` inputs of this
//! layer, kept by the cache: keys and values are made of it anew, with the weights of today, and no gradient flows into it.

use std::ops::Range;

use attentive_tensor::{Mask, ScoreBias, Scores};
use burn::module::{Module, Param};
use burn::tensor::{Int, Shape, Tensor};
use serde::{Deserialize, Serialize};

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
        /// What is remembered before the first pass; nothing unless said.
        #[serde(default, skip_serializing_if = "is_empty")]
        pub start: MemoryStart,
        /// How many keys a query sees, its own among them; all before it unless said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub window: Option<usize>,
        /// Distances beyond this one count as it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub farthest: Option<usize>,
    }
}

/// What is remembered before the first pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStart {
    /// Nothing.
    #[default]
    Empty,
    /// As many zeros as the memory holds, which are seen like any other position: a key of zeros still has the score of its
    /// distance.
    Zeros,
}

fn is_empty(start: &MemoryStart) -> bool {
    *start == MemoryStart::Empty
}

impl AttentionSettings for TransformerXlConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        let kind = "Transformer-XL";
        place.serve(path, kind, &[Role::Causal])?;
        place.take_positions(path, kind, &[])?;
        size(&format!("{path}.memory"), self.memory)?;
        for (field, value) in [("window", self.window), ("farthest", self.farthest)] {
            if let Some(value) = value {
                size(&format!("{path}.{field}"), value)?;
            }
        }
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
            start: self.start,
            window: self.window,
            farthest: self.farthest,
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
    start: MemoryStart,
    #[module(skip)]
    window: Option<usize>,
    #[module(skip)]
    farthest: Option<usize>,
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
                segment.start_with(|| self.zeros(&queries));
                (segment.extend(queries.clone()), segment.dropped())
            }
            None => match self.zeros(&queries) {
                Some(zeros) => (Tensor::cat(vec![zeros, queries.clone()], 1), 0),
                None => (queries.clone(), 0),
            },
        };
        let real = real.map(|rows| self.after_zeros(rows));
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
            ..Scores::new(self.windowed(call.mask(dropped)), scale)
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

    /// What is remembered before the first of these inputs.
    fn zeros(&self, queries: &Tensor<3>) -> Option<Tensor<3>> {
        let [batch, _, width] = queries.dims();
        let zeros = || Tensor::zeros([batch, self.memory, width], &queries.device());
        (self.start == MemoryStart::Zeros).then(zeros)
    }

    /// Where keys are real when zeros may stand before the first.
    ///
    /// # Panics
    /// When zeros do, and padding stands between them and the first real position.
    fn after_zeros(&self, rows: Vec<Range<usize>>) -> Vec<Range<usize>> {
        if self.start == MemoryStart::Empty {
            return rows;
        }
        let row = |real: Range<usize>| {
            assert_eq!(
                real.start, 0,
                "Transformer-XL attention: padding before {real:?} parts it from the memory of zeros; pad on the right"
            );
            0..self.memory + real.end
        };
        rows.into_iter().map(row).collect()
    }

    fn windowed(&self, mask: Mask) -> Mask {
        match self.window {
            Some(window) => mask.with_window(window),
            None => mask,
        }
    }

    /// What the distance of each pair adds to its score, `[batch, heads, queries, keys]`, of scaled queries.
    fn position_scores(&self, query: Tensor<4>, scale: f64, keys: usize) -> Tensor<4> {
        let width = self.positions.weight.dims()[1];
        // Farthest first, as the keys stand.
        let distances = Tensor::<1, Int>::arange(0..keys as i64, &query.device()).flip([0]);
        let distances = match self.farthest {
            Some(farthest) => distances.clamp_max(farthest as i64),
            None => distances,
        };
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
