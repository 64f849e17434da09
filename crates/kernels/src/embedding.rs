//! Embedding lookup, and the gradient of the table.

use pulp::{Simd, WithSimd};

use crate::elementwise::add_assign_with;
use crate::partition::{self, Partition, check_length};
use crate::simd;
use crate::threads::GRAIN;

/// Gathers the table's row of each id into `out`.
///
/// # Panics
/// When the sizes do not match, or an id is not in the table.
pub fn gather(table: &[f32], width: usize, ids: &[i64], out: &mut [f32]) {
    check_length("embedding", "out", out.len(), ids.len() * width);
    check_ids("embedding", ids, entries("embedding", table.len(), width));
    let parts = Partition::of_rows(ids.len(), width);
    let tasks: Vec<_> = parts
        .split(ids, 1)
        .zip(parts.split_mut(out, width))
        .collect();
    partition::for_each(tasks, |(ids, out)| {
        for (index, id) in ids.iter().enumerate() {
            let start = *id as usize * width;
            out[index * width..(index + 1) * width].copy_from_slice(&table[start..start + width]);
        }
    });
}

/// The gradient of the table: the sum of `dy` over the occurrences of each id; zero where an id does not occur.
///
/// Each row sums its occurrences in order, so the result does not depend on scheduling.
///
/// # Panics
/// When the sizes do not match, or an id is not in the table.
pub fn gather_backward(dy: &[f32], width: usize, ids: &[i64], dtable: &mut [f32]) {
    let operation = "embedding_backward";
    check_length(operation, "dy", dy.len(), ids.len() * width);
    let entries = entries(operation, dtable.len(), width);
    check_ids(operation, ids, entries);
    let occurrences = Occurrences::new(ids, entries);
    let instructions = simd::instructions();
    let mut rest = dtable;
    let tasks: Vec<_> = occurrences
        .parts(width)
        .into_iter()
        .map(|range| GatherBackwardTask {
            width,
            dy,
            occurrences: &occurrences,
            first: range.start,
            dtable: rest
                .split_off_mut(..range.len() * width)
                .expect("the ranges cover the table"),
        })
        .collect();
    partition::for_each(tasks, |task| simd::run(instructions, task));
}

fn entries(operation: &str, len: usize, width: usize) -> usize {
    if len == 0 {
        return 0;
    }
    assert!(
        width > 0 && len.is_multiple_of(width),
        "{operation}: a table of {len} values does not have rows of {width}"
    );
    len / width
}

fn check_ids(operation: &str, ids: &[i64], entries: usize) {
    for id in ids {
        assert!(
            usize::try_from(*id).is_ok_and(|id| id < entries),
            "{operation}: the id {id} is not in a table of {entries} entries"
        );
    }
}

/// Where each id occurs, in order: `sorted[starts[id]..starts[id + 1]]`.
struct Occurrences {
    starts: Vec<usize>,
    sorted: Vec<usize>,
}

impl Occurrences {
    fn new(ids: &[i64], entries: usize) -> Self {
        // Counts are shifted by one entry, so that filling moves each start to its place.
        let mut starts = vec![0; entries + 2];
        for id in ids {
            starts[*id as usize + 2] += 1;
        }
        for entry in 2..starts.len() {
            starts[entry] += starts[entry - 1];
        }
        let mut sorted = vec![0; ids.len()];
        for (position, id) in ids.iter().enumerate() {
            let next = &mut starts[*id as usize + 1];
            sorted[*next] = position;
            *next += 1;
        }
        Self { starts, sorted }
    }

    fn of(&self, entry: usize) -> &[usize] {
        &self.sorted[self.starts[entry]..self.starts[entry + 1]]
    }

    /// Ranges of entries with about equal work, in rows to clear and to add.
    fn parts(&self, width: usize) -> Vec<std::ops::Range<usize>> {
        let entries = self.starts.len() - 2;
        let total = (entries + self.sorted.len()) * width;
        let min_work = GRAIN.max(total.div_ceil(64));
        let (mut parts, mut start, mut work) = (Vec::new(), 0, 0);
        for entry in 0..entries {
            work += (1 + self.of(entry).len()) * width;
            if work >= min_work || entry + 1 == entries {
                parts.push(start..entry + 1);
                (start, work) = (entry + 1, 0);
            }
        }
        parts
    }
}

struct GatherBackwardTask<'a> {
    width: usize,
    dy: &'a [f32],
    occurrences: &'a Occurrences,
    first: usize,
    dtable: &'a mut [f32],
}

