//! Partitions of rows for threads. They depend on the sizes alone, so that sums over parts do too.

use std::ops::Range;
use std::sync::Mutex;

use crate::threads::{self, GRAIN};

/// The maximum number of parts: enough to keep threads busy, few enough that a sum per part costs little.
const MAX_PARTS: usize = 64;

/// The minimum size of a part: half the grain, so that the weights of a small layer (128 by 128) are split in two.
const MIN_ELEMENTS: usize = GRAIN / 2;

/// A partition of rows into equal parts; the last may be smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partition {
    rows: usize,
    rows_per_part: usize,
}

impl Partition {
    /// A partition of `rows` rows with `width` elements of work per row.
    pub fn of_rows(rows: usize, width: usize) -> Self {
        Self {
            rows,
            rows_per_part: GRAIN.div_ceil(width.max(1)).max(rows.div_ceil(MAX_PARTS)),
        }
    }

    /// A partition of `length` elements at multiples of 64, which are cache-line boundaries of an aligned slice.
    pub fn of_elements(length: usize) -> Self {
        Self {
            rows: length,
            rows_per_part: MIN_ELEMENTS
                .max(length.div_ceil(MAX_PARTS))
                .next_multiple_of(64),
        }
    }

    /// The rows of each part, in order.
    pub fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows)
            .step_by(self.rows_per_part)
            .map(move |start| start..(start + self.rows_per_part).min(self.rows))
    }

    /// The parts of a matrix with rows of `width` elements.
    pub fn split<T>(self, data: &[T], width: usize) -> impl Iterator<Item = &[T]> {
        self.ranges()
            .map(move |range| &data[range.start * width..range.end * width])
    }

    /// [`Self::split`], mutably.
    pub fn split_mut<T>(self, mut data: &mut [T], width: usize) -> impl Iterator<Item = &mut [T]> {
        self.ranges().map(move |range| {
            data.split_off_mut(..range.len() * width)
                .expect("the matrix has all rows")
        })
    }
}

/// Runs the work of each part, in parallel if there are several.
pub(crate) fn for_each<T: Send>(parts: Vec<T>, work: impl Fn(T) + Sync) {
    map(parts, work);
}

/// The results of all parts, in order.
pub(crate) fn map<T: Send, R: Send>(parts: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if parts.len() < 2 {
        return parts.into_iter().map(work).collect();
    }
    let slots: Vec<Mutex<(Option<T>, Option<R>)>> = parts
        .into_iter()
        .map(|part| Mutex::new((Some(part), None)))
        .collect();
    threads::parallel_for(slots.len(), |index| {
        let mut slot = slots[index].lock().expect("each part is taken once");
        slot.1 = slot.0.take().map(&work);
    });
    let results = slots.into_iter().map(|slot| slot.into_inner().ok()?.1);
    results
        .map(|result| result.expect("every part was processed"))
        .collect()
}

/// Panics with the operation and both lengths when a slice does not have the expected length.
#[track_caller]
pub(crate) fn check_length(operation: &str, name: &str, found: usize, expected: usize) {
    assert_eq!(
        found, expected,
        "{operation}: {name} has {found} values instead of {expected}"
    );
}
