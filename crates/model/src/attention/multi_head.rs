//! Multi-head attention: projections around a pattern. Vaswani et al. 2017; grouped-query attention, Ainslie et al. 2023;
//! query-key normalization, Dehghani et al. 2023.

use attentive_tensor::{linear_qkv, rotary};
use burn::module::Module;
use burn::tensor::Tensor;

use super::pattern::{AttendContext, Qkv};
use super::{AttentionInput, AttentionSpec, HeadsConfig, Memory, Pattern, Role};
use crate::{AttentionSite, ForwardContext, Initializer, Linear, Norm};

/// Projects to heads, attends by a pattern, and projects back.
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
        spec: &AttentionSpec,
        initializer: &mut Initializer,
    ) -> Self {
        let (widths, std) = (spec.widths, spec.init_std);
        let head_width = heads.head_width(widths.queries);
        let query_width = heads.heads * head_width;
        let key_value_width = heads.key_value_heads() * head_width;
        let mut norm = || {
            let config = heads.head_norm.as_ref()?;
            Some(Norm::new(config, head_width, initializer))
        };
        Self {
            query_norm: norm(),
            key_norm: norm(),
            query: Linear::new(widths.queries, query_width, heads.bias, std, initializer),
            key: Linear::new(widths.keys, key_value_width, heads.bias, std, initializer),
            value: Linear::new(widths.values, key_value_width, heads.bias, std, initializer),
            output: Linear::new(
                query_width,
                widths.output,
                heads.output_bias,
                spec.residual_std,
                initializer,
            ),
            pattern,
            heads: heads.clone(),
            head_width,
            role: spec.role,
        }
    }

    /// The pattern between the projections.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Resamples random features when due.
    pub(super) fn resample_features(self, step: u64) -> Self {
        Self {
            pattern: self.pattern.resample_features(step),
            ..self
        }
    }

    /// The attention output of each query, `[batch, queries, width]`.
    pub fn forward(&self, input: AttentionInput, pass: &mut ForwardContext) -> Tensor<3> {
        let AttentionInput {
            queries,
            memory,
            layer,
        } = input;
        let non_padding = match &memory {
            Some(memory) => memory.non_padding.clone(),
            None => pass.non_padding.clone(),
        };
        let qkv = match (self.role, memory) {
            (Role::Cross, Some(memory)) => self.project_cross(queries, memory, layer, pass),
            (Role::Bidirectional | Role::Causal, None) => {
                let projections = [&self.query, &self.key, &self.value];
                let norms = [self.query_norm.as_ref(), self.key_norm.as_ref()];
                project(
                    queries,
                    projections,
                    norms,
                    &self.heads,
                    self.head_width,
                    pass,
                )
            }
            (role, _) => {
                panic!(
                    "multi-head attention: cross-attention needs a memory and self-attention takes none; the role is {role:?}"
                )
            }
        };
        let context = AttendContext {
            site: AttentionSite {
                layer,
                role: self.role,
            },
            non_padding,
            dropout: self.heads.dropout,
            pass,
        };
        let attended = self.pattern.attend(qkv, context);
        self.output.forward(merge_heads(attended.output))
    }

    /// Projections of cross-attention. A cache keeps the projected keys and values from the first pass on.
    fn project_cross(
        &self,
        queries: Tensor<3>,
        memory: Memory,
        layer: usize,
        pass: &mut ForwardContext,
    ) -> Qkv {
        let (key_value_heads, head_width) = (self.heads.key_value_heads(), self.head_width);
        let project = || {
            let key = self.key.forward(memory.keys);
            let value = self.value.forward(memory.values);
            (
                split_heads(key, key_value_heads, head_width, self.key_norm.as_ref()),
                split_heads(value, key_value_heads, head_width, None),
            )
        };
        let (key, value) = match pass.cache.as_deref_mut() {
            Some(cache) => cache.memory(layer, project),
            None => project(),
        };
        let query = self.query.forward(queries);
        let norm = self.query_norm.as_ref();
        Qkv {
            query: split_heads(query, self.heads.heads, head_width, norm),
            key,
            value,
        }
    }
}

/// Projections of self-attention: queries, keys and values, norms of the first two, and rotary positions.
pub(super) fn project(
    x: Tensor<3>,
    projections: [&Linear; 3],
    [query_norm, key_norm]: [Option<&Norm>; 2],
    heads: &HeadsConfig,
    head_width: usize,
    pass: &ForwardContext,
) -> Qkv {
    let [query, key, value] = linear_qkv(x, projections.map(Linear::parameters));
    let key_value_heads = heads.key_value_heads();
    let mut qkv = Qkv {
        query: split_heads(query, heads.heads, head_width, query_norm),
        key: split_heads(key, key_value_heads, head_width, key_norm),
        value: split_heads(value, key_value_heads, head_width, None),
    };
    if let Some(angles) = &pass.rotary {
        qkv.query = rotary(qkv.query, angles);
        qkv.key = rotary(qkv.key, angles);
    }
    qkv
}

/// `[batch, length, heads · head_width]` to `[batch, heads, length, head_width]`, each head normalized if there is a norm.
pub(super) fn split_heads(
    x: Tensor<3>,
    heads: usize,
    head_width: usize,
    norm: Option<&Norm>,
) -> Tensor<4> {
    let [batch, length, _] = x.dims();
    let mut x = x.reshape([batch, length, heads, head_width]);
    if let Some(norm) = norm {
        x = norm.forward(x);
    }
    x.swap_dims(1, 2)
}

/// `[batch, heads, length, head_width]` to `[batch, length, heads · head_width]`
pub(super) fn merge_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, heads, length, head_width] = x.dims();
    x.swap_dims(1, 2)
        .reshape([batch, length, heads * head_width])
}
