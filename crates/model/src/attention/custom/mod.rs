//! Attention from outside of this crate: a pattern on projected heads that a program registers under a name.
//!
//! ```text
//! register("differential", factory)                 registry.rs     once, before settings are read
//! { kind = "differential", heads = 4, … }           config.rs       settings of heads, and settings of its own (settings.rs)
//! MultiHead { …, pattern: Custom }                  mod.rs          cache, mask and observer around what the program wrote
//! stack.blocks.0.attention.body.pattern.NAME        parameters.rs   its parameters, trained and saved like all others
//! ```
//!
//! A [`ScoreModifier`] is such a pattern made of closures.

mod config;
mod modifier;
mod parameters;
mod registry;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use attentive_tensor::{Mask, ScoreBias};
use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::Device;

pub use config::CustomConfig;
pub use modifier::{Pair, PairScores, ScoreModifier};
use parameters::{NamedParameter, RankedParameter};
pub use parameters::{PatternParameter, PatternParameters};
pub use registry::{RegisterError, register, registered};
pub use settings::CustomSettings;

use super::{AttendContext, PatternOutput, Qkv, RelativePositions, Role};
use crate::ConfigError;

/// A pattern on projected heads, from outside of this crate. [`register`] makes a kind of it. `MultiHead` around it projects,
/// normalizes and rotates queries and keys, and caches keys and values.
///
/// ```
/// use attentive_model::attention::{
///     self, AttentionConfig, CustomConfig, CustomPattern, PatternInput, PatternOutput, PatternParameter, PatternSpec,
/// };
/// use attentive_tensor::Scores;
///
/// /// Full attention whose output is multiplied by a learned gain.
/// #[derive(Debug, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Gained {
///     #[serde(default)]
///     initial: f32,
/// }
///
/// impl CustomPattern for Gained {
///     fn parameters(&self, _: &PatternSpec) -> Vec<PatternParameter> {
///         vec![PatternParameter::constant("gain", [1], self.initial)]
///     }
///
///     fn attend(&self, input: PatternInput) -> PatternOutput {
///         let PatternInput { qkv, mask, bias, parameters, mut context, .. } = input;
///         let scale = qkv.scale();
///         let gain = parameters.get::<1>("gain").exp();
///         let attended = context.attend(qkv, &Scores { mask, scale, bias });
///         PatternOutput { output: attended.output * gain.reshape([1, 1, 1, 1]), ..attended }
///     }
/// }
///
/// attention::register("gained", |settings| settings.parse::<Gained>())?;
/// let made = CustomConfig::new("gained", 8).with_setting("initial", 0.5);
/// let read: AttentionConfig = serde_json::from_str(r#"{ "kind": "gained", "heads": 8, "initial": 0.5 }"#)?;
/// assert_eq!(AttentionConfig::from(made), read);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CustomPattern: fmt::Debug + Send + Sync + 'static {
    /// The output of each query, from what it attends to.
    ///
    /// Where the observer requests weights ([`AttendContext::wants_weights`]), the pattern shows it some, and uses those that
    /// come back: the methods of [`AttendContext`] that attend do so.
    fn attend(&self, input: PatternInput) -> PatternOutput;

    /// The parameters of a layer.
    fn parameters(&self, spec: &PatternSpec) -> Vec<PatternParameter> {
        let _ = spec;
        Vec::new()
    }

    /// Whether a layer can be built with these settings. An error's field is relative to the attention's settings.
    fn validate(&self, spec: &PatternSpec) -> Result<(), ConfigError> {
        let _ = spec;
        Ok(())
    }

    /// The roles that it can serve; layers of other roles are refused.
    fn roles(&self) -> &[Role] {
        &[Role::Bidirectional, Role::Causal, Role::Cross]
    }

    /// The relative positions that have an effect on it; models with others are refused. Rotary positions are applied around
    /// every pattern. [`RelativePositions::Bias`] is for those that add [`PatternInput::bias`] to their scores.
    fn positions(&self) -> &[RelativePositions] {
        &[RelativePositions::Rotary]
    }

    /// What a layer of self-attention caches when it decodes.
    fn cache(&self) -> PatternCache {
        PatternCache::KeyValues
    }

    /// Flops of one query, without the projections; by default those of scores and weighted sums.
    fn flops(&self, heads: usize, head_width: usize, keys: u64) -> u64 {
        let inner = heads as u64 * head_width as u64;
        (4 * inner).saturating_mul(keys)
    }
}

/// What a pattern caches in self-attention. (In cross-attention, projected keys and values are always cached.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternCache {
    /// The keys and values of all positions.
    KeyValues,
    /// Those less than this many positions away from the query; the mask hides the others.
    Window(usize),
    /// Nothing: a new position may change what earlier ones attend to, so each takes a pass over the whole sequence.
    Impossible,
}

/// The layer that a pattern is built for.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternSpec {
    /// What it attends to.
    pub role: Role,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each shared by `heads / key_value_heads` query heads.
    pub key_value_heads: usize,
    /// Width of one head.
    pub head_width: usize,
    /// The maximum sequence length.
    pub length: usize,
    /// The positions that the model applies inside attention.
    pub positions: RelativePositions,
    /// Standard deviation of the model's initial weights.
    pub init_std: f64,
}

