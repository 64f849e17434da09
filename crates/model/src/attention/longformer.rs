//! Longformer: a window around each position, and a few global positions that attend to all and that all attend to. Beltagy et
//! al. 2020.
//!
//! ```text
//!              keys
//!              0 1 2 3 4 5 6       window = 2, position 0 is global
//! queries  0   ◆ ◆ ◆ ◆ ◆ ◆ ◆       ◆ by global_query, global_key and global_value
//!          1   █ █ █               █ by query, key and value
//!          2   █ █ █ █
//!          3   █   █ █ █
//!          4   █     █ █ █
//! ```
//!
//! As in Hugging Face's Longformer, the output of padding is zero. The cost is linear in the length: times the window, plus
//! times the number of globals. A local query has one softmax over its window and the globals: attention to the window without
//! globals and attention to the globals are computed separately and merged.

mod layout;

use std::collections::BTreeSet;

use attentive_tensor::{
    Mask, PartialAttention, ScoreBias, Scores, apply_weights, attention, attention_weights,
    attention_with_log_sum_exp, dropout, merge_partial_attention,
};
use burn::module::Module;
use burn::tensor::{Bool, Shape, Tensor, TensorData};

use self::layout::Layout;
use super::heads::with_heads;
use super::multi_head::{merge_heads, project};
use super::pairwise_bias::{mask_bias, pairwise_bias};
use super::pattern::{AttendContext, PatternOutput, Qkv};
use super::{
    Attention, AttentionInput, AttentionSettings, AttentionSpec, CacheSize, HeadsConfig,
    RelativePositions, Role,
};
use crate::checks::{refuse, size};
use crate::setters;
use crate::{AttentionSite, ConfigError, Flops, ForwardContext, Initializer, Linear};

with_heads! {
    /// Settings of Longformer's attention.
    pub struct LongformerConfig {
        /// The window, half of it on each side of the query, so it must be even. A causal layer has only the half before it.
        pub window: usize,
        /// The distance between neighbouring keys of a window; 1 leaves no gaps.
        #[serde(default = "one")]
        pub dilation: usize,
        /// How many of the first positions that are not padding are always global. The caller may name others.
        #[serde(default)]
        pub globals: usize,
    }

    /// `heads` heads with windows of this size.
    new(window: usize) { dilation: one(), globals: 0 }
}

fn one() -> usize {
    1
}

impl LongformerConfig {
    setters! {
        with_dilation(dilation: usize);
        with_globals(globals: usize);
    }

    /// The largest distance within a window.
    fn max_distance(&self) -> usize {
        (self.window / 2).saturating_mul(self.dilation)
    }
}

impl AttentionSettings for LongformerConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        spec.require_role(path, "longformer", &[Role::Bidirectional, Role::Causal])?;
        spec.require_positions(path, "longformer", &[RelativePositions::Rotary])?;
        let field = format!("{path}.window");
        size(&field, self.window)?;
        if !self.window.is_multiple_of(2) {
            let problem =
                "is odd, and half of the window is on each side of the query; use an even number";
            return refuse(&field, format!("{} {problem}", self.window));
        }
        let field = format!("{path}.dilation");
        size(&field, self.dilation)?;
        size(&field, self.max_distance())?;
        let field = format!("{path}.globals");
        if spec.role == Role::Causal && self.globals > 0 {
            let problem =
                "is out of range; use 0 in a causal layer, since globals attend to later positions";
            return refuse(&field, format!("{} {problem}", self.globals));
        }
        if self.globals > spec.length {
            let problem = format!("is out of range; use 0 to {}", spec.length);
            return refuse(&field, format!("{} {problem}", self.globals));
        }
        self.heads_config().validate(path, spec.widths.queries)?;
        self.heads_config().refuse_head_norm(path, "longformer")
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let (heads, width) = (self.heads_config(), spec.widths.queries);
        let head_width = heads.head_width(width);
        let query_width = heads.heads * head_width;
        let key_value_width = heads.key_value_heads() * head_width;
        let projection = |output, initializer: &mut Initializer| {
            Linear::new(width, output, heads.bias, spec.init_std, initializer)
        };
        let query = projection(query_width, initializer);
        let key = projection(key_value_width, initializer);
        let value = projection(key_value_width, initializer);
        let output = Linear::new(
            query_width,
            spec.widths.output,
            heads.output_bias,
            spec.residual_std,
            initializer,
        );
        // The caller may name globals, so a bidirectional layer has these projections even if the config names none.
        let mut global =
            |output| (spec.role != Role::Causal).then(|| projection(output, initializer));
        Attention::Longformer(Longformer {
            query,
            key,
            value,
            output,
            global_query: global(query_width),
            global_key: global(key_value_width),
            global_value: global(key_value_width),
            window: self.window,
            dilation: self.dilation,
            globals: self.globals,
            heads,
            head_width,
            role: spec.role,
        })
    }

    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        let (heads, globals) = (self.heads_config(), self.globals as u64);
        if globals == 0 {
            let keys = role.average_keys_in_window(length, self.window / 2 + 1);
            return heads.flops(width, keys as u64);
        }
        // Only bidirectional layers have globals. Each of them attends to all tokens, which costs every token one more key.
        let local = length.min(self.window + 1 + self.globals) as u64;
        let Flops { weights, attention } = heads.flops(width, local + globals);
        let query_width = (heads.heads * heads.head_width(width)) as u64;
        let projected = query_width + heads.key_value_size(width);
        Flops {
            weights: weights + 2 * width as u64 * projected,
            attention,
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        if self.globals > 0 {
            return CacheSize::Impossible;
        }
        // The buffer has twice the window's capacity, so that its contents are rarely moved.
        let capacity = 2 * (self.max_distance() as u64 + 1);
        CacheSize::Fixed(capacity.saturating_mul(self.heads_config().key_value_size(width)))
    }

    fn describe(&self, width: usize) -> String {
        let dilation = match self.dilation {
            1 => String::new(),
            dilation => format!(", dilation {dilation}"),
        };
        let kind = format!(
            "longformer window of {}{dilation}, {} globals",
            self.window, self.globals
        );
        self.heads_config().describe(&kind, width)
    }
}

