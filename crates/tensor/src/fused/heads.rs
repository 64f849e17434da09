//! Tensors `[batch, heads, length, width]` as kernels of attention read and write them, wherever their rows stand.

use attentive_kernels::attention::{Heads, Shape, Strides};
use burn::backend::flex::FlexTensor;

use super::{dense, tensor};

/// `[batch, heads, length, width]`, in memory `[batch, length, heads, width]`: positions outside heads, as the output
/// projection reads them.
pub(super) fn length_first(
    numbers: Vec<f32>,
    [batch, heads, length, width]: [usize; 4],
) -> FlexTensor {
    tensor(numbers, [batch, length, heads, width]).permute(&[0, 2, 1, 3])
}

/// The tensor itself if the numbers of each row follow each other, otherwise a dense copy.
pub(super) fn rows_dense(x: &FlexTensor) -> FlexTensor {
    let layout = x.layout();
    let fits = layout.strides()[3] == 1 && layout.has_positive_strides();
    if fits { x.clone() } else { dense(x) }
}

/// The rows of a tensor.
pub(super) fn heads(x: &FlexTensor) -> Heads<'_> {
    let strides = x.layout().strides();
    let stride = |axis: usize| usize::try_from(strides[axis]).expect("strides are positive");
    Heads {
        data: &x.storage::<f32>()[x.layout().start_offset()..],
        strides: Strides {
            batch: stride(0),
            head: stride(1),
            row: stride(2),
        },
    }
}

/// The sizes of an attention of queries, keys and values.
pub(super) fn shape([query, key, value]: [&FlexTensor; 3]) -> Shape {
    let [query, key, value] = [query, key, value].map(|it| it.layout().shape());
    Shape {
        batch: query[0],
        heads: query[1],
        key_value_heads: key[1],
        queries: query[2],
        keys: key[2],
        head_width: query[3],
        value_width: value[3],
    }
}

/// The sizes of the queries, the keys and the values of an attention.
pub(super) fn operand_sizes(shape: &Shape) -> [[usize; 4]; 3] {
    let Shape {
        batch,
        heads,
        key_value_heads,
        queries,
        keys,
        head_width,
        value_width,
    } = *shape;
    [
        [batch, heads, queries, head_width],
        [batch, key_value_heads, keys, head_width],
        [batch, key_value_heads, keys, value_width],
    ]
}