/// What a pattern attends to.
pub struct PatternInput<'a, 'p> {
    /// The queries of this pass, and the keys and values of all positions that they may attend to: with a cache, of earlier passes
    /// too.
    pub qkv: Qkv,
    /// Which keys a query may attend to: by causality, padding and window.
    pub mask: Mask,
    /// The relative position bias of the model's positions, if it has one.
    pub bias: Option<ScoreBias>,
    /// The position of the first query of this pass.
    pub first_query: usize,
    /// The position of the first key: not zero where a window has evicted keys.
    pub first_key: usize,
    /// The parameters that the pattern declares.
    pub parameters: PatternParameters<'a>,
    /// The layer, dropout and the observer, and methods that attend.
    pub context: AttendContext<'a, 'p>,
}

/// A registered pattern in a layer.
#[derive(Clone, Debug)]
pub struct Custom {
    kind: String,
    pattern: Arc<dyn CustomPattern>,
    parameters: Vec<NamedParameter>,
}

impl Custom {
    /// # Panics
    /// When there is a cache and the pattern cannot use one, or when the pattern does not do what its trait says: on an output of
    /// another shape, and if it has no weights for an observer that requests them.
    pub(super) fn attend(&self, qkv: Qkv, mut context: AttendContext) -> PatternOutput {
        let Self {
            kind,
            pattern,
            parameters,
        } = self;
        let (site, wants_weights) = (context.site, context.wants_weights());
        let is_cross = site.role == Role::Cross;
        let processed = (context.pass.cache.as_ref()).map_or(0, |cache| cache.length());
        let window = match pattern.cache() {
            PatternCache::KeyValues => None,
            PatternCache::Window(window) => Some(window),
            PatternCache::Impossible => {
                assert!(
                    is_cross || context.pass.cache.is_none(),
                    "{kind} attention: it cannot use a cache; give the whole sequence instead"
                );
                None
            }
        };
        let (qkv, first_key) = context.append_to_cache(qkv, window);
        let mut mask = context.mask(first_key);
        if let Some(window) = window {
            mask = mask.with_window(window);
        }
        let dims = qkv.query.dims();
        let output = pattern.attend(PatternInput {
            mask,
            bias: context.bias(&qkv),
            first_query: match is_cross {
                true => processed,
                false => first_key + qkv.key.dims()[2] - dims[2],
            },
            first_key,
            parameters: PatternParameters {
                kind,
                all: parameters,
            },
            qkv,
            context,
        });
        assert!(
            output.output.dims() == dims,
            "{kind} attention: its output {:?} does not match queries {dims:?}",
            output.output.dims()
        );
        assert!(
            !wants_weights || output.weights.is_some(),
            "{kind} attention: the observer requests the weights of layer {}, and the pattern has none; let wants_weights be false there",
            site.layer
        );
        output
    }

    fn map_parameters(
        mut self,
        mut map: impl FnMut(&str, RankedParameter) -> RankedParameter,
    ) -> Self {
        let parameters = self.parameters.into_iter();
        self.parameters = parameters
            .map(|NamedParameter { name, parameter }| NamedParameter {
                parameter: map(&name, parameter),
                name,
            })
            .collect();
        self
    }
}

/// burn's name of the struct that the parameters are fields of.
const CONTAINER: &str = "Struct:Custom";

/// As burn derives it for a struct, except that the fields are known only now.
impl Module for Custom {
    fn collect_devices(&self, devices: Devices) -> Devices {
        let parameters = self.parameters.iter();
        parameters.fold(devices, |devices, it| it.parameter.collect_devices(devices))
    }

    fn fork(self, device: &Device) -> Self {
        self.map_parameters(|_, parameter| parameter.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.map_parameters(|_, parameter| parameter.to_device(device))
    }

    fn train(self) -> Self {
        self.map_parameters(|_, parameter| parameter.train())
    }

    fn valid(&self) -> Self {
        self.clone()
            .map_parameters(|_, parameter| parameter.valid())
    }

    fn materialize(self) -> Self {
        self.map_parameters(|_, parameter| parameter.materialize())
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        for NamedParameter { name, parameter } in &self.parameters {
            visitor.enter_module(name, CONTAINER);
            parameter.visit(visitor);
            visitor.exit_module(name, CONTAINER);
        }
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        self.map_parameters(|name, parameter| {
            mapper.enter_module(name, CONTAINER);
            let mapped = parameter.map(mapper);
            mapper.exit_module(name, CONTAINER);
            mapped
        })
    }
}

impl ModuleDisplayDefault for Custom {
    fn content(&self, content: Content) -> Option<Content> {
        let content = content
            .set_top_level_type("Custom")
            .add_debug_attribute("pattern", &self.pattern);
        let parameters = self.parameters.iter();
        let content = parameters.fold(content, |content, it| content.add(&it.name, &it.parameter));
        content.optional()
    }

    fn num_params(&self) -> usize {
        Module::num_params(self)
    }
}

impl ModuleDisplay for Custom {}

/// Whether it can be a name in files: of lower-case letters, digits and `_`.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_letter)
}
