//! Where a tensor lies in a file.

use std::ops::Range;

use crate::Kind;

/// A tensor of a file: what it is, and which bytes are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What its numbers are.
    pub kind: Kind,
    /// Its sizes, the slowest first.
    pub shape: Vec<usize>,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
    /// How many numbers lie between neighbours along each axis, where they do not simply follow each other.
    pub strides: Option<Vec<usize>>,
}

impl Entry {
    /// A tensor whose numbers follow each other from `start` on; the error says why it cannot lie in a file of `size` bytes.
    pub fn dense(kind: Kind, shape: Vec<usize>, start: usize, size: usize) -> Result<Self, String> {
        let numbers = numbers(&shape)?;
        let length = kind.bytes_of(&shape, numbers)?;
        let end = start.checked_add(length).filter(|end| *end <= size);
        let Some(end) = end else {
            return Err(format!(
                "{length} bytes from {start} on reach beyond the file's {size}"
            ));
        };
        Ok(Self {
            kind,
            shape,
            bytes: start..end,
            strides: None,
        })
    }
}

/// How many numbers a shape has.
pub(crate) fn numbers(shape: &[usize]) -> Result<usize, String> {
    let product = shape
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size));
    product.ok_or_else(|| format!("the sizes {shape:?} multiply to more than memory can hold"))
}
