//! Rows cut into parts for threads. The cuts depend on the sizes alone, so that sums over parts do too.

use std::ops::Range;
use std::sync::Mutex;

use crate::threads::{self, GRAIN};

/// The most parts: enough to keep threads busy, few enough that a sum per part costs nothing.
const MOST: usize = 64;

/// The smallest part of a sweep over numbers: half the grain, so that the weights of a small layer (128 by 128) are two.
const SMALLEST: usize = GRAIN / 2;

/// Equal parts of some rows; the last may be smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    rows: usize,
    each: usize,
}

impl Parts {
    /// Parts of `rows` rows with `width` numbers of work in each row.
    pub fn of_rows(rows: usize, width: usize) -> Self {
        let each = GRAIN.div_ceil(width.max(1)).max(rows.div_ceil(MOST));
        Self { rows, each }
    }

    /// Parts of as many numbers, cut between cache lines of an aligned slice.
    pub fn of_numbers(length: usize) -> Self {
        let each = SMALLEST.max(length.div_ceil(MOST)).next_multiple_of(64);
        Self { rows: length, each }
    }

    /// The rows of each part, in order.
    pub fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows)
            .step_by(self.each)
            .map(move |start| start..(start + self.each).min(self.rows))
    }

    /// Each part of a matrix with rows of `width` numbers.
    pub fn cut<T>(self, data: &[T], width: usize) -> impl Iterator<Item = &[T]> {
        self.ranges()
            .map(move |range| &data[range.start * width..range.end * width])
    }

    /// Each part of a matrix with rows of `width` numbers, to write to.
    pub fn cut_mut<T>(self, mut data: &mut [T], width: usize) -> impl Iterator<Item = &mut [T]> {
        self.ranges().map(move |range| {
            data.split_off_mut(..range.len() * width)
                .expect("the matrix has all rows")
        })
    }
}

/// Does the work of each part, on all threads if there are several parts.
pub(crate) fn each<T: Send>(parts: Vec<T>, work: impl Fn(T) + Sync) {
    map(parts, work);
}

/// The results of each part, in the order of the parts.
pub(crate) fn map<T: Send, R: Send>(parts: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if parts.len() < 2 {
        return parts.into_iter().map(work).collect();
    }
    let slots: Vec<Mutex<(Option<T>, Option<R>)>> = parts
        .into_iter()
        .map(|part| Mutex::new((Some(part), None)))
        .collect();
    threads::each(slots.len(), |index| {
        let mut slot = slots[index].lock().expect("each part is taken once");
        slot.1 = slot.0.take().map(&work);
    });
    let results = slots.into_iter().map(|slot| slot.into_inner().ok()?.1);
    results
        .map(|result| result.expect("every part was worked on"))
        .collect()
}

/// Panics with the operation and both sizes when a slice does not have the expected one.
#[track_caller]
pub(crate) fn fits(operation: &str, name: &str, found: usize, expected: usize) {
    assert_eq!(
        found, expected,
        "{operation}: {name} has {found} numbers instead of {expected}"
    );
}
