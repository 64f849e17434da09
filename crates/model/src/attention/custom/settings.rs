//! Settings whose keys this crate does not know: a table of values as they stand in a recipe or in config.json, from which a
//! registered kind reads a type of its own.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// The settings of a registered kind, besides those of its heads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct CustomSettings(BTreeMap<String, Value>);

impl CustomSettings {
    /// The settings as a type that serde can read, or why they are not: an unknown key, a missing one, or a value of another
    /// type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        let entries = MapDeserializer::<_, serde_json::Error>::new(self.0.clone().into_iter());
        T::deserialize(entries).map_err(|error| error.to_string())
    }

    /// A setting, if it is there.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds a setting, and returns the value that it replaces.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(key.into(), value.into())
    }

    /// The first setting that holds a null: TOML has none, and it is what JSON makes of a number that is not finite.
    pub(super) fn unsaveable(&self) -> Option<&str> {
        let found = self.0.iter().find(|(_, value)| holds_null(value));
        found.map(|(key, _)| key.as_str())
    }
}

/// `key = value, key = value`
impl fmt::Display for CustomSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(formatter, "{separator}{key} = {value}")?;
        }
        Ok(())
    }
}

fn holds_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().any(holds_null),
        Value::Object(entries) => entries.values().any(holds_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// A value as it stands in a file. Unlike [`Value`] by itself, it does not turn a number that is not finite into a null, nor
/// take the last of two equal keys.
pub(super) struct FileValue(pub Value);

impl<'de> Deserialize<'de> for FileValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileValueVisitor).map(Self)
    }
}

struct FileValueVisitor;

impl<'de> Visitor<'de> for FileValueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a setting")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        match Number::from_f64(value) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(E::custom(format_args!(
                "{value} is not a finite number; use one, or leave the setting out"
            ))),
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(FileValue(value)) = values.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut table = Map::new();
        while let Some((key, FileValue(value))) = entries.next_entry::<String, FileValue>()? {
            if table.contains_key(&key) {
                return Err(duplicate(&key));
            }
            table.insert(key, value);
        }
        Ok(Value::Object(table))
    }
}

/// serde's error about a key that is there twice.
pub(super) fn duplicate<E: de::Error>(key: &str) -> E {
    E::custom(format_args!("duplicate field `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{ "text": "a", "list": [1, 2.5, true], "table": { "large": 18446744073709551615, "small": -3 } }"#;

    fn settings(json: &str) -> CustomSettings {
        CustomSettings(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn values_survive_json_and_toml() {
        let settings = settings(JSON);
        let json = serde_json::to_string(&settings).unwrap();
        assert_eq!(self::settings(&json), settings);
        let mut small = settings;
        small.insert("table", "an integer beyond i64 does not fit TOML");
        let toml = toml::to_string(&small).unwrap();
        assert_eq!(toml::from_str(&toml), Ok(small.0));
    }

    #[test]
    fn settings_are_written_in_one_line() {
        assert_eq!(
            settings(JSON).to_string(),
            r#"list = [1,2.5,true], table = {"large":18446744073709551615,"small":-3}, text = "a""#
        );
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Own {
        count: usize,
        #[serde(default)]
        factor: Option<f64>,
        #[serde(default)]
        shape: Shape,
        #[serde(default)]
        sizes: Vec<u8>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Shape {
        #[default]
        Round,
        Square {
            side: f64,
        },
    }

    #[test]
    fn settings_are_read_as_any_type_of_serde() {
        let parse = |json: &str| settings(json).parse::<Own>();
        let own = |shape: Shape, factor: Option<f64>, sizes: &[u8]| Own {
            count: 3,
            factor,
            shape,
            sizes: sizes.to_owned(),
        };
        let plain = r#"{ "count": 3, "shape": "round", "factor": null }"#;
        assert_eq!(parse(plain), Ok(own(Shape::Round, None, &[])));
        let full =
            r#"{ "count": 3, "shape": { "square": { "side": 2 } }, "factor": 1, "sizes": [1, 2] }"#;
        let square = Shape::Square { side: 2.0 };
        assert_eq!(parse(full), Ok(own(square, Some(1.0), &[1, 2])));
        let errors = [
            r#"{ "count": 3, "counts": 4 }"#,
            r#"{ "count": "three" }"#,
            r#"{ "count": -1 }"#,
            r#"{ "factor": 1.5 }"#,
            r#"{ "count": 3, "shape": 4 }"#,
            r#"{ "count": 3, "shape": "oval" }"#,
        ];
        let errors = errors.map(|json| parse(json).unwrap_err());
        assert_eq!(
            errors,
            [
                "unknown field `counts`, expected one of `count`, `factor`, `shape`, `sizes`",
                "invalid type: string \"three\", expected usize",
                "invalid value: integer `-1`, expected usize",
                "missing field `count`",
                "invalid type: integer `4`, expected string or map",
                "unknown variant `oval`, expected `round` or `square`",
            ]
        );
    }

    #[test]
    fn what_files_cannot_hold_is_found() {
        let mut settings = settings(JSON);
        assert_eq!(settings.unsaveable(), None);
        settings.insert("deep", vec![f64::NAN]);
        assert_eq!(settings.unsaveable(), Some("deep"));
    }
}
