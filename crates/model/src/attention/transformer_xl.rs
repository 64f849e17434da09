//! Transformer-XL: attention over the segment and a memory of earlier ones, with relative positions. Dai et al. 2019.
//!
//! ```text
//! score(query i, key j) = ((query_i + content_bias) · key_j + (query_i + position_bias) · position_(i - j)) / √head_width
//! ```
//!
//! `position_(i - j)` is the projected sinusoidal encoding of a distance. Scores depend on distances but not on absolute
//! positions, so keys of earlier segments can be reused. The memory is the last `memory` inputs of this layer, which the cache
//! stores: keys and values are recomputed from them with the current weights, and no gradient flows into them.

use std::ops::Range;

use attentive_tensor::{Mask, ScoreBias, Scores};
use burn::module::{Module, Param};
use burn::tensor::{Int, Shape, Tensor};
use serde::{Deserialize, Serialize};

use super::heads::with_heads;
use super::multi_head::{merge_heads, split_heads};
use super::pattern::{AttendContext, Qkv};
use super::{Attention, AttentionInput, AttentionSettings, AttentionSpec, CacheSize, Role};
use crate::checks::{refuse, size};
use crate::positions::{SinusoidLayout, sinusoid};
use crate::setters;
use crate::{AttentionSite, ConfigError, Flops, ForwardContext, Initializer, Linear};

with_heads! {
    /// Settings of Transformer-XL's attention.
    pub struct TransformerXlConfig {
        /// How many earlier inputs the cache keeps.
        pub memory: usize,
        /// The memory before the first pass; empty by default.
        #[serde(default, skip_serializing_if = "is_empty")]
        pub start: MemoryStart,
        /// How many keys a query attends to, including its own; all earlier ones by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub window: Option<usize>,
        /// Larger distances are clamped to this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_distance: Option<usize>,
    }

    /// `heads` heads with a memory of this length.
    new(memory: usize) { start: MemoryStart::default(), window: None, max_distance: None }
}

impl TransformerXlConfig {
    setters! {
        with_start(start: MemoryStart);
        with_window(window: usize => Some);
        with_max_distance(max_distance: usize => Some);
    }
}

/// The memory before the first pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStart {
    /// No memory.
    #[default]
    Empty,
    /// A full memory of zeros, which are not masked: a key of zeros still has the score of its distance.
    Zeros,
}

fn is_empty(start: &MemoryStart) -> bool {
    *start == MemoryStart::Empty
}

impl AttentionSettings for TransformerXlConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        let kind = "Transformer-XL";
        spec.require_role(path, kind, &[Role::Causal])?;
        spec.require_positions(path, kind, &[])?;
        size(&format!("{path}.memory"), self.memory)?;
        for (field, value) in [("window", self.window), ("max_distance", self.max_distance)] {
            if let Some(value) = value {
                size(&format!("{path}.{field}"), value)?;
            }
        }
        let width = spec.widths.queries;
        if !width.is_multiple_of(2) {
            return refuse(
                &format!("{path}.kind"),
                format!(
                    "{kind} attention needs as many sines as cosines; use an even width, not {width}"
                ),
            );
        }
        self.heads_config().validate(path, width)?;
        self.heads_config().refuse_head_norm(path, kind)?;
        self.heads_config().refuse_groups(path, kind)
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let (heads_config, width, std) = (self.heads_config(), spec.widths.queries, spec.init_std);
        let head_width = heads_config.head_width(width);
        let (heads, inner) = (heads_config.heads, heads_config.heads * head_width);
        let mut projection = |bias| Linear::new(width, inner, bias, std, initializer);
        Attention::TransformerXl(TransformerXl {
            query: projection(heads_config.bias),
            key: projection(heads_config.bias),
            value: projection(heads_config.bias),
            positions: projection(false),
            output: Linear::new(
                inner,
                spec.widths.output,
                heads_config.output_bias,
                spec.residual_std,
                initializer,
            ),
            content_bias: initializer.normal([heads, head_width], std),
            position_bias: initializer.normal([heads, head_width], std),
            memory: self.memory,
            start: self.start,
            window: self.window,
            max_distance: self.max_distance,
            dropout: heads_config.dropout,
        })
    }

    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        let heads_config = self.heads_config();
        let inner = (heads_config.heads * heads_config.head_width(width)) as u64;
        let keys = role.average_keys(length) as u64;
        let Flops { weights, attention } = heads_config.flops(width, keys);
        // There are as many distances as tokens, and every query has a score with each of them before the shift.
        Flops {
            weights: weights + 2 * width as u64 * inner,
            attention: attention.saturating_add((2 * inner).saturating_mul(length as u64)),
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        CacheSize::Fixed((self.memory as u64).saturating_mul(width as u64))
    }

    fn describe(&self, width: usize) -> String {
        let kind = format!("Transformer-XL with a memory of {}", self.memory);
        self.heads_config().describe(&kind, width)
    }
}

/// Attention over a segment and its memory.
#[derive(Module, Debug)]
pub struct TransformerXl {
    query: Linear,
    key: Linear,
    value: Linear,
    /// Projects the encodings of distances.
    positions: Linear,
    output: Linear,
    /// `[heads, head_width]`, a bias of the queries for content scores; `u` in the paper.
    content_bias: Param<Tensor<2>>,
    /// `[heads, head_width]`, a bias of the queries for position scores; `v` in the paper.
    position_bias: Param<Tensor<2>>,
    #[module(skip)]
    memory: usize,
    #[module(skip)]
    start: MemoryStart,
    #[module(skip)]
    window: Option<usize>,
    #[module(skip)]
    max_distance: Option<usize>,
    #[module(skip)]
    dropout: f64,
}

