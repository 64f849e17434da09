//! Dtype, shape and location of a tensor in a file.

use std::ops::Range;

use crate::DType;

/// A tensor of a file: its dtype, its shape, and the bytes it occupies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The element type.
    pub dtype: DType,
    /// The shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// The byte range in the file.
    pub bytes: Range<usize>,
    /// The strides in elements, if the tensor is not contiguous.
    pub strides: Option<Vec<usize>>,
}

impl TensorInfo {
    /// A contiguous tensor that starts at byte `start`; the error says why it does not fit a file of `size` bytes.
    pub fn contiguous(
        dtype: DType,
        shape: Vec<usize>,
        start: usize,
        size: usize,
    ) -> Result<Self, String> {
        let elements = element_count(&shape)?;
        let length = dtype.byte_length(&shape, elements)?;
        let end = start.checked_add(length).filter(|end| *end <= size);
        let Some(end) = end else {
            return Err(format!(
                "{length} bytes from {start} on reach beyond the file's {size}"
            ));
        };
        Ok(Self {
            dtype,
            shape,
            bytes: start..end,
            strides: None,
        })
    }
}

/// The number of elements of a shape.
pub(crate) fn element_count(shape: &[usize]) -> Result<usize, String> {
    let product = shape
        .iter()
        .try_fold(1usize, |product, size| product.checked_mul(*size));
    product.ok_or_else(|| format!("the sizes {shape:?} multiply to more than memory can hold"))
}
