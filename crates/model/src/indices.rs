//! Tensors of integers: token ids, and indices along an axis.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Rows of token ids as a model's input, `[rows, length]`.
///
/// # Panics
/// When the rows are not equally long.
pub fn ids_tensor<R: AsRef<[u32]>>(rows: &[R], device: &Device) -> Tensor<2, Int> {
    let length = rows.first().map_or(0, |row| row.as_ref().len());
    let mut ids = Vec::with_capacity(rows.len() * length);
    for row in rows {
        let row = row.as_ref();
        assert_eq!(
            row.len(),
            length,
            "ids: a row of {} tokens does not match the first, of {length}",
            row.len()
        );
        ids.extend(row.iter().map(|id| i64::from(*id)));
    }
    Tensor::from_data(TensorData::new(ids, [rows.len(), length]), device)
}

/// Indices along an axis, `[count]`.
pub(crate) fn indices(indices: impl IntoIterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let indices: Vec<i64> = indices.into_iter().map(|it| it as i64).collect();
    let count = indices.len();
    Tensor::from_data(TensorData::new(indices, [count]), device)
}
