//! Strided views of `[batch, heads, length, width]` tensors for the attention kernels.

use attentive_kernels::attention::{Heads, Shape, Strides};
use burn::backend::flex::FlexTensor;

use super::{contiguous, tensor};

/// A `[batch, heads, length, width]` view of data in memory order `[batch, length, heads, width]`, which the output
/// projection reads without a copy.
pub(super) fn length_first(
    data: Vec<f32>,
    [batch, heads, length, width]: [usize; 4],
) -> FlexTensor {
    tensor(data, [batch, length, heads, width]).permute(&[0, 2, 1, 3])
}

/// The tensor itself if each row is contiguous, otherwise a contiguous copy.
pub(super) fn contiguous_rows(x: &FlexTensor) -> FlexTensor {
    let layout = x.layout();
    let fits = layout.strides()[3] == 1 && layout.has_positive_strides();
    if fits { x.clone() } else { contiguous(x) }
}

/// A strided view of the heads.
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

/// The problem size of an attention.
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

/// The shapes of query, key and value.
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
