//! Access to the data of Flex tensors.

use attentive_kernels::gemm::Matrix;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Int, Shape, Tensor, TensorData};

/// The tensor, contiguous.
pub(super) fn contiguous(x: &FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

/// The matrix itself if its rows or its columns have unit stride (weights may be transposed views of a mapped file),
/// otherwise a contiguous copy.
pub(super) fn with_unit_stride(x: &FlexTensor) -> FlexTensor {
    match unit_strides(x) {
        Some(_) => x.clone(),
        None => contiguous(x),
    }
}

/// A matrix whose rows or columns have unit stride, as the kernels take it.
pub(super) fn matrix(x: &FlexTensor) -> Matrix<'_> {
    let strides = unit_strides(x).expect("rows or columns have unit stride");
    let sizes = [0, 1].map(|axis| x.layout().shape()[axis]);
    let start = x.layout().start_offset();
    let data = x.storage().get(start..).unwrap_or_default();
    Matrix::strided(data, sizes, strides)
}

/// Row and column stride of a matrix, if one of them is one.
fn unit_strides(x: &FlexTensor) -> Option<[usize; 2]> {
    let [row, column] = [0, 1].map(|axis| usize::try_from(x.layout().strides()[axis]).ok());
    let strides = [row?, column?];
    strides.contains(&1).then_some(strides)
}

/// [`contiguous`] of an owned tensor, so that its storage stays unshared.
pub(super) fn into_contiguous(x: FlexTensor) -> FlexTensor {
    if x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements() {
        return x;
    }
    x.to_contiguous()
}

/// Whether an optional tensor is there: an absent one is empty.
pub(super) fn is_present(x: &FlexTensor) -> bool {
    x.layout().num_elements() > 0
}

/// The data of a contiguous tensor, unless it is absent.
pub(super) fn optional_data(x: &FlexTensor) -> Option<&[f32]> {
    is_present(x).then(|| data(x))
}

/// The data of a contiguous tensor.
pub(super) fn data(x: &FlexTensor) -> &[f32] {
    x.as_slice().expect("the tensor is contiguous and f32")
}

/// Ids or targets.
pub(super) fn integers<const D: usize>(x: Tensor<D, Int>) -> Vec<i64> {
    x.into_data().iter::<i64>().collect()
}

/// A tensor that owns this data.
pub(super) fn tensor(data: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(data, shape))
}

/// A tensor that owns this data, in the shape of another.
pub(super) fn tensor_like(data: Vec<f32>, other: &FlexTensor) -> FlexTensor {
    tensor(data, other.layout().shape().clone())
}

/// The gradient of the one output of an operation.
pub(super) fn single([dy]: [Option<FlexTensor>; 1]) -> FlexTensor {
    dy.expect("backward runs when the output has a gradient")
}

/// Rows and width of a tensor, seen as a matrix of its last axis.
pub(super) fn rows_and_width(x: &FlexTensor) -> (usize, usize) {
    let shape = x.layout().shape();
    let last = shape.num_dims() - 1;
    (shape[..last].iter().product(), shape[last])
}
