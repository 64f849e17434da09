//! Files from before PyTorch 1.6: pickles, then the storages, one after the other.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Entry;
use crate::cursor::Cursor;
use crate::pickle::machine::{Built, run};
use crate::pickle::state;
use crate::pickle::value::{Content, Storage, Value};
use crate::shown::shown;

/// 0x1950a86a20f9469cfc6c, the lowest byte first.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

const VERSION: i64 = 1001;

/// Finds the tensors in a file's bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
    let magic = run(bytes, 0)
        .ok()
        .filter(|built| built.top == Value::Large(&MAGIC));
    let magic = magic.ok_or("it is neither a zip archive nor a pickle with PyTorch's number")?;
    let version = run(bytes, magic.end)?;
    if version.top != Value::Integer(VERSION) {
        return Err(format!("its version is not {VERSION}"));
    }
    // About the system it was written on. Storages are written with the lowest byte first on every system.
    let system = run(bytes, version.end)?;
    let object = run(bytes, system.end)?;
    let keys = run(bytes, object.end)?;
    let places = places(bytes, &object, &keys)?;
    state::entries(&object, |storage| {
        places
            .get(storage.key)
            .cloned()
            .ok_or_else(|| format!("its storage {} is not there", shown(storage.key)))
    })
}

/// Where each storage lies: a list has their keys in order, and each has its count before its numbers. Only the object says
/// how large a number is.
fn places<'a>(
    bytes: &'a [u8],
    object: &Built<'a>,
    keys: &Built<'a>,
) -> Result<BTreeMap<&'a str, Range<usize>>, String> {
    let storages = storages(object)?;
    let list = keys.heap.list(keys.top);
    let list = list.ok_or("it has no list of storages")?;
    let mut places = BTreeMap::new();
    let mut cursor = Cursor::at(bytes, keys.end);
    for key in list {
        let storage = match key {
            Value::Text(key) => storages.get(key),
            _ => None,
        };
        let storage = storage.ok_or("its list of storages has one that no tensor is in")?;
        let count = cursor.u64()?;
        if usize::try_from(count) != Ok(storage.count) {
            return Err(format!(
                "storage {} has {count} numbers and should have {}",
                shown(storage.key),
                storage.count
            ));
        }
        let (_, size) = storage.kind.block();
        let start = cursor.position();
        cursor.take(storage.count.saturating_mul(size))?;
        if places
            .insert(storage.key, start..cursor.position())
            .is_some()
        {
            return Err(format!(
                "storage {} is there a second time",
                shown(storage.key)
            ));
        }
    }
    Ok(places)
}

/// The storages that an object names, by key.
fn storages<'a>(object: &Built<'a>) -> Result<BTreeMap<&'a str, Storage<'a>>, String> {
    let mut storages = BTreeMap::new();
    for content in object.heap.contents() {
        let Content::Storage(storage) = content else {
            continue;
        };
        let before = storages.insert(storage.key, *storage);
        if before.is_some_and(|before| before != *storage) {
            return Err(format!(
                "storage {} is described in two ways",
                shown(storage.key)
            ));
        }
    }
    Ok(storages)
}
