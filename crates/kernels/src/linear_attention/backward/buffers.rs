//! Scratch buffers of a task of the backward pass.

use super::super::{CHUNK, KEY_BLOCK, Shape};
use crate::gemm::split_scratch;
use crate::microkernel::{MR, TileSize};

/// Length of each buffer, in the order of [`Buffers`].
pub(super) type BufferSizes = [usize; 12];

pub(super) struct Buffers<'s> {
    /// The state: products of extended rows and features, in panels of features.
    pub state: &'s mut [f32],
    /// Its transpose without the last column of the extended rows, in panels of value columns.
    pub transposed_state: &'s mut [f32],
    /// Extended values `[v, 1]`, the same transposed in panels, and the packed left-hand side of a state update.
    pub values: &'s mut [f32],
    pub value_columns: &'s mut [f32],
    pub lhs: &'s mut [f32],
    /// Features of keys or queries in panels.
    pub features: &'s mut [f32],
    /// `[h, c]` of a chunk's queries.
    pub output_gradients: &'s mut [f32],
    /// A chunk's keys, transposed, in panels, and the gradients `h` in panels.
    pub key_columns: &'s mut [f32],
    pub gradient_panels: &'s mut [f32],
    /// The causal triangles of weights and of their gradients.
    pub triangles: &'s mut [f32],
    /// Rows of gradients.
    pub feature_rows: &'s mut [f32],
    pub value_rows: &'s mut [f32],
}

impl<'s> Buffers<'s> {
    /// Splits scratch memory into the buffers.
    #[inline(always)]
    pub fn split(scratch: &'s mut [f32], buffer_sizes: BufferSizes) -> Self {
        let mut buffers = split_scratch(scratch, buffer_sizes).into_iter();
        let mut take = || buffers.next().expect("there is a size per buffer");
        Self {
            state: take(),
            transposed_state: take(),
            values: take(),
            value_columns: take(),
            lhs: take(),
            features: take(),
            output_gradients: take(),
            key_columns: take(),
            gradient_panels: take(),
            triangles: take(),
            feature_rows: take(),
            value_rows: take(),
        }
    }
}

/// Lengths of the buffers, for a tile size.
pub(super) fn buffer_sizes(shape: &Shape, tile: TileSize) -> BufferSizes {
    let panel = tile.nr;
    let features = shape.head_width.next_multiple_of(panel);
    let width = shape.value_width.next_multiple_of(panel);
    let extended_width = shape.value_width + 1;
    let chunk = CHUNK.next_multiple_of(panel);
    [
        extended_width * features,
        shape.head_width * width,
        KEY_BLOCK * extended_width,
        chunk * extended_width,
        KEY_BLOCK * extended_width.next_multiple_of(MR),
        KEY_BLOCK * features,
        CHUNK * extended_width,
        chunk * shape.head_width,
        CHUNK * width,
        2 * CHUNK * chunk,
        CHUNK * features,
        CHUNK * width,
    ]
}
