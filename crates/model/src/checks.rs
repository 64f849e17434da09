//! Ranges of settings, and the errors about values outside them. A settings type calls these in its `validate`.

use crate::ConfigError;

/// Far above any real model, while products of two such sizes still fit into 64 bits.
pub const MAX_SIZE: usize = 1 << 28;

/// Far above the deepest models, while a list of this many blocks still fits into memory.
pub const MAX_BLOCKS: usize = 10_000;

/// Refuses a setting.
pub fn refuse<T>(field: &str, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError {
        field: field.to_owned(),
        problem: problem.into(),
    })
}

/// From one to [`MAX_SIZE`].
pub fn size(field: &str, value: usize) -> Result<(), ConfigError> {
    within(field, value, MAX_SIZE)
}

/// From one to `max`.
pub fn within(field: &str, value: usize, max: usize) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    refuse(field, format!("{value} is out of range; use 1 to {max}"))
}

/// A dropout probability.
pub fn probability(field: &str, value: f64) -> Result<(), ConfigError> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    refuse(
        field,
        format!("{value} is out of range; use 0 or more and less than 1"),
    )
}

/// One or more, and finite.
pub fn at_least_one(field: &str, value: f64) -> Result<(), ConfigError> {
    if value >= 1.0 && value.is_finite() {
        return Ok(());
    }
    refuse(field, format!("{value} is out of range; use 1 or more"))
}

/// Zero or more, and finite.
pub fn not_negative(field: &str, value: f64) -> Result<(), ConfigError> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    refuse(field, format!("{value} is out of range; use 0 or more"))
}

/// More than zero, and finite.
pub fn positive(field: &str, value: f64) -> Result<(), ConfigError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    refuse(field, format!("{value} is out of range; use more than 0"))
}
