//! The bytes of a GGUF file's metadata, as values.

use super::reader::Reader;
use super::{List, Metadata, Value};
use crate::shown::shown;

/// The bytes of the smallest key and value: a length of no text, a type, one byte.
pub(super) const SMALLEST: usize = 8 + 4 + 1;

/// How deep lists may lie in lists. No known file has any; a bound keeps a hostile one from using up the stack.
const DEEPEST: usize = 4;

/// Reads so many keys with their values.
pub(super) fn read(reader: &mut Reader, count: usize) -> Result<Metadata, String> {
    let mut metadata = Metadata::default();
    for index in 0..count {
        let key = reader
            .text()
            .map_err(|problem| format!("metadata key {index}: {problem}"))?;
        let value = value(reader).map_err(|problem| format!("{}: {problem}", shown(key)))?;
        if metadata.values.insert(key.to_owned(), value).is_some() {
            return Err(format!(
                "metadata key {} is there a second time",
                shown(key)
            ));
        }
    }
    Ok(metadata)
}

/// A type and a value of it.
fn value(reader: &mut Reader) -> Result<Value, String> {
    Ok(match reader.number(u32::from_le_bytes)? {
        0 => Value::U8(reader.number(u8::from_le_bytes)?),
        1 => Value::I8(reader.number(i8::from_le_bytes)?),
        2 => Value::U16(reader.number(u16::from_le_bytes)?),
        3 => Value::I16(reader.number(i16::from_le_bytes)?),
        4 => Value::U32(reader.number(u32::from_le_bytes)?),
        5 => Value::I32(reader.number(i32::from_le_bytes)?),
        6 => Value::F32(reader.number(f32::from_le_bytes)?),
        7 => Value::Bool(flag(reader)?),
        8 => Value::Text(reader.text()?.to_owned()),
        9 => Value::List(list(reader, 1)?),
        10 => Value::U64(reader.number(u64::from_le_bytes)?),
        11 => Value::I64(reader.number(i64::from_le_bytes)?),
        12 => Value::F64(reader.number(f64::from_le_bytes)?),
        other => return Err(format!("its type is {other}, and there are only 0 to 12")),
    })
}

/// A type, a count, and so many values of the type.
fn list(reader: &mut Reader, depth: usize) -> Result<List, String> {
    // The bytes of the smallest value of each type: a text is at least its length, a list its type and its count.
    const SMALLEST: [usize; 13] = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8];
    if depth > DEEPEST {
        return Err(format!("its lists lie more than {DEEPEST} deep"));
    }
    let number = reader.number(u32::from_le_bytes)?;
    let smallest = usize::try_from(number).ok().and_then(|at| SMALLEST.get(at));
    let Some(smallest) = smallest else {
        return Err(format!(
            "it lists type {number}, and there are only 0 to 12"
        ));
    };
    let count = reader.count("values", *smallest)?;
    Ok(match number {
        0 => List::U8(reader.numbers(count, u8::from_le_bytes)?),
        1 => List::I8(reader.numbers(count, i8::from_le_bytes)?),
        2 => List::U16(reader.numbers(count, u16::from_le_bytes)?),
        3 => List::I16(reader.numbers(count, i16::from_le_bytes)?),
        4 => List::U32(reader.numbers(count, u32::from_le_bytes)?),
        5 => List::I32(reader.numbers(count, i32::from_le_bytes)?),
        6 => List::F32(reader.numbers(count, f32::from_le_bytes)?),
        7 => List::Bool(each(count, || flag(reader))?),
        8 => List::Text(each(count, || reader.text().map(str::to_owned))?),
        9 => List::List(each(count, || list(reader, depth + 1))?),
        10 => List::U64(reader.numbers(count, u64::from_le_bytes)?),
        11 => List::I64(reader.numbers(count, i64::from_le_bytes)?),
        _ => List::F64(reader.numbers(count, f64::from_le_bytes)?),
    })
}

/// A byte that is 0 or 1.
fn flag(reader: &mut Reader) -> Result<bool, String> {
    let place = reader.position();
    match reader.number(u8::from_le_bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("the bool at byte {place} is {other}")),
    }
}

fn each<T>(count: usize, read: impl FnMut() -> Result<T, String>) -> Result<Vec<T>, String> {
    std::iter::repeat_with(read).take(count).collect()
}
