//! Multi-head attention: projections around a pattern. Vaswani et al. 2017; grouped key-value heads, Ainslie et al. 2023;
//! norms of the heads of queries and keys, Dehghani et al. 2023.

use attentive_tensor::{rotary, three_linears};
use burn::module::Module;
use burn::tensor::Tensor;

use super::pattern::{Call, Projected};
use super::{AttentionInput, AttentionOutput, HeadsConfig, Memory, Pattern, Place, Role};
use crate::{AttentionSite, Initializer, Linear, Norm, Pass};

/// Projects to heads, lets a pattern attend, and projects back.
#[derive(Module, Debug)]
pub struct MultiHead {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    pattern: Pattern,
    #[module(skip)]
    heads: HeadsConfig,
    #[module(skip)]
    head_width: usize,
    #[module(skip)]
    pub(super) role: Role,
}

impl MultiHead {
    /// Builds the layer around `pattern`.
    pub fn new(
        heads: &HeadsConfig,
        pattern: Pattern,
        place: &Place,
        initial: &mut Initializer,
    ) -> Self {
        let (widths, deviation) = (place.widths, place.deviation);
        let head_width = heads.head_width(widths.queries);
        let inner = heads.heads * head_width;
        let shared = heads.key_value_heads() * head_width;
        let mut norm = || {
            let config = heads.head_norm.as_ref()?;
            Some(Norm::new(config, head_width, initial))
        };
        Self {
            query_norm: norm(),
            key_norm: norm(),
            query: Linear::new(widths.queries, inner, heads.bias, deviation, initial),
            key: Linear::new(widths.keys, shared, heads.bias, deviation, initial),
            value: Linear::new(widths.values, shared, heads.bias, deviation, initial),
            output: Linear::new(
                inner,
                widths.output,
                heads.output_bias,
                place.residual_deviation,
                initial,
            ),
            pattern,
            heads: heads.clone(),
            head_width,
            role: place.role,
        }
    }

    /// What happens between the projections.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The same layer around another pattern.
    #[must_use]
    pub fn with_pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Draws anew what is drawn anew at this step.
    pub(super) fn redraw(self, step: u64) -> Self {
        Self {
            pattern: self.pattern.redraw(step),
            ..self
        }
    }

    /// Lets the queries gather.
    pub fn forward(&self, input: AttentionInput, pass: &mut Pass) -> AttentionOutput {
        let AttentionInput {
            queries,
            memory,
            layer,
        } = input;
        let [batch, length, _] = queries.dims();
        let real = match &memory {
            Some(memory) => memory.real.clone(),
            None => pass.real.clone(),
        };
        let heads = match (self.role, memory) {
            (Role::Cross, Some(memory)) => self.project_two(queries, memory, layer, pass),
            (Role::Bidirectional | Role::Causal, None) => {
                let maps = [&self.query, &self.key, &self.value];
                let norms = [self.query_norm.as_ref(), self.key_norm.as_ref()];
                project(queries, maps, norms, &self.heads, self.head_width, pass)
            }
            (role, _) => {
                panic!("multi-head attention: {role:?} attention and its memory do not fit")
            }
        };
        let call = Call {
            site: AttentionSite {
                layer,
                role: self.role,
            },
            real,
            dropout: self.heads.dropout,
            pass,
        };
        let attended = self.pattern.attend(heads, call);
        let inner = self.heads.heads * self.head_width;
        let context = attended.context.swap_dims(1, 2);
        AttentionOutput {
            output: self.output.forward(context.reshape([batch, length, inner])),
            weights: attended.weights,
        }
    }

    /// Heads of a sequence that looks at another, whose keys and values a cache keeps from the first pass on.
    fn project_two(
        &self,
        queries: Tensor<3>,
        memory: Memory,
        layer: usize,
        pass: &mut Pass,
    ) -> Projected {
        let (shared, head_width) = (self.heads.key_value_heads(), self.head_width);
        let project = || {
            let key = self.key.forward(memory.keys);
            let value = self.value.forward(memory.values);
            (
                split(key, shared, head_width, self.key_norm.as_ref()),
                split(value, shared, head_width, None),
            )
        };
        let (key, value) = match pass.cache.as_deref_mut() {
            Some(cache) => cache.memory(layer, project),
            None => project(),
        };
        let query = self.query.forward(queries);
        let norm = self.query_norm.as_ref();
        Projected {
            query: split(query, self.heads.heads, head_width, norm),
            key,
            value,
        }
    }
}

/// Heads of a sequence that looks at itself, by the maps of queries, keys and values and the norms of the first two.
pub(super) fn project(
    x: Tensor<3>,
    maps: [&Linear; 3],
    [query_norm, key_norm]: [Option<&Norm>; 2],
    heads: &HeadsConfig,
    head_width: usize,
    pass: &Pass,
) -> Projected {
    let [query, key, value] = three_linears(x, maps.map(Linear::operands));
    let shared = heads.key_value_heads();
    let mut heads = Projected {
        query: split(query, heads.heads, head_width, query_norm),
        key: split(key, shared, head_width, key_norm),
        value: split(value, shared, head_width, None),
    };
    if let Some(angles) = &pass.rotary {
        heads.query = rotary(heads.query, angles);
        heads.key = rotary(heads.key, angles);
    }
    heads
}

/// `[batch, length, heads · head_width]` to `[batch, heads, length, head_width]`, each head through the norm if there is one.
fn split(x: Tensor<3>, heads: usize, head_width: usize, norm: Option<&Norm>) -> Tensor<4> {
    let [batch, length, _] = x.dims();
    let mut x = x.reshape([batch, length, heads, head_width]);
    if let Some(norm) = norm {
        x = norm.forward(x);
    }
    x.swap_dims(1, 2)
}
