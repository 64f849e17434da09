//! The settings of registered kinds, and how serde tells them from the kinds of this crate.

use std::fmt;
use std::sync::Arc;

use serde::de::value::MapDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parameters::PatternParameter;
use super::settings::{FileValue, duplicate};
use super::{Custom, CustomPattern, CustomSettings, PatternCache, PatternSpec, registry};
use crate::attention::heads::HEADS_KEYS;
use crate::attention::{
    Attention, AttentionConfig, AttentionSettings, AttentionSpec, BuiltIn, CacheSize,
    CommonSettings, HeadsConfig, Pattern, Role,
};
use crate::checks::refuse;
use crate::{ConfigError, Flops, Initializer};

/// Settings of a kind that the program registered. In files, all are keys of one table: `kind`, those of the heads, and those of
/// the kind itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CustomConfig {
    /// The name under which it is registered.
    pub kind: String,
    /// The heads, and their projections.
    #[serde(flatten)]
    pub heads: HeadsConfig,
    /// The settings that the kind itself has.
    #[serde(flatten)]
    pub settings: CustomSettings,
}

impl CustomConfig {
    /// A registered kind without settings of its own; `heads` is their number or all settings of the heads.
    pub fn new(kind: impl Into<String>, heads: impl Into<HeadsConfig>) -> Self {
        Self {
            kind: kind.into(),
            heads: heads.into(),
            settings: CustomSettings::default(),
        }
    }

    /// Adds a setting of the kind itself.
    #[must_use]
    pub fn with_setting(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.settings.insert(key, value);
        self
    }

    /// The pattern of these settings. An error's field is relative to them.
    fn pattern(&self) -> Result<Arc<dyn CustomPattern>, ConfigError> {
        let kind = &self.kind;
        let Some(factory) = registry::factory(kind) else {
            let known = registry::known_kinds();
            return refuse("kind", format!("there is no `{kind}`; use {known}"));
        };
        factory(&self.settings).or_else(|problem| refuse("", problem))
    }

    /// The layer for the pattern.
    fn pattern_spec(&self, spec: &AttentionSpec) -> PatternSpec {
        PatternSpec {
            role: spec.role,
            heads: self.heads.heads,
            key_value_heads: self.heads.key_value_heads(),
            head_width: self.heads.head_width(spec.widths.queries),
            length: spec.length,
            positions: spec.positions,
            init_std: spec.init_std,
        }
    }

    /// Whether saving the settings and reading them again gives the same.
    fn validate_keys(&self) -> Result<(), ConfigError> {
        let mut keys = self.settings.keys();
        if let Some(key) = keys.find(|key| *key == "kind" || HEADS_KEYS.contains(key)) {
            return refuse(
                key,
                "all registered kinds have this setting; set the field of the config instead",
            );
        }
        match self.settings.unsaveable() {
            Some(key) => refuse(
                key,
                "a file can hold neither null nor a number that is not finite; use another value, or leave it out",
            ),
            None => Ok(()),
        }
    }

    /// What only registered kinds can have wrong. Fields of errors are relative to the settings.
    fn validate_pattern(&self, spec: &AttentionSpec) -> Result<(), ConfigError> {
        self.validate_keys()?;
        let pattern = self.pattern()?;
        let roles: Vec<Role> = match pattern.cache() {
            PatternCache::Window(0) => {
                return refuse(
                    "kind",
                    format!("{} attention has a window of 0; use 1 or more", self.kind),
                );
            }
            // A window between two sequences is not defined.
            PatternCache::Window(_) => {
                let roles = pattern.roles().iter().copied();
                roles.filter(|role| *role != Role::Cross).collect()
            }
            PatternCache::KeyValues | PatternCache::Impossible => pattern.roles().to_vec(),
        };
        spec.require_role("", &self.kind, &roles)?;
        spec.require_positions("", &self.kind, pattern.positions())?;
        let spec = self.pattern_spec(spec);
        pattern.validate(&spec)?;
        match PatternParameter::problem(&pattern.parameters(&spec)) {
            Some(problem) => refuse("kind", format!("{} attention: {problem}", self.kind)),
            None => Ok(()),
        }
    }
}

impl From<CustomConfig> for AttentionConfig {
    fn from(config: CustomConfig) -> Self {
        Self::Custom(config)
    }
}

impl CommonSettings for CustomConfig {
    fn dropout_mut(&mut self) -> Option<&mut f64> {
        Some(&mut self.heads.dropout)
    }

    fn heads(&self) -> Option<HeadsConfig> {
        Some(self.heads.clone())
    }

    fn canonicalize(&mut self, width: usize) {
        self.heads.head_width = Some(self.heads.head_width(width));
        self.heads.key_value_heads = Some(self.heads.key_value_heads());
    }
}

impl AttentionSettings for CustomConfig {
    fn validate(&self, path: &str, spec: &AttentionSpec) -> Result<(), ConfigError> {
        self.heads.validate(path, spec.widths.queries)?;
        self.validate_pattern(spec).map_err(|error| {
            let field = error.field.trim_start_matches('.');
            ConfigError {
                field: match field {
                    "" => path.to_owned(),
                    field => format!("{path}.{field}"),
                },
                ..error
            }
        })
    }

