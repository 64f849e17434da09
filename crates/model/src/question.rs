//! Question answering: where the question ends and the text begins.

use burn::tensor::{Int, Tensor};

/// The number of tokens of the question in each row of `ids` `[batch, length]`: up to and including the first `end`, or 1
/// where there is none.
pub(crate) fn question_lengths(ids: &Tensor<2, Int>, end: u32) -> Vec<usize> {
    let [_, length] = ids.dims();
    let ids = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
    let row = |row: &[i64]| {
        let position = row.iter().position(|id| *id == i64::from(end));
        position.unwrap_or(0) + 1
    };
    ids.chunks(length.max(1)).map(row).collect()
}