impl WithSimd for GatherBackwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (index, out) in self.dtable.chunks_exact_mut(self.width).enumerate() {
            let occurrences = self.occurrences.of(self.first + index);
            let Some((first, others)) = occurrences.split_first() else {
                out.fill(0.0);
                continue;
            };
            let row =
                |position: usize| &self.dy[position * self.width..(position + 1) * self.width];
            out.copy_from_slice(row(*first));
            for position in others {
                add_assign_with(simd, out, row(*position));
            }
        }
    }
}

/// The specification: one element at a time.
pub mod naive {
    /// The table's row of each id.
    pub fn gather(table: &[f64], width: usize, ids: &[i64]) -> Vec<f64> {
        let mut out = Vec::new();
        for id in ids {
            for column in 0..width {
                out.push(table[*id as usize * width + column]);
            }
        }
        out
    }

    /// The gradient of a table with as many entries.
    pub fn gather_backward(dy: &[f64], width: usize, ids: &[i64], entries: usize) -> Vec<f64> {
        let mut dtable = vec![0.0; entries * width];
        for (position, id) in ids.iter().enumerate() {
            for column in 0..width {
                dtable[*id as usize * width + column] += dy[position * width + column];
            }
        }
        dtable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        assert_gradients_close, dot, few_cases, finite_differences, on_each_instruction_set,
        panic_message, random_values, shapes, to_f64,
    };
    use attentive_testing::{Scale, assert_close, ulps};
    use proptest::prelude::*;

    /// The root of the sum of the squares of each gradient's partial sums, to which its rounding errors are relative. The first
    /// occurrence is copied, so a gradient with one occurrence has none.
    fn partial_sums(dy: &[f32], width: usize, ids: &[i64], entries: usize) -> Vec<f64> {
        let mut sums = vec![0.0; entries * width];
        let mut squares = vec![0.0; entries * width];
        let mut occurred = vec![false; entries];
        for (row, id) in dy.chunks(width).zip(ids) {
            let entry = *id as usize;
            let is_added = std::mem::replace(&mut occurred[entry], true);
            for (column, dy) in row.iter().enumerate() {
                let at = entry * width + column;
                sums[at] += f64::from(*dy);
                if is_added {
                    squares[at] += sums[at] * sums[at];
                }
            }
        }
        squares.into_iter().map(f64::sqrt).collect()
    }

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn rows_and_their_gradient_equal_the_naive_reference(
            (occurrences, width) in shapes(),
            entries in prop::sample::select(vec![1usize, 2, 7, 65, 4099]),
            seed: u64,
        ) {
            let ids: Vec<i64> = (0..occurrences as u64)
                .map(|position| ((seed ^ (position * position * 0x9E37)) % entries as u64) as i64)
                .collect();
            let entries = entries.min(100_000 / width).max(1);
            let ids: Vec<i64> = ids.iter().map(|id| id % entries as i64).collect();
            let table = random_values(seed, entries * width);
            let dy = random_values(!seed, occurrences * width);
            let expected = naive::gather_backward(&to_f64(&dy), width, &ids, entries);
            let scales = partial_sums(&dy, width, &ids, entries);
            on_each_instruction_set(|| {
                let mut out = vec![f32::NAN; occurrences * width];
                gather(&table, width, &ids, &mut out);
                assert_eq!(to_f64(&out), naive::gather(&to_f64(&table), width, &ids));
                let mut dtable = vec![f32::NAN; entries * width];
                gather_backward(&dy, width, &ids, &mut dtable);
                // Four standard deviations of half an ulp of each partial sum.
                assert_close("dtable", &dtable, &expected, Scale::Terms(&scales), ulps(2));
            });
        }
    }

    #[test]
    fn the_gradient_matches_finite_differences() {
        let (table, dy) = (to_f64(&random_values(1, 12)), to_f64(&random_values(2, 15)));
        let ids = [3, 0, 3, 2, 3];
        let found = naive::gather_backward(&dy, 3, &ids, 4);
        assert_gradients_close(
            "dtable",
            &found,
            &finite_differences(&table, |table| dot(&naive::gather(table, 3, &ids), &dy)),
        );
    }

    #[test]
    fn empty_tables_are_accepted_and_unknown_ids_refused() {
        gather(&[], 5, &[], &mut []);
        gather_backward(&[], 5, &[], &mut []);
        for id in [-1, 2] {
            let message = panic_message(|| gather(&[0.0; 6], 3, &[id], &mut [0.0; 3]));
            let expected = format!("embedding: the id {id} is not in a table of 2 entries");
            assert!(message.contains(&expected), "{message}");
        }
        let message = panic_message(|| gather_backward(&[0.0; 4], 3, &[0], &mut [0.0; 6]));
        assert!(message.contains("embedding_backward: dy has 4 values instead of 3"));
    }
}
