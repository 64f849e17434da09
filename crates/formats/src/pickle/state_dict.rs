//! The tensors of an unpickled state dict.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error_text::excerpt;
use crate::pickle::unpickler::Unpickled;
use crate::pickle::value::{Storage, Tensor, Value};
use crate::pickle::view::{self, TensorView};
use crate::{ParseError, TensorInfo};

/// Keys under which training scripts nest the state dict.
const WRAPPERS: [&str; 2] = ["state_dict", "model"];

/// The tensors of a dict by name; `locate` gives the byte range of a storage. Other values are skipped.
pub(super) fn tensors(
    unpickled: &Unpickled<'_>,
    locate: impl Fn(Storage<'_>) -> Result<Range<usize>, ParseError>,
) -> Result<BTreeMap<String, TensorInfo>, ParseError> {
    let mut tensors = BTreeMap::new();
    for (key, value) in tensor_dict(unpickled)? {
        let Some(tensor) = unpickled.heap.tensor(*value) else {
            continue;
        };
        let Value::String(name) = key else {
            return Err(ParseError::unsupported(
                "a tensor has a name that is not a string, which is not supported",
            ));
        };
        let info = tensor_info(unpickled, tensor, &locate)
            .map_err(|error| error.of(&format!("tensor {}", excerpt(name))))?;
        // In Python the second would win; PyTorch never writes duplicates.
        if tensors.insert((*name).to_owned(), info).is_some() {
            return Err(format!("tensor {} is duplicated", excerpt(name)).into());
        }
    }
    if tensors.is_empty() {
        return Err(ParseError::unsupported(
            "it has no tensors where they are supported: at the top, under `state_dict` or under `model`",
        ));
    }
    Ok(tensors)
}

/// The dict that holds the tensors: the object itself, or one nested in it.
fn tensor_dict<'b, 'a>(
    unpickled: &'b Unpickled<'a>,
) -> Result<&'b [(Value<'a>, Value<'a>)], ParseError> {
    let heap = &unpickled.heap;
    let top = heap.dict(unpickled.top);
    let top = top.ok_or_else(|| {
        ParseError::unsupported("it holds no state dict, and nothing else is supported")
    })?;
    let inner = WRAPPERS.iter().find_map(|wrapper| {
        let (_, value) = top.iter().find(|(key, _)| *key == Value::String(wrapper))?;
        let inner = heap.dict(*value)?;
        let has_tensors = inner.iter().any(|(_, value)| heap.tensor(*value).is_some());
        has_tensors.then_some(inner)
    });
    Ok(inner.unwrap_or(top))
}

fn tensor_info<'a>(
    unpickled: &Unpickled<'a>,
    tensor: Tensor,
    locate: impl Fn(Storage<'_>) -> Result<Range<usize>, ParseError>,
) -> Result<TensorInfo, ParseError> {
    let heap = &unpickled.heap;
    let arguments = heap.tuple(Value::Object(tensor.arguments));
    let Some([storage, offset, shape, strides, ..]) = arguments else {
        return Err("its arguments are not those that PyTorch writes".into());
    };
    let storage = heap.storage(*storage).ok_or("it has no storage")?;
    let bytes = locate(storage)?;
    let (_, size) = storage.dtype.block();
    if storage.count.checked_mul(size) != Some(bytes.len()) {
        return Err(format!(
            "its storage has {} bytes, which are not {} elements of {size} bytes each",
            bytes.len(),
            storage.count
        )
        .into());
    }
    let view = TensorView {
        dtype: tensor.dtype.unwrap_or(storage.dtype),
        offset: view::size(*offset)?,
        shape: view::sizes(heap, *shape)?,
        strides: view::sizes(heap, *strides)?,
    };
    view.locate(&bytes)
}
