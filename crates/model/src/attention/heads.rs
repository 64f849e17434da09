//! The settings that all attentions of heads share.

use crate::checks::{positive, probability, refuse, size};
use crate::{ConfigError, NormConfig, Operations};

/// Heads: how many, how wide, with which maps.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadsConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each shared by `heads / key_value_heads` query heads.
    pub key_value_heads: Option<usize>,
    /// Width of one head; the model's width divided by `heads` unless said.
    pub head_width: Option<usize>,
    /// Dropout on the attention weights.
    pub dropout: f64,
    /// Whether the query, key and value maps have biases.
    pub bias: bool,
    /// Whether the output map has a bias.
    pub output_bias: bool,
    /// The norm of each head of queries and keys, before they are rotated.
    pub head_norm: Option<NormConfig>,
}

impl HeadsConfig {
    /// So many heads, which share the model's width and have maps without biases.
    pub fn plain(heads: usize, dropout: f64) -> Self {
        Self {
            heads,
            key_value_heads: None,
            head_width: None,
            dropout,
            bias: false,
            output_bias: false,
            head_norm: None,
        }
    }

    /// Key-value heads, said or implied.
    pub fn key_value_heads(&self) -> usize {
        self.key_value_heads.unwrap_or(self.heads)
    }

    /// Width of one head, said or implied by the model's width.
    pub fn head_width(&self, width: usize) -> usize {
        self.head_width.unwrap_or(width / self.heads.max(1))
    }

    /// Whether the settings can work in a model of this width; `path` is where they stand.
    pub(super) fn validate(&self, path: &str, width: usize) -> Result<(), ConfigError> {
        size(&format!("{path}.heads"), self.heads)?;
        probability(&format!("{path}.dropout"), self.dropout)?;
        if let Some(norm) = &self.head_norm {
            positive(&format!("{path}.head_norm.epsilon"), norm.epsilon())?;
        }
        let (heads, shared) = (self.heads, self.key_value_heads());
        if shared == 0 || !heads.is_multiple_of(shared) {
            return refuse(
                &format!("{path}.key_value_heads"),
                format!(
                    "{shared} does not divide the {heads} heads; use a divisor, or leave it out"
                ),
            );
        }
        if self.head_width.is_none() && !width.is_multiple_of(heads) {
            return refuse(
                &format!("{path}.heads"),
                format!(
                    "{heads} does not divide the width {width}; say head_width, or choose a divisor"
                ),
            );
        }
        let head_width = self.head_width(width);
        size(&format!("{path}.head_width"), head_width)?;
        size(&format!("{path}.heads"), heads.saturating_mul(head_width))
    }

    /// The same where a kind has no setting for the width of a head.
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

    /// Refuses key-value heads that several query heads share; to be called on settings that are otherwise valid.
    pub(super) fn refuse_groups(&self, path: &str, kind: &str) -> Result<(), ConfigError> {
        let (heads, shared) = (self.heads, self.key_value_heads());
        if shared == heads {
            return Ok(());
        }
        refuse(
            &format!("{path}.key_value_heads"),
            format!(
                "{shared} differs from heads; {kind} attention shares no keys among heads: use {heads}, or leave it out"
            ),
        )
    }

    /// Refuses a norm of heads, of a kind that would leave it out.
    pub(super) fn refuse_head_norm(&self, path: &str, kind: &str) -> Result<(), ConfigError> {
        match self.head_norm {
            None => Ok(()),
            Some(_) => refuse(
                &format!("{path}.head_norm"),
                format!("{kind} attention has no norm of its heads; leave it out"),
            ),
        }
    }

    /// Operations per token: four maps, and scores and weighted sums against `met` keys on average.
    pub(super) fn operations(&self, width: usize, met: u64) -> Operations {
        let head_width = self.head_width(width) as u64;
        let inner = self.heads as u64 * head_width;
        let shared = self.key_value_heads() as u64 * head_width;
        Operations {
            weights: 4 * width as u64 * (inner + shared),
            attention: (4 * inner).saturating_mul(met),
        }
    }

    /// Numbers that the keys and values of one position take.
    pub(super) fn key_value_numbers(&self, width: usize) -> u64 {
        2 * (self.key_value_heads() * self.head_width(width)) as u64
    }

    /// A few words for a person.
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

/// A struct of settings that has, besides fields of its own, those of [`HeadsConfig`]: recipes say them all in one line, and
/// serde cannot both flatten a nested struct and refuse unknown keys.
macro_rules! with_heads {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[$field_about:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)*
            /// Query heads.
            pub heads: usize,
            /// Key-value heads, each shared by `heads / key_value_heads` query heads; as many as `heads` unless said.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub key_value_heads: Option<usize>,
            /// Width of one head; the model's width divided by `heads` unless said.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub head_width: Option<usize>,
            /// Dropout on the attention weights.
            #[serde(default)]
            pub dropout: f64,
            /// Whether the query, key and value maps have biases.
            #[serde(default)]
            pub bias: bool,
            /// Whether the output map has a bias.
            #[serde(default)]
            pub output_bias: bool,
            /// The norm of each head of queries and keys, before they are rotated; none unless said. Dehghani et al. 2023.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub head_norm: Option<$crate::NormConfig>,
        }

        impl $name {
            /// The settings that it shares with every attention of heads.
            pub fn shared(&self) -> $crate::HeadsConfig {
                $crate::HeadsConfig {
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

            fn heads(&self) -> Option<$crate::HeadsConfig> {
                Some(self.shared())
            }

            fn write_out(&mut self, width: usize) {
                let shared = self.shared();
                self.key_value_heads = Some(shared.key_value_heads());
                self.head_width = Some(shared.head_width(width));
            }
        }
    };
}
pub(super) use with_heads;