    fn build(&self, spec: &AttentionSpec, initializer: &mut Initializer) -> Attention {
        let pattern = self.pattern().expect("the config is valid");
        let declared = pattern.parameters(&self.pattern_spec(spec));
        let parameters = declared.iter().map(|it| it.build(initializer)).collect();
        let pattern = Pattern::Custom(Custom {
            kind: self.kind.clone(),
            pattern,
            parameters,
        });
        self.heads.build(pattern, spec, initializer)
    }

    /// Of a kind that is not registered, those of full attention.
    fn flops(&self, width: usize, length: usize, role: Role) -> Flops {
        let average = role.average_keys(length);
        let Ok(pattern) = self.pattern() else {
            return self.heads.flops(width, average as u64);
        };
        let keys = match pattern.cache() {
            PatternCache::Window(window) => role.average_keys_in_window(length, window) as u64,
            PatternCache::KeyValues | PatternCache::Impossible => average as u64,
        };
        Flops {
            attention: pattern.flops(self.heads.heads, self.heads.head_width(width), keys),
            ..self.heads.flops(width, keys)
        }
    }

    /// Of a kind that is not registered, that of full attention.
    fn cache(&self, width: usize) -> CacheSize {
        let per_position = self.heads.key_value_size(width);
        match self.pattern().map(|pattern| pattern.cache()) {
            Ok(PatternCache::KeyValues) | Err(_) => CacheSize::Growing(per_position),
            // The buffer has twice the window's capacity, so that its contents are rarely moved.
            Ok(PatternCache::Window(window)) => {
                let capacity = (window as u64).saturating_mul(2);
                CacheSize::Fixed(capacity.saturating_mul(per_position))
            }
            Ok(PatternCache::Impossible) => CacheSize::Impossible,
        }
    }

    fn describe(&self, width: usize) -> String {
        let Self { kind, settings, .. } = self;
        let settings = match settings.keys().next() {
            Some(_) => format!(" ({settings})"),
            None => String::new(),
        };
        let kind = format!("{kind} attention{settings}");
        self.heads.describe(&kind, width)
    }
}

/// The kinds of this crate are read as serde derives it; others are looked up among the registered ones.
impl<'de> Deserialize<'de> for AttentionConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ConfigVisitor)
    }
}

struct ConfigVisitor;

impl<'de> Visitor<'de> for ConfigVisitor {
    type Value = AttentionConfig;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        // As serde derives it: error messages are made from it.
        formatter.write_str("internally tagged enum AttentionConfig")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<AttentionConfig, A::Error> {
        let mut kind = None;
        let mut settings: Vec<(String, Value)> = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key != "kind" {
                let FileValue(value) = entries.next_value()?;
                settings.push((key, value));
            } else if kind.is_none() {
                kind = Some(entries.next_value::<Kind>()?);
            } else {
                return Err(duplicate("kind"));
            }
        }
        match kind {
            None => Err(de::Error::missing_field("kind")),
            Some(Kind::BuiltIn(kind)) => {
                settings.push(("kind".to_owned(), kind.into()));
                let settings = MapDeserializer::<_, serde_json::Error>::new(settings.into_iter());
                let config = BuiltIn::deserialize(settings).map_err(de::Error::custom)?;
                Ok(AttentionConfig::from(config))
            }
            Some(Kind::Registered(kind)) => custom(kind, settings).map(AttentionConfig::Custom),
        }
    }
}

/// The settings of a registered kind.
fn custom<E: de::Error>(kind: String, entries: Vec<(String, Value)>) -> Result<CustomConfig, E> {
    let of_heads = |entry: &(String, Value)| HEADS_KEYS.contains(&entry.0.as_str());
    let (heads, own): (Vec<_>, Vec<_>) = entries.into_iter().partition(of_heads);
    let mut settings = CustomSettings::default();
    for (key, value) in own {
        // As elsewhere, a null stands for a setting that is left out.
        if value == Value::Null {
            continue;
        }
        if settings.get(&key).is_some() {
            return Err(duplicate(&key));
        }
        settings.insert(key, value);
    }
    let heads = MapDeserializer::<_, serde_json::Error>::new(heads.into_iter());
    let config = CustomConfig {
        kind,
        heads: HeadsConfig::deserialize(heads).map_err(E::custom)?,
        settings,
    };
    // Reports a mistake in the settings where they stand.
    match config.pattern() {
        Ok(_) => Ok(config),
        Err(error) => Err(E::custom(error.problem)),
    }
}

/// The name of a kind that there is.
enum Kind {
    BuiltIn(String),
    Registered(String),
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = String::deserialize(deserializer)?;
        if registry::is_built_in(&kind) {
            return Ok(Self::BuiltIn(kind));
        }
        match registry::factory(&kind) {
            Some(_) => Ok(Self::Registered(kind)),
            None => Err(de::Error::custom(format_args!(
                "unknown variant `{kind}`, expected one of {}",
                registry::known_kinds()
            ))),
        }
    }
}
