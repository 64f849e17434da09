//! From the storage, offset, shape and strides of a tensor to its bytes in the file.

use std::ops::Range;

use crate::pickle::value::{Heap, Value};
use crate::tensor_info::element_count;
use crate::{DType, ParseError, TensorInfo};

/// The most dimensions of a tensor. A pickle references a tuple of any length in two bytes, so without a limit a small file
/// could demand much memory.
const MAX_DIMS: usize = 16;

/// A strided view of a storage.
#[derive(Debug)]
pub(super) struct TensorView {
    pub(super) dtype: DType,
    /// In elements from the start of the storage.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// In elements.
    pub(super) strides: Vec<usize>,
}

impl TensorView {
    /// The location in the file, if the view lies within its storage.
    pub(super) fn locate(self, storage: &Range<usize>) -> Result<TensorInfo, ParseError> {
        let Self {
            dtype,
            offset,
            shape,
            strides,
        } = self;
        let (_, size) = dtype.block();
        let stored = storage.len() / size;
        if shape.len() != strides.len() {
            return Err(format!("it has the sizes {shape:?} and the strides {strides:?}").into());
        }
        let elements = element_count(&shape)?;
        let length = if elements == 0 {
            Some(0)
        } else {
            span(&shape, &strides)
        };
        let end = length
            .and_then(|length| offset.checked_add(length))
            .filter(|end| *end <= stored);
        let Some(end) = end else {
            return Err(format!(
                "its sizes {shape:?} and strides {strides:?} from element {offset} on \
                 reach beyond the {stored} elements of its storage"
            )
            .into());
        };
        // PyTorch's `expand` makes overlapping views, with which a storage of one element could stand for a tensor larger than
        // memory. So a view may have no more elements than its storage.
        if elements > stored {
            return Err(ParseError::Unsupported(format!(
                "it has {elements} elements, and its storage has {stored}: it was expanded, which is not supported; \
                 save a contiguous copy"
            )));
        }
        let contiguous = elements == 0 || is_contiguous(&shape, &strides);
        Ok(TensorInfo {
            dtype,
            shape,
            // Neither product overflows: both are at most the size of the storage.
            bytes: storage.start + offset * size..storage.start + end * size,
            strides: (!contiguous).then_some(strides),
        })
    }
}

/// Elements from the first to the last of a view, inclusive; `None` on overflow. No size may be zero.
fn span(shape: &[usize], strides: &[usize]) -> Option<usize> {
    let mut axes = shape.iter().zip(strides);
    axes.try_fold(1usize, |span, (size, stride)| {
        span.checked_add((size - 1).checked_mul(*stride)?)
    })
}

/// Whether a view is contiguous. No size may be zero.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(size, stride)| {
        // The stride of a dimension of size one is meaningless, and PyTorch writes whatever it was.
        let fits = *size == 1 || *stride == expected;
        expected *= size;
        fits
    })
}

/// The shape or strides of a tensor.
pub(super) fn sizes<'a>(heap: &Heap<'a>, value: Value<'a>) -> Result<Vec<usize>, ParseError> {
    let values = heap
        .tuple(value)
        .ok_or("its sizes or strides are not a tuple")?;
    if values.len() > MAX_DIMS {
        return Err(ParseError::Unsupported(format!(
            "it has {} dimensions; at most {MAX_DIMS} are supported",
            values.len()
        )));
    }
    let sizes: Result<Vec<usize>, String> = values.iter().map(|value| size(*value)).collect();
    Ok(sizes?)
}

/// A size, stride or offset.
pub(super) fn size(value: Value<'_>) -> Result<usize, String> {
    let size = match value {
        Value::Integer(number) => usize::try_from(number).ok(),
        _ => None,
    };
    size.ok_or_else(|| "a size, stride or offset of it is not a non-negative integer".to_owned())
}
