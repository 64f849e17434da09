//! The numbers of Flex's tensors, and tensors of numbers.

use attentive_kernels::gemm::Matrix;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Shape, TensorData};

/// A tensor whose numbers follow each other.
pub(super) fn dense(x: &FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

/// A matrix whose rows or columns can be read where they lie: weights may be columns of a file that is mapped. Any other is
/// made dense.
pub(super) fn readable(x: &FlexTensor) -> FlexTensor {
    match strides(x) {
        Some(_) => x.clone(),
        None => dense(x),
    }
}

/// The numbers of a readable matrix.
pub(super) fn matrix(x: &FlexTensor) -> Matrix<'_> {
    let strides = strides(x).expect("the matrix is readable");
    let sizes = [0, 1].map(|axis| x.layout().shape()[axis]);
    let start = x.layout().start_offset();
    let numbers = x.storage().get(start..).unwrap_or_default();
    Matrix::strided(numbers, sizes, strides)
}

/// How far apart the neighbours of a matrix are, below and beside each other, if one of the two is no distance.
fn strides(x: &FlexTensor) -> Option<[usize; 2]> {
    let [row, column] = [0, 1].map(|axis| usize::try_from(x.layout().strides()[axis]).ok());
    let strides = [row?, column?];
    strides.contains(&1).then_some(strides)
}

/// [`dense`] of a tensor that the caller has no more use for: it stays the only holder of its memory.
pub(super) fn into_dense(x: FlexTensor) -> FlexTensor {
    if x.is_contiguous() && x.storage::<f32>().len() == x.layout().num_elements() {
        return x;
    }
    x.to_contiguous()
}

/// Whether a tensor stands for something: an absent one is empty.
pub(super) fn is_present(x: &FlexTensor) -> bool {
    x.layout().num_elements() > 0
}

/// The numbers of a dense tensor, unless it is absent.
pub(super) fn present(x: &FlexTensor) -> Option<&[f32]> {
    is_present(x).then(|| numbers(x))
}

/// The numbers of a dense tensor.
pub(super) fn numbers(x: &FlexTensor) -> &[f32] {
    x.as_slice().expect("the tensor is dense and f32")
}

/// Whole numbers, in whichever width the tensor has them.
pub(super) fn integers(x: &FlexTensor) -> Vec<i64> {
    let x = dense(x);
    match x.dtype() {
        DType::I64 => x.as_slice::<i64>().expect("dense").to_vec(),
        DType::I32 => {
            let narrow = x.as_slice::<i32>().expect("dense");
            narrow.iter().map(|number| i64::from(*number)).collect()
        }
        other => panic!("ids are {other:?} and must be whole numbers of 32 or 64 bits"),
    }
}

/// A tensor of these numbers.
pub(super) fn tensor(numbers: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(numbers, shape))
}

/// Rows and width of a tensor, seen as a matrix of its last axis.
pub(super) fn rows_and_width(x: &FlexTensor) -> (usize, usize) {
    let shape = x.layout().shape();
    let last = shape.num_dims() - 1;
    (shape[..last].iter().product(), shape[last])
}
