//! The config fields that all kinds with heads share.

use serde::{Deserialize, Serialize};

use super::{Attention, AttentionSpec, MultiHead, Pattern};
use crate::checks::{positive, probability, refuse, size};
use crate::setters;
use crate::{ConfigError, Flops, Initializer, NormConfig};

/// Number and width of the heads, and their projections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadsConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each shared by `heads / key_value_heads` query heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_value_heads: Option<usize>,
    /// Width of one head; the model's width divided by `heads` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<usize>,
    /// Dropout on the attention weights.
    #[serde(default)]
    pub dropout: f64,
    /// Whether the query, key and value projections have biases.
    #[serde(default)]
    pub bias: bool,
    /// Whether the output projection has a bias.
    #[serde(default)]
    pub output_bias: bool,
    /// Query-key normalization: the norm of each query and key head, before rotary positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_norm: Option<NormConfig>,
}

/// The keys of [`HeadsConfig`] in files.
pub(super) const HEADS_KEYS: [&str; 7] = [
    "heads",
    "key_value_heads",
    "head_width",
    "dropout",
    "bias",
    "output_bias",
    "head_norm",
];

/// So many plain heads.
impl From<usize> for HeadsConfig {
    fn from(heads: usize) -> Self {
        Self::new(heads)
    }
}

impl HeadsConfig {
    /// Heads that divide the model's width, with projections without biases, and no dropout.
    pub fn new(heads: usize) -> Self {
        Self {
            heads,
            key_value_heads: None,
            head_width: None,
            dropout: 0.0,
            bias: false,
            output_bias: false,
            head_norm: None,
        }
    }

    setters! {
        with_key_value_heads(key_value_heads: usize => Some);
        with_head_width(head_width: usize => Some);
        with_dropout(dropout: f64);
        with_bias(bias: bool);
        with_output_bias(output_bias: bool);
        with_head_norm(head_norm: NormConfig => Some);
    }

    /// The number of key-value heads.
    pub fn key_value_heads(&self) -> usize {
        self.key_value_heads.unwrap_or(self.heads)
    }

    /// The width of one head in a model of this width.
    pub fn head_width(&self, width: usize) -> usize {
        self.head_width.unwrap_or(width / self.heads.max(1))
    }

    /// Whether the heads are valid in a model of this width; `path` is the config's path for error messages.
    pub(super) fn validate(&self, path: &str, width: usize) -> Result<(), ConfigError> {
        size(&format!("{path}.heads"), self.heads)?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        if let Some(norm) = &self.head_norm {
            positive(&format!("{path}.head_norm.epsilon"), norm.epsilon())?;
        }
        let (heads, key_value_heads) = (self.heads, self.key_value_heads());
        if key_value_heads == 0 || !heads.is_multiple_of(key_value_heads) {
            return refuse(
                &format!("{path}.key_value_heads"),
                format!(
                    "{key_value_heads} does not divide the {heads} heads; use a divisor, or leave it out"
                ),
            );
        }
        if self.head_width.is_none() && !width.is_multiple_of(heads) {
            return refuse(
                &format!("{path}.heads"),
                format!(
                    "{heads} does not divide the width {width}; set head_width, or choose a divisor"
                ),
            );
        }
        let head_width = self.head_width(width);
        size(&format!("{path}.head_width"), head_width)?;
        size(&format!("{path}.heads"), heads.saturating_mul(head_width))
    }

    /// The same for kinds whose head width cannot be configured.
    pub(super) fn validate_plain(&self, path: &str, width: usize) -> Result<(), ConfigError> {
        let heads = self.heads;
        size(&format!("{path}.heads"), heads)?;
        if !width.is_multiple_of(heads) {
            return refuse(
                &format!("{path}.heads"),
                format!("{heads} does not divide the width {width}; use a divisor"),
            );
        }
        self.validate(path, width)
    }

    /// Refuses grouped queries. The other fields must be valid.
    pub(super) fn refuse_groups(&self, path: &str, kind: &str) -> Result<(), ConfigError> {
        let (heads, key_value_heads) = (self.heads, self.key_value_heads());
        if key_value_heads == heads {
            return Ok(());
        }
        refuse(
            &format!("{path}.key_value_heads"),
            format!(
                "{key_value_heads} differs from heads, and {kind} attention has no grouped queries; use {heads}, or leave it out"
            ),
        )
    }

    /// Refuses query-key normalization.
    pub(super) fn refuse_head_norm(&self, path: &str, kind: &str) -> Result<(), ConfigError> {
        match self.head_norm {
            None => Ok(()),
            Some(_) => refuse(
                &format!("{path}.head_norm"),
                format!("{kind} attention has no query-key normalization; leave it out"),
            ),
        }
    }

