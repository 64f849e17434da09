//! Longformer: a window around each position, and a few positions that see all and are seen by all. Beltagy et al. 2020.
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
//! As in Hugging Face's Longformer, a query of padding gathers nothing. Cost grows with the length times the window and with
//! the length times the globals. A local query's softmax is over the union of its window without the globals, and of the
//! globals: the two are attended to apart and merged.

use std::collections::BTreeSet;

use attentive_tensor::{
    Attended, Mask, ScoreBias, Scores, apply_weights, attention, attention_weights,
    attention_with_log_sums, dropout, merge_attended,
};
use burn::module::Module;
use burn::tensor::{Bool, Shape, Tensor, TensorData};

use super::heads::with_heads;
use super::multi_head::project;
use super::pattern::{Call, Context, Projected};
use super::sight::Sight;
use super::{
    Attention, AttentionInput, AttentionOutput, AttentionSettings, CacheSize, HeadsConfig, Place,
    RelativePositions, Role,
};
use crate::checks::{refuse, size};
use crate::{AttentionSite, ConfigError, Initializer, Linear, Operations, Pass};

with_heads! {
    /// Settings of Longformer's attention.
    pub struct LongformerConfig {
        /// A query sees half as many keys to each side, so it is even; in a causal layer the half before it alone.
        pub window: usize,
        /// How far the keys of a window lie apart; 1 leaves no gaps.
        #[serde(default = "no_gaps")]
        pub dilation: usize,
        /// How many of the first real positions are always global. A pass may name others.
        #[serde(default)]
        pub globals: usize,
    }
}

fn no_gaps() -> usize {
    1
}

impl LongformerConfig {
    /// How far a query sees to one side.
    fn farthest(&self) -> usize {
        (self.window / 2).saturating_mul(self.dilation)
    }
}

impl AttentionSettings for LongformerConfig {
    fn validate(&self, path: &str, place: &Place) -> Result<(), ConfigError> {
        place.serve(path, "longformer", &[Role::Bidirectional, Role::Causal])?;
        place.take_positions(path, "longformer", &[RelativePositions::Rotary])?;
        let field = format!("{path}.window");
        size(&field, self.window)?;
        if !self.window.is_multiple_of(2) {
            let problem = "is odd; both sides of a query see half of it: use an even number";
            return refuse(&field, format!("{} {problem}", self.window));
        }
        let field = format!("{path}.dilation");
        size(&field, self.dilation)?;
        size(&field, self.farthest())?;
        let field = format!("{path}.globals");
        if place.role == Role::Causal && self.globals > 0 {
            let problem =
                "is more than a causal layer can have, since they see later positions; use 0";
            return refuse(&field, format!("{} {problem}", self.globals));
        }
        if self.globals > place.length {
            let problem = format!("is out of range; use 0 to {}", place.length);
            return refuse(&field, format!("{} {problem}", self.globals));
        }
        self.shared().validate(path, place.widths.queries)?;
        self.shared().refuse_head_norm(path, "longformer")
    }

    fn build(&self, place: &Place, initial: &mut Initializer) -> Attention {
        let (heads, width) = (self.shared(), place.widths.queries);
        let head_width = heads.head_width(width);
        let inner = heads.heads * head_width;
        let shared = heads.key_value_heads() * head_width;
        let map = |size, initial: &mut Initializer| {
            Linear::new(width, size, heads.bias, place.deviation, initial)
        };
        let (query, key) = (map(inner, initial), map(shared, initial));
        let value = map(shared, initial);
        let output = Linear::new(
            inner,
            place.widths.output,
            heads.output_bias,
            place.residual_deviation,
            initial,
        );
        // Which positions are global may be said by each pass, so they are there even if the settings name none.
        let mut global = |size| (place.role != Role::Causal).then(|| map(size, initial));
        Attention::Longformer(Longformer {
            query,
            key,
            value,
            output,
            global_query: global(inner),
            global_key: global(shared),
            global_value: global(shared),
            window: self.window,
            dilation: self.dilation,
            globals: self.globals,
            heads,
            head_width,
            role: place.role,
        })
    }

