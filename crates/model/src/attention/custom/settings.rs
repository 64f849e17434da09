//! Settings whose keys this crate does not know: a table of values as they stand in a recipe or in config.json, from which a
//! registered kind reads a type of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{
    self, MapAccessDeserializer, MapDeserializer, SeqDeserializer, StringDeserializer,
};
use serde::de::{
    self, DeserializeOwned, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, Serialize, Serializer, forward_to_deserialize_any};

/// The settings of a registered kind, besides those of its heads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct CustomSettings(BTreeMap<String, SettingValue>);

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// JSON's null.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i128),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<SettingValue>),
    /// A table.
    Table(BTreeMap<String, SettingValue>),
}

impl CustomSettings {
    /// The settings as a type that serde can read, or why they are not: an unknown key, a missing one, or a value of another
    /// type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        let entries = MapDeserializer::<_, value::Error>::new(self.0.clone().into_iter());
        T::deserialize(entries).map_err(|error| error.to_string())
    }

    /// A setting, if it is there.
    pub fn get(&self, key: &str) -> Option<&SettingValue> {
        self.0.get(key)
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds a setting, and returns the value that it replaces.
    pub fn insert(
        &mut self,
        key: impl Into<String>,
        value: impl Into<SettingValue>,
    ) -> Option<SettingValue> {
        self.0.insert(key.into(), value.into())
    }

    /// The first setting that neither TOML nor JSON can hold, so that it could not be saved.
    pub(super) fn unsaveable(&self) -> Option<&str> {
        let found = self.0.iter().find(|(_, value)| !value.is_saveable());
        found.map(|(key, _)| key.as_str())
    }
}

/// `key = value, key = value`
impl fmt::Display for CustomSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write_entries(formatter, &self.0)
    }
}

impl SettingValue {
    /// TOML has no null, and JSON no infinity.
    fn is_saveable(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Float(value) => value.is_finite(),
            Self::List(values) => values.iter().all(Self::is_saveable),
            Self::Table(entries) => entries.values().all(Self::is_saveable),
            Self::Boolean(_) | Self::Integer(_) | Self::Text(_) => true,
        }
    }

    /// What serde calls it in errors.
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Null => Unexpected::Unit,
            Self::Boolean(value) => Unexpected::Bool(*value),
            Self::Integer(value) => match i64::try_from(*value) {
                Ok(value) => Unexpected::Signed(value),
                Err(_) => Unexpected::Other("large integer"),
            },
            Self::Float(value) => Unexpected::Float(*value),
            Self::Text(value) => Unexpected::Str(value),
            Self::List(_) => Unexpected::Seq,
            Self::Table(_) => Unexpected::Map,
        }
    }
}

/// As in TOML.
impl fmt::Display for SettingValue {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::Integer(value) => write!(formatter, "{value}"),
            Self::Float(value) => write!(formatter, "{value:?}"),
            Self::Text(value) => write!(formatter, "{value:?}"),
            Self::List(values) => {
                formatter.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    let separator = if index > 0 { ", " } else { "" };
                    write!(formatter, "{separator}{value}")?;
                }
                formatter.write_str("]")
            }
            Self::Table(entries) => {
                formatter.write_str("{ ")?;
                write_entries(formatter, entries)?;
                formatter.write_str(" }")
            }
        }
    }
}

fn write_entries(
    formatter: &mut fmt::Formatter,
    entries: &BTreeMap<String, SettingValue>,
) -> fmt::Result {
    for (index, (key, value)) in entries.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        write!(formatter, "{separator}{key} = {value}")?;
    }
    Ok(())
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<$integer> for SettingValue {
            fn from(value: $integer) -> Self {
                Self::Integer(i128::from(value))
            }
        }
    )*};
}

from_integers!(i32, i64, u32, u64);

impl From<usize> for SettingValue {
    fn from(value: usize) -> Self {
        Self::Integer(value as i128)
    }
}