    /// Builds the layer of such heads around `pattern`.
    pub(super) fn build(
        &self,
        pattern: Pattern,
        spec: &AttentionSpec,
        initializer: &mut Initializer,
    ) -> Attention {
        Attention::MultiHead(MultiHead::new(self, pattern, spec, initializer))
    }

    /// Flops per token: four projections, and scores and weighted sums of `keys` keys on average.
    pub(super) fn flops(&self, width: usize, keys: u64) -> Flops {
        let head_width = self.head_width(width) as u64;
        let inner = self.heads as u64 * head_width;
        let key_value_width = self.key_value_heads() as u64 * head_width;
        Flops {
            weights: 4 * width as u64 * (inner + key_value_width),
            attention: (4 * inner).saturating_mul(keys),
        }
    }

    /// How many elements the keys and values of one position have.
    pub(super) fn key_value_size(&self, width: usize) -> u64 {
        2 * (self.key_value_heads() * self.head_width(width)) as u64
    }

    /// A short human-readable description.
    pub(super) fn describe(&self, kind: &str, width: usize) -> String {
        let norm = match &self.head_norm {
            None => "",
            Some(NormConfig::Layer { .. }) => ", layer norm of each head",
            Some(NormConfig::Rms { .. }) => ", rms norm of each head",
        };
        format!(
            "{kind}, {} heads of width {}, {} key-value heads{norm}",
            self.heads,
            self.head_width(width),
            self.key_value_heads()
        )
    }
}

/// Declares a config struct with the fields of [`HeadsConfig`] besides its own, their setters, and `new`, whose arguments are
/// the number of heads and the own settings without a default; its body has the defaults of the others. Recipes set all fields
/// in one line, and serde cannot both flatten a nested struct and refuse unknown keys.
macro_rules! with_heads {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[$field_about:meta])* pub $field:ident: $type:ty,)*
        }

        $(#[$new_about:meta])*
        new($($required:ident: $required_type:ty),*) {
            $($optional:ident: $default:expr),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)*
            /// Query heads.
            pub heads: usize,
            /// Key-value heads, each shared by `heads / key_value_heads` query heads; as many as `heads` by default.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub key_value_heads: Option<usize>,
            /// Width of one head; the model's width divided by `heads` by default.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub head_width: Option<usize>,
            /// Dropout on the attention weights.
            #[serde(default)]
            pub dropout: f64,
            /// Whether the query, key and value projections have biases.
            #[serde(default)]
            pub bias: bool,
            /// Whether the output projection has a bias.
            #[serde(default)]
            pub output_bias: bool,
            /// Query-key normalization: the norm of each query and key head, before rotary positions. Dehghani et al. 2023.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub head_norm: Option<$crate::NormConfig>,
        }

        impl $name {
            $(#[$new_about])*
            pub fn new(heads: usize, $($required: $required_type),*) -> Self {
                let $crate::attention::HeadsConfig {
                    heads,
                    key_value_heads,
                    head_width,
                    dropout,
                    bias,
                    output_bias,
                    head_norm,
                } = $crate::attention::HeadsConfig::new(heads);
                Self {
                    $($required,)*
                    $($optional: $default,)*
                    heads,
                    key_value_heads,
                    head_width,
                    dropout,
                    bias,
                    output_bias,
                    head_norm,
                }
            }

            $crate::setters! {
                with_key_value_heads(key_value_heads: usize => Some);
                with_head_width(head_width: usize => Some);
                with_dropout(dropout: f64);
                with_bias(bias: bool);
                with_output_bias(output_bias: bool);
                with_head_norm(head_norm: $crate::NormConfig => Some);
            }

            /// The fields that all kinds with heads share.
            pub fn heads_config(&self) -> $crate::attention::HeadsConfig {
                $crate::attention::HeadsConfig {
                    heads: self.heads,
                    key_value_heads: self.key_value_heads,
                    head_width: self.head_width,
                    dropout: self.dropout,
                    bias: self.bias,
                    output_bias: self.output_bias,
                    head_norm: self.head_norm.clone(),
                }
            }
        }

        impl $crate::attention::settings::CommonSettings for $name {
            fn dropout_mut(&mut self) -> Option<&mut f64> {
                Some(&mut self.dropout)
            }

            fn heads(&self) -> Option<$crate::attention::HeadsConfig> {
                Some(self.heads_config())
            }

            fn canonicalize(&mut self, width: usize) {
                let heads = self.heads_config();
                self.key_value_heads = Some(heads.key_value_heads());
                self.head_width = Some(heads.head_width(width));
            }
        }
    };
}
pub(super) use with_heads;