    fn operations(&self, width: usize, length: usize) -> Operations {
        let (shared, globals) = (self.shared(), self.globals as u64);
        if globals == 0 {
            let met = length.div_ceil(2).min(self.window / 2 + 1);
            return shared.operations(width, met as u64);
        }
        // Only a layer that is not causal has globals; each of them meets all, so every token meets each once more.
        let local = length.min(self.window + 1 + self.globals) as u64;
        let Operations { weights, attention } = shared.operations(width, local + globals);
        let inner = (shared.heads * shared.head_width(width)) as u64;
        let maps = inner + shared.key_value_numbers(width);
        Operations {
            weights: weights + 2 * width as u64 * maps,
            attention,
        }
    }

    fn cache(&self, width: usize) -> CacheSize {
        if self.globals > 0 {
            return CacheSize::Impossible;
        }
        // Room for as many again, so that old positions need to be moved out only once in a while.
        let held = 2 * (self.farthest() as u64 + 1);
        CacheSize::Fixed(held.saturating_mul(self.shared().key_value_numbers(width)))
    }

    fn describe(&self, width: usize) -> String {
        let gaps = match self.dilation {
            1 => String::new(),
            dilation => format!(", {dilation} apart"),
        };
        let kind = format!(
            "longformer window of {}{gaps}, {} globals",
            self.window, self.globals
        );
        self.shared().describe(&kind, width)
    }
}

/// Attention in a window, and from and to global positions.
#[derive(Module, Debug)]
pub struct Longformer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// The maps by which global queries see all; a causal layer has none of the three.
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
    /// Lets the queries gather.
    ///
    /// # Panics
    /// When a layer that is not causal is given a cache, or a causal one global positions; or when shapes do not fit.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        let sides = input.sides(self.role, pass);
        assert!(
            pass.cache.is_none() || self.role == Role::Causal,
            "longformer attention: {:?} attention was given a cache",
            self.role
        );
        let x = sides.queries;
        let [batch, length, _] = x.dims();
        let maps = [&self.query, &self.key, &self.value];
        let none = [None, None];
        let local = project(x.clone(), maps, none, &self.heads, self.head_width, pass);
        let mut call = Call {
            site: AttentionSite {
                layer: input.layer,
                role: self.role,
            },
            real: sides.real,
            dropout: self.heads.dropout,
            pass,
        };
        let reach = (self.window / 2).saturating_mul(self.dilation) + 1;
        let (local, dropped) = call.remember(local, Some(reach));
        let sight = self.sight(&local, dropped, &call);
        let global = (sight.slots() > 0).then(|| {
            project(
                x,
                self.global_maps(),
                none,
                &self.heads,
                self.head_width,
                call.pass,
            )
        });
        let Context { context, weights } = match call.wants_weights() {
            true => weighed(local, global, &sight, &mut call),
            false => gathered(local, global, &sight, &mut call),
        };
        let inner = self.heads.heads * self.head_width;
        let context = context.swap_dims(1, 2).reshape([batch, length, inner]);
        AttentionOutput {
            output: self.output.forward(context),
            weights,
        }
    }

    fn global_maps(&self) -> [&Linear; 3] {
        let maps = [&self.global_query, &self.global_key, &self.global_value];
        maps.map(|map| {
            map.as_ref()
                .expect("longformer attention: causal attention has no global positions")
        })
    }

    /// Who sees whom, when `dropped` positions of the cache are gone.
    fn sight(&self, heads: &Projected, dropped: usize, call: &Call) -> Sight {
        let [batch, _, queries, _] = heads.query.dims();
        let keys = heads.key.dims()[2];
        let kept = |position: usize| position.saturating_sub(dropped).min(keys);
        let real = match &call.real {
            Some(real) => real.iter().map(|it| kept(it.start)..kept(it.end)).collect(),
            None => std::iter::repeat_n(0..keys, batch).collect::<Vec<_>>(),
        };
        let none = vec![Vec::new(); batch];
        let given = call.pass.globals.as_ref().unwrap_or(&none);
        assert!(
            real.len() == batch && given.len() == batch,
            "longformer attention: {} ranges of keys and {} lists of globals do not fit queries {:?}",
            real.len(),
            given.len(),
            heads.query.dims()
        );
        let globals = real.iter().zip(given).map(|(real, given)| {
            assert!(
                given.iter().all(|position| *position < keys),
                "longformer attention: globals {given:?} do not fit {keys} positions"
            );
            let first = real.clone().take(self.globals);
            let all: BTreeSet<usize> = first.chain(given.iter().copied()).collect();
            // Padding sees nothing and is not seen, whoever calls it global.
            all.into_iter().filter(|it| real.contains(it)).collect()
        });
        Sight {
            reach: self.window / 2,
            dilation: self.dilation,
            role: self.role,
            queries,
            keys,
            globals: globals.collect(),
            real,
        }
    }
}

