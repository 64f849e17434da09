//! The metadata of a GGUF file.

use std::collections::BTreeMap;

/// Values by key. Getters return `None` if the key is missing or its value is of another type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    pub(super) values: BTreeMap<String, Value>,
}

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// An array of values of one type, stored as a vector of that type so that it takes no more memory than in the file.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
}

impl Metadata {
    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A value of any type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// A string.
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(string) => Some(string),
            _ => None,
        }
    }

    /// A non-negative integer of any width.
    pub fn integer(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::U8(value) => Some((*value).into()),
            Value::U16(value) => Some((*value).into()),
            Value::U32(value) => Some((*value).into()),
            Value::U64(value) => Some(*value),
            Value::I8(value) => (*value).try_into().ok(),
            Value::I16(value) => (*value).try_into().ok(),
            Value::I32(value) => (*value).try_into().ok(),
            Value::I64(value) => (*value).try_into().ok(),
            _ => None,
        }
    }

    /// A float of either width.
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::F32(value) => Some((*value).into()),
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.array(key)? {
            Array::String(strings) => Some(strings),
            _ => None,
        }
    }

    /// An array of integers of any width; `None` if one overflows.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        match self.array(key)? {
            Array::U8(values) => to_i64(values),
            Array::I8(values) => to_i64(values),
            Array::U16(values) => to_i64(values),
            Array::I16(values) => to_i64(values),
            Array::U32(values) => to_i64(values),
            Array::I32(values) => to_i64(values),
            Array::U64(values) => to_i64(values),
            Array::I64(values) => Some(values.clone()),
            _ => None,
        }
    }

    /// An array of floats of either width.
    pub fn floats(&self, key: &str) -> Option<Vec<f64>> {
        match self.array(key)? {
            Array::F32(values) => Some(values.iter().map(|value| (*value).into()).collect()),
            Array::F64(values) => Some(values.clone()),
            _ => None,
        }
    }

    fn array(&self, key: &str) -> Option<&Array> {
        match self.get(key)? {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl Value {
    /// The type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "a u8",
            Self::I8(_) => "an i8",
            Self::U16(_) => "a u16",
            Self::I16(_) => "an i16",
            Self::U32(_) => "a u32",
            Self::I32(_) => "an i32",
            Self::U64(_) => "a u64",
            Self::I64(_) => "an i64",
            Self::F32(_) => "an f32",
            Self::F64(_) => "an f64",
            Self::Bool(_) => "a bool",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
        }
    }
}

fn to_i64<T: Copy + TryInto<i64>>(values: &[T]) -> Option<Vec<i64>> {
    let values = values.iter().map(|value| (*value).try_into().ok());
    values.collect()
}
