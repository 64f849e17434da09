//! The tensors of the object that a file holds.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Entry;
use crate::pickle::layout::{self, Window};
use crate::pickle::machine::Built;
use crate::pickle::value::{Storage, Tensor, Value};
use crate::shown::shown;

/// Under which keys training programs keep the tensors beside other things.
const WRAPPERS: [&str; 2] = ["state_dict", "model"];

/// The tensors of a dictionary by name; `locate` says where in the file a storage lies. What is no tensor is passed over.
pub(super) fn entries(
    built: &Built<'_>,
    locate: impl Fn(Storage<'_>) -> Result<Range<usize>, String>,
) -> Result<BTreeMap<String, Entry>, String> {
    let mut entries = BTreeMap::new();
    for (key, value) in dictionary(built)? {
        let Some(tensor) = built.heap.tensor(*value) else {
            continue;
        };
        let Value::Text(name) = key else {
            return Err("a tensor has a name that is no text".to_owned());
        };
        let entry = entry(built, tensor, &locate)
            .map_err(|problem| format!("tensor {}: {problem}", shown(name)))?;
        // Python would take the second; PyTorch never writes one.
        if entries.insert((*name).to_owned(), entry).is_some() {
            return Err(format!("tensor {} is there a second time", shown(name)));
        }
    }
    if entries.is_empty() {
        return Err("there is no tensor in it".to_owned());
    }
    Ok(entries)
}

/// The dictionary that holds the tensors: the object itself, or one in it.
fn dictionary<'b, 'a>(built: &'b Built<'a>) -> Result<&'b [(Value<'a>, Value<'a>)], String> {
    let heap = &built.heap;
    let top = heap
        .dictionary(built.top)
        .ok_or("it holds no dictionary of tensors")?;
    let inner = WRAPPERS.iter().find_map(|wrapper| {
        let (_, value) = top.iter().find(|(key, _)| *key == Value::Text(wrapper))?;
        let inner = heap.dictionary(*value)?;
        let has_tensors = inner.iter().any(|(_, value)| heap.tensor(*value).is_some());
        has_tensors.then_some(inner)
    });
    Ok(inner.unwrap_or(top))
}

fn entry<'a>(
    built: &Built<'a>,
    tensor: Tensor,
    locate: impl Fn(Storage<'_>) -> Result<Range<usize>, String>,
) -> Result<Entry, String> {
    let heap = &built.heap;
    let arguments = heap.tuple(Value::Object(tensor.arguments));
    let Some([storage, offset, shape, strides, ..]) = arguments else {
        return Err("it is built of other things than PyTorch writes".to_owned());
    };
    let storage = heap.storage(*storage).ok_or("it has no storage")?;
    let bytes = locate(storage)?;
    let (_, size) = storage.kind.block();
    if storage.count.checked_mul(size) != Some(bytes.len()) {
        return Err(format!(
            "its storage has {} bytes, which are not {} numbers of {size} bytes each",
            bytes.len(),
            storage.count
        ));
    }
    let window = Window {
        kind: tensor.kind.unwrap_or(storage.kind),
        offset: layout::size(*offset)?,
        shape: layout::sizes(heap, *shape)?,
        strides: layout::sizes(heap, *strides)?,
    };
    window.entry(&bytes)
}