/// The context of each query, never by a matrix of all pairs.
fn gathered(
    local: Projected,
    global: Option<Projected>,
    sight: &Sight,
    call: &mut Call,
) -> Context {
    let (scale, dropout) = (call.scale(&local), call.dropout);
    let near = in_window(local.clone(), sight, call);
    let Some(global) = global else {
        return Context {
            context: sight.settled(near.context, None),
            weights: None,
        };
    };
    let slots = sight.globals.iter().map(|globals| 0..globals.len());
    let scores = Scores::new(Mask::none().with_keys(slots.collect()), scale);
    let far = attention_with_log_sums(
        local.query,
        sight.picked(local.key),
        sight.picked(local.value),
        &scores,
        dropout,
        call.pass.randomness.as_deref_mut(),
    );
    let context = merge_attended(vec![near, far]).context;
    let scores = Scores::new(Mask::none().with_keys(sight.real.clone()), scale);
    let of_globals = attention(
        sight.picked(global.query),
        global.key,
        global.value,
        &scores,
        dropout,
        call.pass.randomness.as_deref_mut(),
    );
    Context {
        context: sight.settled(context, Some(of_globals)),
        weights: None,
    }
}

/// Attention of all queries to those keys of their windows that are not global.
fn in_window(heads: Projected, sight: &Sight, call: &mut Call) -> Attended {
    let mask = sight.role.mask().with_window(sight.reach + 1);
    let scores = Scores {
        bias: sight
            .hidden_globals(&heads.key.device())
            .map(ScoreBias::Keys),
        ..Scores::new(mask.with_keys(sight.interleaved_real()), call.scale(&heads))
    };
    let attended = attention_with_log_sums(
        sight.interleaved(heads.query),
        sight.interleaved(heads.key),
        sight.interleaved(heads.value),
        &scores,
        call.dropout,
        call.pass.randomness.as_deref_mut(),
    );
    let log_sums = attended.log_sums.unsqueeze_dim(3);
    Attended {
        context: sight.in_order(attended.context),
        log_sums: sight.in_order(log_sums).squeeze_dim(3),
    }
}

/// The same by the matrix of weights, for an observer who asks for it.
fn weighed(local: Projected, global: Option<Projected>, sight: &Sight, call: &mut Call) -> Context {
    let (scale, device) = (call.scale(&local), local.query.device());
    let scores = |sees: &dyn Fn(usize, usize, usize) -> bool| Scores {
        bias: Some(ScoreBias::Pairs(sight.pairs(sees, &device))),
        ..Scores::new(Mask::none(), scale)
    };
    let by_local = scores(&|row, query, key| sight.sees(row, query, key));
    let weights = attention_weights(local.query, local.key, &by_local);
    let Some(global) = global else {
        return call.weigh(weights, local.value);
    };
    let by_global =
        scores(&|row, query, key| sight.is_global(row, query) && sight.real[row].contains(&key));
    // A row has weights in one of the two alone.
    let weights = weights + attention_weights(global.query, global.key, &by_global);
    let weights = call.show(weights);
    let kept = dropout(
        weights.clone(),
        call.dropout,
        call.pass.randomness.as_deref_mut(),
    );
    let [batch, _, queries, _] = weights.dims();
    let rows = (0..batch).flat_map(|row| (0..queries).map(move |query| (row, query)));
    let is_global = rows.map(|(row, query)| sight.is_global(row, query));
    let is_global = TensorData::new(is_global.collect::<Vec<bool>>(), [batch, 1, queries, 1]);
    let is_global = Tensor::<4, Bool>::from_data(is_global, &device);
    let is_global = is_global.expand(Shape::from(weights.dims()));
    let of_locals = kept.clone().mask_fill(is_global.clone(), 0.0);
    let of_globals = kept.mask_fill(is_global.bool_not(), 0.0);
    Context {
        context: apply_weights(of_locals, local.value) + apply_weights(of_globals, global.value),
        weights: Some(weights),
    }
}