/// Attention in a window, and from and to global positions.
#[derive(Module, Debug)]
pub struct Longformer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// The projections of global attention; a causal layer has none of the three.
    global_query: Option<Linear>,
    global_key: Option<Linear>,
    global_value: Option<Linear>,
    #[module(skip)]
    window: usize,
    #[module(skip)]
    dilation: usize,
    #[module(skip)]
    globals: usize,
    #[module(skip)]
    heads: HeadsConfig,
    #[module(skip)]
    head_width: usize,
    #[module(skip)]
    pub(super) role: Role,
}

impl Longformer {
    /// The attention output of each query, `[batch, queries, width]`.
    ///
    /// # Panics
    /// When a bidirectional layer is given a cache, or a causal one global positions; or when shapes do not match.
    pub fn forward(&self, input: AttentionInput, pass: &mut ForwardContext) -> Tensor<3> {
        let layer = input.layer;
        let (x, memory) = input.queries_and_memory(self.role, pass);
        assert!(
            pass.cache.is_none() || self.role == Role::Causal,
            "longformer attention: {:?} attention was given a cache",
            self.role
        );
        let projections = [&self.query, &self.key, &self.value];
        let local = self.project(x.clone(), projections, pass);
        let mut context = AttendContext {
            site: AttentionSite {
                layer,
                role: self.role,
            },
            non_padding: memory.non_padding,
            dropout: self.heads.dropout,
            pass,
        };
        let window = (self.window / 2).saturating_mul(self.dilation) + 1;
        let (local, evicted) = context.append_to_cache(local, Some(window));
        let layout = self.layout(&local, evicted, &context);
        let global = (layout.max_globals() > 0)
            .then(|| self.project(x, self.global_projections(), context.pass));
        let PatternOutput { output, .. } = match context.wants_weights() {
            true => attend_with_weights(local, global, &layout, &mut context),
            false => attend(local, global, &layout, &mut context),
        };
        self.output.forward(merge_heads(output))
    }

    fn project(&self, x: Tensor<3>, projections: [&Linear; 3], pass: &ForwardContext) -> Qkv {
        let norms = [None, None];
        project(x, projections, norms, &self.heads, self.head_width, pass)
    }

    fn global_projections(&self) -> [&Linear; 3] {
        [&self.global_query, &self.global_key, &self.global_value].map(|projection| {
            projection
                .as_ref()
                .expect("longformer attention: causal attention has no global positions")
        })
    }

    /// The pattern over the cached keys, after eviction of the first `evicted`.
    fn layout(&self, qkv: &Qkv, evicted: usize, context: &AttendContext) -> Layout {
        let [batch, _, queries, _] = qkv.query.dims();
        let keys = qkv.key.dims()[2];
        let cached = |position: usize| position.saturating_sub(evicted).min(keys);
        let non_padding = match &context.non_padding {
            Some(rows) => rows
                .iter()
                .map(|it| cached(it.start)..cached(it.end))
                .collect(),
            None => std::iter::repeat_n(0..keys, batch).collect::<Vec<_>>(),
        };
        let none = vec![Vec::new(); batch];
        let given = context.pass.globals.as_ref().unwrap_or(&none);
        assert!(
            non_padding.len() == batch && given.len() == batch,
            "longformer attention: {} ranges of keys and {} lists of globals do not match queries {:?}",
            non_padding.len(),
            given.len(),
            qkv.query.dims()
        );
        let globals = non_padding.iter().zip(given).map(|(non_padding, given)| {
            assert!(
                given.iter().all(|position| *position < keys),
                "longformer attention: globals {given:?} do not fit {keys} positions"
            );
            let first = non_padding.clone().take(self.globals);
            let all: BTreeSet<usize> = first.chain(given.iter().copied()).collect();
            // Padding is never global.
            all.into_iter()
                .filter(|it| non_padding.contains(it))
                .collect()
        });
        Layout {
            half_window: self.window / 2,
            dilation: self.dilation,
            role: self.role,
            queries,
            keys,
            globals: globals.collect(),
            non_padding,
        }
    }
}

