//! The buffers of a task of the backward pass.

use super::super::scores::in_place;
use super::super::{Heads, QUERIES, Shape};
use crate::micro::TileSize;

/// How large each buffer is, in the order of [`Buffers`].
pub(super) type Sizes = [usize; 11];

/// The packed operands of a head and its running sums.
pub(super) struct Buffers<'s> {
    /// Keys and values as panels of columns.
    pub key_panels: &'s mut [f32],
    pub value_panels: &'s mut [f32],
    /// Copies of keys, queries and upstream gradients, where they are not read in place.
    pub copies: [&'s mut [f32]; 3],
    /// Sums, as padded rows.
    pub query_sums: &'s mut [f32],
    pub key_sums: &'s mut [f32],
    pub value_sums: &'s mut [f32],
    /// A tile of weights and one of their slopes.
    pub weights: &'s mut [f32],
    pub slopes: &'s mut [f32],
    /// Per query, the mean slope.
    pub means: &'s mut [f32],
}

impl<'s> Buffers<'s> {
    /// Cuts the buffers from memory that holds all of them.
    #[inline(always)]
    pub fn cut(scratch: &'s mut [f32], sizes: Sizes) -> Self {
        let mut rest = scratch;
        let mut parts: [&mut [f32]; 11] = Default::default();
        for (part, size) in parts.iter_mut().zip(sizes) {
            (*part, rest) = rest.split_at_mut(size);
        }
        let [
            key_panels,
            value_panels,
            key_rows,
            query_rows,
            upstream_rows,
            query_sums,
            key_sums,
            value_sums,
            weights,
            slopes,
            means,
        ] = parts;
        Self {
            key_panels,
            value_panels,
            copies: [key_rows, query_rows, upstream_rows],
            query_sums,
            key_sums,
            value_sums,
            weights,
            slopes,
            means,
        }
    }
}

/// The sizes of the buffers, for tiles of this size, and for these keys, queries and upstream gradients.
pub(super) fn buffer_sizes(
    shape: &Shape,
    tile: TileSize,
    [key, query, upstream]: [Heads; 3],
) -> Sizes {
    let copied = |heads, rows, width: usize| match in_place(heads, rows, width, tile) {
        true => 0,
        false => rows * tile.padded(width),
    };
    let padded_keys = shape.keys.next_multiple_of(tile.columns);
    let width = tile.padded(shape.head_width);
    let wide = tile.padded(shape.value_width);
    [
        padded_keys * shape.head_width,
        padded_keys * shape.value_width,
        copied(key, shape.keys, shape.head_width),
        copied(query, shape.queries, shape.head_width),
        copied(upstream, shape.queries, shape.value_width),
        shape.queries * width,
        shape.keys * width,
        shape.keys * wide,
        QUERIES * shape.line(),
        QUERIES * shape.line(),
        shape.queries,
    ]
}
