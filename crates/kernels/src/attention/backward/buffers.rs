//! Scratch buffers of a task of the backward pass.

use super::super::scores::is_read_in_place;
use super::super::{Heads, QUERY_BLOCK, Shape};
use crate::gemm::split_scratch;
use crate::microkernel::TileSize;

/// Length of each buffer, in the order of [`Buffers`].
pub(super) type BufferSizes = [usize; 11];

/// The packed operands of a head, and its gradients so far.
pub(super) struct Buffers<'s> {
    /// Keys and values packed in panels of columns.
    pub key_panels: &'s mut [f32],
    pub value_panels: &'s mut [f32],
    /// Padded copies of keys, queries and output gradients, where they are not read in place.
    pub copies: [&'s mut [f32]; 3],
    /// Gradients as padded rows.
    pub query_gradients: &'s mut [f32],
    pub key_gradients: &'s mut [f32],
    pub value_gradients: &'s mut [f32],
    /// A tile of weights and a tile of score gradients.
    pub weights: &'s mut [f32],
    pub score_gradients: &'s mut [f32],
    /// `rowsum(dO ∘ O)` of each query.
    pub deltas: &'s mut [f32],
}

impl<'s> Buffers<'s> {
    /// Splits scratch memory into the buffers.
    #[inline(always)]
    pub fn split(scratch: &'s mut [f32], sizes: BufferSizes) -> Self {
        let mut buffers = split_scratch(scratch, sizes).into_iter();
        let mut take = || buffers.next().expect("there is a size per buffer");
        Self {
            key_panels: take(),
            value_panels: take(),
            copies: [take(), take(), take()],
            query_gradients: take(),
            key_gradients: take(),
            value_gradients: take(),
            weights: take(),
            score_gradients: take(),
            deltas: take(),
        }
    }
}

/// Lengths of the buffers, for a tile size, keys, queries and output gradients.
pub(super) fn buffer_sizes(
    shape: &Shape,
    tile: TileSize,
    [key, query, output_gradients]: [Heads; 3],
) -> BufferSizes {
    let copy_size = |heads, rows, width: usize| match is_read_in_place(heads, rows, width, tile) {
        true => 0,
        false => rows * tile.padded(width),
    };
    let padded_keys = shape.keys.next_multiple_of(tile.nr);
    let width = tile.padded(shape.head_width);
    let value_width = tile.padded(shape.value_width);
    [
        padded_keys * shape.head_width,
        padded_keys * shape.value_width,
        copy_size(key, shape.keys, shape.head_width),
        copy_size(query, shape.queries, shape.head_width),
        copy_size(output_gradients, shape.queries, shape.value_width),
        shape.queries * width,
        shape.keys * width,
        shape.keys * value_width,
        QUERY_BLOCK * shape.score_stride(),
        QUERY_BLOCK * shape.score_stride(),
        shape.queries,
    ]
}
