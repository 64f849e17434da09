//! Parses the metadata of a GGUF file.

use super::reader::Reader;
use super::{Array, Metadata, Value};
use crate::ParseError;
use crate::error_text::excerpt;

/// The smallest key-value pair: an empty key, a type, one byte.
pub(super) const MIN_BYTES: usize = 8 + 4 + 1;

/// How deep arrays may nest. No known file nests them; the bound keeps a hostile one from overflowing the stack.
const MAX_DEPTH: usize = 4;

/// Reads `count` key-value pairs.
pub(super) fn read(reader: &mut Reader, count: usize) -> Result<Metadata, ParseError> {
    let mut metadata = Metadata::default();
    for index in 0..count {
        let key = reader
            .string()
            .map_err(|problem| format!("metadata key {index}: {problem}"))?;
        let value = value(reader).map_err(|error| error.of(&excerpt(key)))?;
        if metadata.values.insert(key.to_owned(), value).is_some() {
            return Err(format!("metadata key {} is duplicated", excerpt(key)).into());
        }
    }
    Ok(metadata)
}

/// Reads a type, then a value of that type.
fn value(reader: &mut Reader) -> Result<Value, ParseError> {
    Ok(match reader.number(u32::from_le_bytes)? {
        0 => Value::U8(reader.number(u8::from_le_bytes)?),
        1 => Value::I8(reader.number(i8::from_le_bytes)?),
        2 => Value::U16(reader.number(u16::from_le_bytes)?),
        3 => Value::I16(reader.number(i16::from_le_bytes)?),
        4 => Value::U32(reader.number(u32::from_le_bytes)?),
        5 => Value::I32(reader.number(i32::from_le_bytes)?),
        6 => Value::F32(reader.number(f32::from_le_bytes)?),
        7 => Value::Bool(bool(reader)?),
        8 => Value::String(reader.string()?.to_owned()),
        9 => Value::Array(array(reader, 1)?),
        10 => Value::U64(reader.number(u64::from_le_bytes)?),
        11 => Value::I64(reader.number(i64::from_le_bytes)?),
        12 => Value::F64(reader.number(f64::from_le_bytes)?),
        other => return Err(format!("its type is {other}; valid types are 0 to 12").into()),
    })
}

/// Reads a type, a count, then that many values.
fn array(reader: &mut Reader, depth: usize) -> Result<Array, ParseError> {
    // The smallest value of each type: a string is at least its length, an array its type and its count.
    const MIN_BYTES: [usize; 13] = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8];
    if depth > MAX_DEPTH {
        return Err(ParseError::Unsupported(format!(
            "its arrays nest more than {MAX_DEPTH} deep, which is not supported"
        )));
    }
    let type_id = reader.number(u32::from_le_bytes)?;
    let min_bytes = usize::try_from(type_id)
        .ok()
        .and_then(|at| MIN_BYTES.get(at));
    let Some(min_bytes) = min_bytes else {
        return Err(format!("its array type is {type_id}; valid types are 0 to 12").into());
    };
    let count = reader.count("values", *min_bytes)?;
    Ok(match type_id {
        0 => Array::U8(reader.numbers(count, u8::from_le_bytes)?),
        1 => Array::I8(reader.numbers(count, i8::from_le_bytes)?),
        2 => Array::U16(reader.numbers(count, u16::from_le_bytes)?),
        3 => Array::I16(reader.numbers(count, i16::from_le_bytes)?),
        4 => Array::U32(reader.numbers(count, u32::from_le_bytes)?),
        5 => Array::I32(reader.numbers(count, i32::from_le_bytes)?),
        6 => Array::F32(reader.numbers(count, f32::from_le_bytes)?),
        7 => Array::Bool(repeat(count, || bool(reader))?),
        8 => Array::String(repeat(count, || reader.string().map(str::to_owned))?),
        9 => Array::Array(repeat(count, || array(reader, depth + 1))?),
        10 => Array::U64(reader.numbers(count, u64::from_le_bytes)?),
        11 => Array::I64(reader.numbers(count, i64::from_le_bytes)?),
        _ => Array::F64(reader.numbers(count, f64::from_le_bytes)?),
    })
}

/// A bool, stored as a byte of 0 or 1.
fn bool(reader: &mut Reader) -> Result<bool, String> {
    let offset = reader.position();
    match reader.number(u8::from_le_bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("the bool at byte {offset} is {other}")),
    }
}

fn repeat<T, E>(count: usize, read: impl FnMut() -> Result<T, E>) -> Result<Vec<T>, E> {
    std::iter::repeat_with(read).take(count).collect()
}