/// Attention without the full attention matrix.
fn attend(
    local: Qkv,
    global: Option<Qkv>,
    layout: &Layout,
    context: &mut AttendContext,
) -> PatternOutput {
    let (scale, dropout) = (local.scale(), context.dropout);
    let to_window = attend_to_window(local.clone(), layout, context);
    let Some(global) = global else {
        return PatternOutput {
            output: layout.scatter_globals(to_window.context, None),
            weights: None,
        };
    };
    let globals = layout.globals.iter().map(|globals| 0..globals.len());
    let scores = Scores::new(Mask::none().with_keys(globals.collect()), scale);
    let to_globals = attention_with_log_sum_exp(
        local.query,
        layout.gather_globals(local.key),
        layout.gather_globals(local.value),
        &scores,
        dropout,
        context.pass.randomness.as_deref_mut(),
    );
    let of_locals = merge_partial_attention(vec![to_window, to_globals]).context;
    let scores = Scores::new(Mask::none().with_keys(layout.non_padding.clone()), scale);
    let of_globals = attention(
        layout.gather_globals(global.query),
        global.key,
        global.value,
        &scores,
        dropout,
        context.pass.randomness.as_deref_mut(),
    );
    PatternOutput {
        output: layout.scatter_globals(of_locals, Some(of_globals)),
        weights: None,
    }
}

/// Attention of all queries to the keys of their windows that are not global.
fn attend_to_window(qkv: Qkv, layout: &Layout, context: &mut AttendContext) -> PartialAttention {
    let mask = layout.role.mask().with_window(layout.half_window + 1);
    let scores = Scores {
        bias: layout
            .global_mask_bias(&qkv.key.device())
            .map(ScoreBias::Keys),
        ..Scores::new(mask.with_keys(layout.dilated_non_padding()), qkv.scale())
    };
    let attended = attention_with_log_sum_exp(
        layout.split_dilated(qkv.query),
        layout.split_dilated(qkv.key),
        layout.split_dilated(qkv.value),
        &scores,
        context.dropout,
        context.pass.randomness.as_deref_mut(),
    );
    let log_sum_exp = attended.log_sum_exp.unsqueeze_dim(3);
    PartialAttention {
        context: layout.merge_dilated(attended.context),
        log_sum_exp: layout.merge_dilated(log_sum_exp).squeeze_dim(3),
    }
}

/// The same, materializing the attention weights for an observer that requests them.
fn attend_with_weights(
    local: Qkv,
    global: Option<Qkv>,
    layout: &Layout,
    context: &mut AttendContext,
) -> PatternOutput {
    let (scale, device) = (local.scale(), local.query.device());
    let pairs = [layout.non_padding.len(), layout.queries, layout.keys];
    let scores = |attends: &dyn Fn(usize, usize, usize) -> bool| Scores {
        bias: Some(pairwise_bias(pairs, &device, |row, query, key| {
            mask_bias(attends(row, query, key))
        })),
        ..Scores::new(Mask::none(), scale)
    };
    let local_scores = scores(&|row, query, key| layout.attends(row, query, key));
    let weights = attention_weights(local.query, local.key, &local_scores);
    let Some(global) = global else {
        return context.attend_with_weights(weights, local.value);
    };
    let global_scores = scores(&|row, query, key| {
        layout.is_global(row, query) && layout.non_padding[row].contains(&key)
    });
    // Each row of the weights is zero in one of the two.
    let weights = weights + attention_weights(global.query, global.key, &global_scores);
    let weights = context.observe_weights(weights);
    let after_dropout = dropout(
        weights.clone(),
        context.dropout,
        context.pass.randomness.as_deref_mut(),
    );
    let [batch, _, queries, _] = weights.dims();
    let rows = (0..batch).flat_map(|row| (0..queries).map(move |query| (row, query)));
    let is_global = rows.map(|(row, query)| layout.is_global(row, query));
    let is_global = TensorData::new(is_global.collect::<Vec<bool>>(), [batch, 1, queries, 1]);
    let is_global = Tensor::<4, Bool>::from_data(is_global, &device);
    let is_global = is_global.expand(Shape::from(weights.dims()));
    let of_locals = after_dropout.clone().mask_fill(is_global.clone(), 0.0);
    let of_globals = after_dropout.mask_fill(is_global.bool_not(), 0.0);
    PatternOutput {
        output: apply_weights(of_locals, local.value) + apply_weights(of_globals, global.value),
        weights: Some(weights),
    }
}
