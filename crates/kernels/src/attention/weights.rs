//! The attention weights themselves, for those who want to look: made again from the saved log-sums.

use std::ops::Range;

use super::{Heads, Options, Shape};
use crate::parts::{self, Parts};

/// Writes the exact weights `[batch, heads, queries, keys]`, before dropout; rows that saw nothing are zeros.
///
/// # Panics
/// When a slice does not fit the shape.
pub fn weights(
    shape: &Shape,
    query: Heads,
    key: Heads,
    options: &Options,
    log_sums: &[f32],
    out: &mut [f32],
) {
    shape.check();
    let rows = shape.batch * shape.heads * shape.queries;
    assert!(
        log_sums.len() == rows && out.len() == rows * shape.keys,
        "attention weights: {} log-sums and {} numbers do not fit {shape:?}",
        log_sums.len(),
        out.len()
    );
    if out.is_empty() {
        return;
    }
    let cut = Parts::of_rows(rows, shape.keys * shape.head_width);
    let work = cut.ranges().zip(cut.cut_mut(out, shape.keys)).collect();
    parts::each(work, |(range, out): (Range<usize>, &mut [f32])| {
        for (row, out) in range.zip(out.chunks_mut(shape.keys)) {
            let log_sum = log_sums[row];
            let position = row % shape.queries;
            let head = row / shape.queries % shape.heads;
            let batch = row / shape.queries / shape.heads;
            out.fill(0.0);
            let seen = options.mask.range(shape, batch, position);
            if log_sum == f32::NEG_INFINITY {
                continue;
            }
            let q = query.row(batch, head, position, shape.head_width);
            let line = &mut out[seen.clone()];
            for (score, other) in line.iter_mut().zip(seen.clone()) {
                let k = key.row(batch, shape.key_value_head(head), other, shape.head_width);
                *score = q.iter().zip(k).map(|(a, b)| a * b).sum();
            }
            super::scores::scale_row(line, options, shape, [batch, head, position], seen.start);
            for weight in line {
                *weight = (*weight - log_sum).exp();
            }
        }
    });
}