impl From<bool> for SettingValue {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<f64> for SettingValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for SettingValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for SettingValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<V: Into<SettingValue>> From<Vec<V>> for SettingValue {
    fn from(values: Vec<V>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl Serialize for SettingValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_i64(value),
                (_, Ok(value)) => serializer.serialize_u64(value),
                _ => serializer.serialize_i128(*value),
            },
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(values) => values.serialize(serializer),
            Self::Table(entries) => entries.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SettingValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = SettingValue;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a setting")
    }

    fn visit_unit<E: de::Error>(self) -> Result<SettingValue, E> {
        Ok(SettingValue::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<SettingValue, E> {
        Ok(SettingValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<SettingValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<SettingValue, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<SettingValue, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<SettingValue, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<SettingValue, E> {
        Ok(value.into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<SettingValue, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<SettingValue, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(SettingValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SettingValue, A::Error> {
        let mut table = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry::<String, SettingValue>()? {
            if table.contains_key(&key) {
                return Err(duplicate(&key));
            }
            table.insert(key, value);
        }
        Ok(SettingValue::Table(table))
    }
}

/// serde's error about a key that is there twice.
pub(super) fn duplicate<E: de::Error>(key: &str) -> E {
    E::custom(format_args!("duplicate field `{key}`"))
}

impl<'de, E: de::Error> IntoDeserializer<'de, E> for SettingValue {
    type Deserializer = ValueDeserializer<E>;

    fn into_deserializer(self) -> ValueDeserializer<E> {
        ValueDeserializer {
            value: self,
            error: PhantomData,
        }
    }
}

/// Reads any type from a value.
pub struct ValueDeserializer<E> {
    value: SettingValue,
    error: PhantomData<E>,
}

impl<'de, E: de::Error> Deserializer<'de> for ValueDeserializer<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.value {
            SettingValue::Null => visitor.visit_unit(),
            SettingValue::Boolean(value) => visitor.visit_bool(value),
            SettingValue::Integer(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => visitor.visit_i64(value),
                (_, Ok(value)) => visitor.visit_u64(value),
                _ => visitor.visit_i128(value),
            },
            SettingValue::Float(value) => visitor.visit_f64(value),
            SettingValue::Text(value) => visitor.visit_string(value),
            SettingValue::List(values) => {
                SeqDeserializer::<_, E>::new(values.into_iter()).deserialize_any(visitor)
            }
            SettingValue::Table(entries) => {
                MapDeserializer::<_, E>::new(entries.into_iter()).deserialize_any(visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.value {
            SettingValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant without fields is a text, and one with fields a table of one entry.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, E> {
        match self.value {
            SettingValue::Text(value) => visitor.visit_enum(StringDeserializer::<E>::new(value)),
            SettingValue::Table(entries) => {
                let entries = MapDeserializer::<_, E>::new(entries.into_iter());
                visitor.visit_enum(MapAccessDeserializer::new(entries))
            }
            other => Err(E::invalid_type(other.unexpected(), &"a text or a table")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{ "text": "a", "list": [1, 2.5, true], "table": { "large": 18446744073709551615, "small": -3 } }"#;

    fn settings(json: &str) -> CustomSettings {
        let value: SettingValue = serde_json::from_str(json).unwrap();
        let SettingValue::Table(entries) = value else {
            panic!("{value}")
        };
        CustomSettings(entries)
    }

    #[test]
    fn values_survive_json_and_toml() {
        let settings = settings(JSON);
        let json = serde_json::to_string(&settings).unwrap();
        assert_eq!(self::settings(&json), settings);
        let mut small = settings;
        small.insert("table", "an integer beyond i64 does not fit TOML");
        let toml = toml::to_string(&small).unwrap();
        let read: SettingValue = toml::from_str(&toml).unwrap();
        assert_eq!(read, SettingValue::Table(small.0));
    }

    #[test]
    fn settings_are_written_as_in_toml() {
        assert_eq!(
            settings(JSON).to_string(),
            r#"list = [1, 2.5, true], table = { large = 18446744073709551615, small = -3 }, text = "a""#
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
                "invalid type: integer `4`, expected a text or a table",
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
