//! The legacy format, before PyTorch 1.6: pickles, then the storages, concatenated.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::cursor::Cursor;
use crate::error_text::excerpt;
use crate::pickle::state_dict;
use crate::pickle::unpickler::{Unpickled, run};
use crate::pickle::value::{Object, Storage, Value};
use crate::{ParseError, TensorInfo};

/// 0x1950a86a20f9469cfc6c in little-endian order.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

const VERSION: i64 = 1001;

/// Finds the tensors in a file's bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    let magic = run(bytes, 0)
        .ok()
        .filter(|unpickled| unpickled.top == Value::Large(&MAGIC));
    let magic =
        magic.ok_or("it is neither a zip archive nor a pickle with PyTorch's magic number")?;
    let version = run(bytes, magic.end)?;
    if version.top != Value::Integer(VERSION) {
        return Err(ParseError::Unsupported(format!(
            "its version is not {VERSION}, and no other is supported"
        )));
    }
    // System info. Storages are little-endian on every system.
    let system = run(bytes, version.end)?;
    let object = run(bytes, system.end)?;
    let keys = run(bytes, object.end)?;
    let ranges = ranges(bytes, &object, &keys)?;
    state_dict::tensors(&object, |storage| {
        ranges
            .get(storage.key)
            .cloned()
            .ok_or_else(|| format!("its storage {} is missing", excerpt(storage.key)).into())
    })
}

/// The byte range of each storage: a list has their keys in order, and each is prefixed by its element count. Only the object
/// knows the element size.
fn ranges<'a>(
    bytes: &'a [u8],
    object: &Unpickled<'a>,
    keys: &Unpickled<'a>,
) -> Result<BTreeMap<&'a str, Range<usize>>, String> {
    let storages = storages(object)?;
    let list = keys.heap.list(keys.top);
    let list = list.ok_or("it has no list of storages")?;
    let mut ranges = BTreeMap::new();
    let mut cursor = Cursor::at(bytes, keys.end);
    for key in list {
        let storage = match key {
            Value::String(key) => storages.get(key),
            _ => None,
        };
        let storage = storage.ok_or("its list of storages has one that no tensor uses")?;
        let count = cursor.u64()?;
        if usize::try_from(count) != Ok(storage.count) {
            return Err(format!(
                "storage {} has {count} elements and should have {}",
                excerpt(storage.key),
                storage.count
            ));
        }
        let (_, size) = storage.dtype.block();
        let start = cursor.position();
        cursor.take(storage.count.saturating_mul(size))?;
        if ranges
            .insert(storage.key, start..cursor.position())
            .is_some()
        {
            return Err(format!("storage {} is duplicated", excerpt(storage.key)));
        }
    }
    Ok(ranges)
}

/// The storages that an object references, by key.
fn storages<'a>(object: &Unpickled<'a>) -> Result<BTreeMap<&'a str, Storage<'a>>, String> {
    let mut storages = BTreeMap::new();
    for content in object.heap.objects() {
        let Object::Storage(storage) = content else {
            continue;
        };
        let before = storages.insert(storage.key, *storage);
        if before.is_some_and(|before| before != *storage) {
            return Err(format!(
                "storage {} has two different descriptions",
                excerpt(storage.key)
            ));
        }
    }
    Ok(storages)
}
