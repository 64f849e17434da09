//! The buffers of a task of the backward pass.

use super::super::{CHUNK, MANY, Shape};
use crate::micro::{ROWS, TileSize};

/// How large each buffer is, in the order of [`Buffers`].
pub(super) type Sizes = [usize; 12];

pub(super) struct Buffers<'s> {
    /// Sums of wide rows times rows of features, as panels of features: `[features in panels][wide]`.
    pub state: &'s mut [f32],
    /// The same exchanged, without the wide rows' last number, as panels of values' columns.
    pub turned: &'s mut [f32],
    /// Values with a one behind each, also as columns of panels, and the left-hand side of what joins a state.
    pub values: &'s mut [f32],
    pub value_columns: &'s mut [f32],
    pub left: &'s mut [f32],
    /// Keys' or queries' features in panels.
    pub features: &'s mut [f32],
    /// `[h, c]` of a chunk's queries.
    pub slopes: &'s mut [f32],
    /// A chunk's keys as columns of panels, and the slopes `h` in panels.
    pub key_columns: &'s mut [f32],
    pub slope_panels: &'s mut [f32],
    /// The triangles of weights and of their slopes.
    pub triangles: &'s mut [f32],
    /// Rows of gradients.
    pub feature_rows: &'s mut [f32],
    pub value_rows: &'s mut [f32],
}

impl<'s> Buffers<'s> {
    /// Cuts the buffers from memory that holds all of them.
    #[inline(always)]
    pub fn cut(scratch: &'s mut [f32], sizes: Sizes) -> Self {
        let mut rest = scratch;
        let mut parts: [&mut [f32]; 12] = Default::default();
        for (part, size) in parts.iter_mut().zip(sizes) {
            (*part, rest) = rest.split_at_mut(size);
        }
        let [
            state,
            turned,
            values,
            value_columns,
            left,
            features,
            slopes,
            key_columns,
            slope_panels,
            triangles,
            feature_rows,
            value_rows,
        ] = parts;
        Self {
            state,
            turned,
            values,
            value_columns,
            left,
            features,
            slopes,
            key_columns,
            slope_panels,
            triangles,
            feature_rows,
            value_rows,
        }
    }
}

/// The sizes of the buffers, for tiles of a size.
pub(super) fn sizes(shape: &Shape, tile: TileSize) -> Sizes {
    let panel = tile.columns;
    let features = shape.head_width.next_multiple_of(panel);
    let width = shape.value_width.next_multiple_of(panel);
    let wide = shape.value_width + 1;
    let chunk = CHUNK.next_multiple_of(panel);
    [
        wide * features,
        shape.head_width * width,
        MANY * wide,
        chunk * wide,
        MANY * wide.next_multiple_of(ROWS),
        MANY * features,
        CHUNK * wide,
        chunk * shape.head_width,
        CHUNK * width,
        2 * CHUNK * chunk,
        CHUNK * features,
        CHUNK * width,
    ]
}