impl TransformerXl {
    /// The attention output of each query, `[batch, queries, width]`.
    pub fn forward(&self, input: AttentionInput, pass: &mut ForwardContext) -> Tensor<3> {
        let layer = input.layer;
        let (queries, memory) = input.queries_and_memory(Role::Causal, pass);
        let (inputs, evicted) = match pass.cache.as_deref_mut() {
            Some(cache) => {
                let segment = cache.segment(layer, self.memory);
                segment.start_with(|| self.initial_memory(&queries));
                (segment.extend(queries.clone()), segment.evicted())
            }
            None => match self.initial_memory(&queries) {
                Some(zeros) => (Tensor::cat(vec![zeros, queries.clone()], 1), 0),
                None => (queries.clone(), 0),
            },
        };
        let non_padding = memory.non_padding.map(|rows| self.after_zeros(rows));
        let query = self.split_heads(self.query.forward(queries));
        let mut context = AttendContext {
            site: AttentionSite {
                layer,
                role: Role::Causal,
            },
            non_padding,
            dropout: self.dropout,
            pass,
        };
        let qkv = Qkv {
            query: query.clone() + per_head(&self.content_bias),
            key: self.split_heads(self.key.forward(inputs.clone())),
            value: self.split_heads(self.value.forward(inputs)),
        };
        let scale = qkv.scale();
        let keys = qkv.key.dims()[2];
        let bias = self.position_scores(query * scale, scale, keys);
        let scores = Scores {
            bias: Some(ScoreBias::Pairs(bias)),
            ..Scores::new(self.windowed(context.mask(evicted)), scale)
        };
        let attended = context.attend(qkv, &scores);
        self.output.forward(merge_heads(attended.output))
    }

    /// The memory before the first of these inputs.
    fn initial_memory(&self, queries: &Tensor<3>) -> Option<Tensor<3>> {
        let [batch, _, width] = queries.dims();
        let zeros = || Tensor::zeros([batch, self.memory, width], &queries.device());
        (self.start == MemoryStart::Zeros).then(zeros)
    }

    /// The keys that are not padding, after an initial memory of zeros.
    ///
    /// # Panics
    /// When there are zeros, and padding between them and the sequence.
    fn after_zeros(&self, rows: Vec<Range<usize>>) -> Vec<Range<usize>> {
        if self.start == MemoryStart::Empty {
            return rows;
        }
        let row = |non_padding: Range<usize>| {
            assert_eq!(
                non_padding.start, 0,
                "Transformer-XL attention: there is padding between the memory of zeros and {non_padding:?}; pad on the right"
            );
            0..self.memory + non_padding.end
        };
        rows.into_iter().map(row).collect()
    }

    fn windowed(&self, mask: Mask) -> Mask {
        match self.window {
            Some(window) => mask.with_window(window),
            None => mask,
        }
    }

    /// The position scores `[batch, heads, queries, keys]` of scaled queries.
    fn position_scores(&self, query: Tensor<4>, scale: f64, keys: usize) -> Tensor<4> {
        let width = self.positions.weight.dims()[1];
        // Largest first, in the order of the keys.
        let distances = Tensor::<1, Int>::arange(0..keys as i64, &query.device()).flip([0]);
        let distances = match self.max_distance {
            Some(max_distance) => distances.clamp_max(max_distance as i64),
            None => distances,
        };
        let encodings = sinusoid(distances.unsqueeze(), width, SinusoidLayout::Concatenated);
        let positions = self.split_heads(self.positions.forward(encodings));
        let positions = positions.squeeze_dim::<3>(0).swap_dims(1, 2);
        let query = query + per_head(&self.position_bias) * scale;
        // All sequences have the same distances, so the batch is merged into the rows of one product per head. (A broadcast
        // product with an empty batch reads out of bounds.)
        let [batch, heads, queries, head_width] = query.dims();
        let rows: Tensor<3> =
            query
                .swap_dims(0, 1)
                .reshape(Shape::from([heads, batch * queries, head_width]));
        let scores = rows.matmul(positions);
        let scores: Tensor<4> = scores.reshape(Shape::from([heads, batch, queries, keys]));
        relative_shift(scores.swap_dims(0, 1))
    }

    fn split_heads(&self, x: Tensor<3>) -> Tensor<4> {
        let [heads, head_width] = self.content_bias.dims();
        split_heads(x, heads, head_width, None)
    }
}

/// A bias per head, shaped to be added to queries.
fn per_head(bias: &Param<Tensor<2>>) -> Tensor<4> {
    let [heads, head_width] = bias.dims();
    bias.val().reshape([1, heads, 1, head_width])
}

/// Shifts scores by distance into scores by key without a gather, as in the paper: prepend a column of zeros, and reshape to
/// rows that are one shorter.
///
/// ```text
/// distances 3 2 1 0          0 a3 a2 a1 a0                  keys 0  1  2  3
///   query 0 a3 a2 a1 a0      0 b3 b2 b1 b0    reshaped        0 a2 a1 a0  0   query 0 is at key 2
///   query 1 b3 b2 b1 b0                       from a2 on      1 b3 b2 b1 b0   query 1 is at key 3
/// ```
///
/// Entries after a query's own key are meaningless, and masked by the causal mask.
fn relative_shift(scores: Tensor<4>) -> Tensor<4> {
    let [batch, heads, queries, keys] = scores.dims();
    let zeros = Tensor::zeros([batch, heads, queries, 1], &scores.device());
    Tensor::cat(vec![zeros, scores], 3)
        .reshape([batch, heads, keys + 1, queries])
        .narrow(2, 1, keys)
        .reshape([batch, heads, queries, keys])
}
