//! Where a question ends that stands before the text of its answer.

use burn::tensor::{Int, Tensor};

/// How many tokens of each row of `ids` `[batch, length]` are of the question: those up to the first `end` and with it, or the
/// first alone where there is none.
pub(crate) fn question_lengths(ids: &Tensor<2, Int>, end: u32) -> Vec<usize> {
    let [_, length] = ids.dims();
    let ids = ids.clone().into_data().iter::<i64>().collect::<Vec<_>>();
    let row = |row: &[i64]| {
        let place = row.iter().position(|id| *id == i64::from(end));
        place.unwrap_or(0) + 1
    };
    ids.chunks(length.max(1)).map(row).collect()
}
