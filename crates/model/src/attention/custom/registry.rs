//! The kinds that the program registered, by name: for the whole process, since settings are read from files.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, PoisonError, RwLock};

use super::{CustomPattern, CustomSettings, is_name};
use crate::attention::BUILT_IN;

/// Makes a pattern from its settings.
type Factory = Arc<dyn Fn(&CustomSettings) -> Result<Arc<dyn CustomPattern>, String> + Send + Sync>;

static REGISTERED: RwLock<BTreeMap<String, Factory>> = RwLock::new(BTreeMap::new());

/// Why a kind cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The library has a kind of this name.
    #[error("`{0}` is a kind of this library; choose another name")]
    BuiltIn(String),
    /// The name is taken.
    #[error("`{0}` is registered already; register a kind once, or choose another name")]
    Registered(String),
    /// The name cannot stand in files.
    #[error("{0:?} cannot be the name of a kind; use lower-case letters, digits and _")]
    Name(String),
}

/// Registers a kind of attention: from now on, settings may say `{ kind = "NAME", heads = 4, … }`, in Rust, in recipes and in
/// config.json. `factory` makes the pattern from the settings besides those of the heads; its error is a sentence.
///
/// ```
/// use attentive_model::attention::{self, AttentionConfig, ScoreModifier};
///
/// #[derive(serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct SoftCap {
///     cap: f64,
/// }
///
/// attention::register("soft_cap", |settings| {
///     let SoftCap { cap } = settings.parse()?;
///     Ok(ScoreModifier::new().score(move |pairs| (pairs.scores / cap).tanh() * cap))
/// })?;
/// let settings = r#"{ "kind": "soft_cap", "heads": 4, "cap": 30.0 }"#;
/// let config: AttentionConfig = serde_json::from_str(settings)?;
/// assert!(config.describe(64).starts_with("soft_cap attention (cap = 30.0), 4 heads of width 16"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn register<P: CustomPattern>(
    kind: &str,
    factory: impl Fn(&CustomSettings) -> Result<P, String> + Send + Sync + 'static,
) -> Result<(), RegisterError> {
    if !is_name(kind) {
        return Err(RegisterError::Name(kind.to_owned()));
    }
    if is_built_in(kind) {
        return Err(RegisterError::BuiltIn(kind.to_owned()));
    }
    let factory = move |settings: &CustomSettings| -> Result<Arc<dyn CustomPattern>, String> {
        Ok(Arc::new(factory(settings)?))
    };
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    match registered.entry(kind.to_owned()) {
        Entry::Occupied(_) => Err(RegisterError::Registered(kind.to_owned())),
        Entry::Vacant(entry) => {
            entry.insert(Arc::new(factory));
            Ok(())
        }
    }
}

/// The names of the kinds that the program registered, sorted.
pub fn registered() -> Vec<String> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    registered.keys().cloned().collect()
}

/// The factory of a kind, if it is registered.
pub(super) fn factory(kind: &str) -> Option<Factory> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    registered.get(kind).cloned()
}

/// Whether the library has a kind of this name.
pub(super) fn is_built_in(kind: &str) -> bool {
    BUILT_IN.iter().any(|variant| snake_case(variant) == kind)
}

/// What can be used instead of an unknown kind, for error messages.
pub(super) fn known_kinds() -> String {
    let built_in = BUILT_IN.iter().map(|variant| snake_case(variant));
    let quoted: Vec<String> = built_in
        .chain(registered())
        .map(|kind| format!("`{kind}`"))
        .collect();
    format!("{}, or one that the program registers", quoted.join(", "))
}

/// The name of a variant in files, as serde writes it.
fn snake_case(variant: &str) -> String {
    let mut name = String::new();
    for (index, letter) in variant.chars().enumerate() {
        if index > 0 && letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}
