//! From a tensor's storage, offset, sizes and strides to its bytes in the file.

use std::ops::Range;

use crate::entry::numbers;
use crate::pickle::value::{Heap, Value};
use crate::{Entry, Kind};

/// The most axes of a tensor. A pickle names a tuple of any length in two bytes, so without a limit a small file could ask for
/// much memory.
const MOST_AXES: usize = 16;

/// A tensor as the file describes it.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) kind: Kind,
    /// How many numbers of the storage lie before it.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// How many numbers lie between neighbours along each axis.
    pub(super) strides: Vec<usize>,
}

impl Window {
    /// Where the tensor lies in the file, if it lies in its storage.
    pub(super) fn entry(self, storage: &Range<usize>) -> Result<Entry, String> {
        let Self {
            kind,
            offset,
            shape,
            strides,
        } = self;
        let (_, size) = kind.block();
        let stored = storage.len() / size;
        if shape.len() != strides.len() {
            return Err(format!(
                "it has the sizes {shape:?} and the strides {strides:?}"
            ));
        }
        let numbers = numbers(&shape)?;
        // Overlapping windows are PyTorch's `expand`. In them a storage of one number may stand for a tensor that no memory
        // holds, so they may have as many numbers as are stored and no more.
        if numbers > stored {
            return Err(format!(
                "it has {numbers} numbers, and there are {stored} in its storage"
            ));
        }
        let length = if numbers == 0 {
            Some(0)
        } else {
            span(&shape, &strides)
        };
        let end = length
            .and_then(|length| offset.checked_add(length))
            .filter(|end| *end <= stored);
        let Some(end) = end else {
            return Err(format!(
                "its sizes {shape:?} and strides {strides:?} from number {offset} on \
                 reach beyond the {stored} numbers of its storage"
            ));
        };
        let dense = numbers == 0 || is_dense(&shape, &strides);
        Ok(Entry {
            kind,
            shape,
            // Neither product overflows: both are at most the length of the storage.
            bytes: storage.start + offset * size..storage.start + end * size,
            strides: (!dense).then_some(strides),
        })
    }
}

/// How many numbers lie from the first to the last, both counted; none where there are too many to count. No size is zero.
fn span(shape: &[usize], strides: &[usize]) -> Option<usize> {
    let mut axes = shape.iter().zip(strides);
    axes.try_fold(1usize, |span, (size, stride)| {
        span.checked_add((size - 1).checked_mul(*stride)?)
    })
}

/// Whether the numbers follow each other in the order of the shape. No size is zero.
fn is_dense(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(size, stride)| {
        // Along an axis of one, a stride is never taken, and PyTorch writes whatever it was.
        let fits = *size == 1 || *stride == expected;
        expected *= size;
        fits
    })
}

/// The sizes or strides of a tensor.
pub(super) fn sizes<'a>(heap: &Heap<'a>, value: Value<'a>) -> Result<Vec<usize>, String> {
    let values = heap
        .tuple(value)
        .ok_or("its sizes or strides are no tuple")?;
    if values.len() > MOST_AXES {
        return Err(format!(
            "it has {} axes, and at most {MOST_AXES} are supported",
            values.len()
        ));
    }
    values.iter().map(|value| size(*value)).collect()
}

/// A size, stride or offset.
pub(super) fn size(value: Value<'_>) -> Result<usize, String> {
    let size = match value {
        Value::Integer(number) => usize::try_from(number).ok(),
        _ => None,
    };
    size.ok_or_else(|| "a size, stride or offset of it is no whole number from 0 on".to_owned())
}
