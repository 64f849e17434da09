//! What a GGUF file says about its model, by key.

use std::collections::BTreeMap;

/// Values by key. A getter gives none where the key is missing or its value is of another type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    pub(super) values: BTreeMap<String, Value>,
}

/// A value, as the file has it.
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
    Text(String),
    List(List),
}

/// Values of one type. Each list is a vector of that type, so that it takes no more memory than its file does.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum List {
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
    Text(Vec<String>),
    List(Vec<List>),
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

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number of any type, if it is not negative.
    pub fn integer(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::U8(number) => Some((*number).into()),
            Value::U16(number) => Some((*number).into()),
            Value::U32(number) => Some((*number).into()),
            Value::U64(number) => Some(*number),
            Value::I8(number) => (*number).try_into().ok(),
            Value::I16(number) => (*number).try_into().ok(),
            Value::I32(number) => (*number).try_into().ok(),
            Value::I64(number) => (*number).try_into().ok(),
            _ => None,
        }
    }

    /// A float of either size.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::F32(number) => Some((*number).into()),
            Value::F64(number) => Some(*number),
            _ => None,
        }
    }

    /// Yes or no.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Option<&[String]> {
        match self.list(key)? {
            List::Text(texts) => Some(texts),
            _ => None,
        }
    }

    /// A list of whole numbers of any type; none where one is too large.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        match self.list(key)? {
            List::U8(numbers) => wider(numbers),
            List::I8(numbers) => wider(numbers),
            List::U16(numbers) => wider(numbers),
            List::I16(numbers) => wider(numbers),
            List::U32(numbers) => wider(numbers),
            List::I32(numbers) => wider(numbers),
            List::U64(numbers) => wider(numbers),
            List::I64(numbers) => Some(numbers.clone()),
            _ => None,
        }
    }

    /// A list of floats of either size.
    pub fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        match self.list(key)? {
            List::F32(numbers) => Some(numbers.iter().map(|number| (*number).into()).collect()),
            List::F64(numbers) => Some(numbers.clone()),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Option<&List> {
        match self.get(key)? {
            Value::List(list) => Some(list),
            _ => None,
        }
    }
}

impl Value {
    /// What it is, for a message.
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
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
        }
    }
}

fn wider<T: Copy + TryInto<i64>>(numbers: &[T]) -> Option<Vec<i64>> {
    let numbers = numbers.iter().map(|number| (*number).try_into().ok());
    numbers.collect()
}
