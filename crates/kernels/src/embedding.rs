//! Rows of a table by their numbers, and the gradient of the table.

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts, fits};
use crate::simd;
use crate::sweep::{Step, sweep};
use crate::threads::GRAIN;

/// Copies the table's row of each id to `out`.
///
/// # Panics
/// When the sizes do not fit, or an id is not in the table.
pub fn gather(table: &[f32], width: usize, ids: &[i64], out: &mut [f32]) {
    fits("embedding", "out", out.len(), ids.len() * width);
    all_known("embedding", ids, entries("embedding", table.len(), width));
    let parts = Parts::of_rows(ids.len(), width);
    let work: Vec<_> = parts.cut(ids, 1).zip(parts.cut_mut(out, width)).collect();
    parts::each(work, |(ids, out)| {
        for (index, id) in ids.iter().enumerate() {
            let start = *id as usize * width;
            out[index * width..(index + 1) * width].copy_from_slice(&table[start..start + width]);
        }
    });
}

/// The gradient of the table: the sum of `dy` over the places of each id; zero where an id does not occur.
///
/// Every entry adds its places up in their order, whatever the threads do.
///
/// # Panics
/// When the sizes do not fit, or an id is not in the table.
pub fn gather_backward(dy: &[f32], width: usize, ids: &[i64], dtable: &mut [f32]) {
    let operation = "embedding_backward";
    fits(operation, "dy", dy.len(), ids.len() * width);
    let entries = entries(operation, dtable.len(), width);
    all_known(operation, ids, entries);
    let places = Places::new(ids, entries);
    let instructions = simd::instructions();
    let mut rest = dtable;
    let work: Vec<_> = places
        .parts(width)
        .into_iter()
        .map(|range| Part {
            width,
            dy,
            places: &places,
            first: range.start,
            dtable: rest
                .split_off_mut(..range.len() * width)
                .expect("the ranges cover the table"),
        })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

fn entries(operation: &str, numbers: usize, width: usize) -> usize {
    if numbers == 0 {
        return 0;
    }
    assert!(
        width > 0 && numbers.is_multiple_of(width),
        "{operation}: a table of {numbers} numbers does not have rows of {width}"
    );
    numbers / width
}

fn all_known(operation: &str, ids: &[i64], entries: usize) {
    for id in ids {
        assert!(
            usize::try_from(*id).is_ok_and(|id| id < entries),
            "{operation}: the id {id} is not in a table of {entries} entries"
        );
    }
}

/// Where each id occurs, in order: `sorted[starts[id]..starts[id + 1]]`.
struct Places {
    starts: Vec<usize>,
    sorted: Vec<usize>,
}

impl Places {
    fn new(ids: &[i64], entries: usize) -> Self {
        // Counted one entry further on, so that after filling each start has moved to where it belongs.
        let mut starts = vec![0; entries + 2];
        for id in ids {
            starts[*id as usize + 2] += 1;
        }
        for entry in 2..starts.len() {
            starts[entry] += starts[entry - 1];
        }
        let mut sorted = vec![0; ids.len()];
        for (place, id) in ids.iter().enumerate() {
            let next = &mut starts[*id as usize + 1];
            sorted[*next] = place;
            *next += 1;
        }
        Self { starts, sorted }
    }

    fn of(&self, entry: usize) -> &[usize] {
        &self.sorted[self.starts[entry]..self.starts[entry + 1]]
    }

    /// Ranges of entries with about equal work: rows to clear and rows to add.
    fn parts(&self, width: usize) -> Vec<std::ops::Range<usize>> {
        let entries = self.starts.len() - 2;
        let all = (entries + self.sorted.len()) * width;
        let enough = GRAIN.max(all.div_ceil(64));
        let (mut parts, mut start, mut work) = (Vec::new(), 0, 0);
        for entry in 0..entries {
            work += (1 + self.of(entry).len()) * width;
            if work >= enough || entry + 1 == entries {
                parts.push(start..entry + 1);
                (start, work) = (entry + 1, 0);
            }
        }
        parts
    }
}

struct Part<'a> {
    width: usize,
    dy: &'a [f32],
    places: &'a Places,
    first: usize,
    dtable: &'a mut [f32],
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (index, out) in self.dtable.chunks_exact_mut(self.width).enumerate() {
            let places = self.places.of(self.first + index);
            let Some((first, others)) = places.split_first() else {
                out.fill(0.0);
                continue;
            };
            let row = |place: usize| &self.dy[place * self.width..(place + 1) * self.width];
            out.copy_from_slice(row(*first));
            for place in others {
                sweep(simd, &Add, [row(*place)], [&mut *out]);
            }
        }
    }
}

struct Add;

impl Step<1, 1, 0> for Add {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        [sum]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.add_f32s(sum, x)], [])
    }
}

/// The specification: one number at a time.
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
        for (place, id) in ids.iter().enumerate() {
            for column in 0..width {
                dtable[*id as usize * width + column] += dy[place * width + column];
            }
        }
        dtable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        close, close_slopes, dot, each_way, few, numbers, panic_of, shapes, slopes, wide,
    };
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn rows_and_their_gradient_are_the_twins(
            (places, width) in shapes(),
            entries in prop::sample::select(vec![1usize, 2, 7, 65, 4099]),
            seed: u64,
        ) {
            let ids: Vec<i64> = (0..places as u64)
                .map(|place| ((seed ^ (place * place * 0x9E37)) % entries as u64) as i64)
                .collect();
            let entries = entries.min(100_000 / width).max(1);
            let ids: Vec<i64> = ids.iter().map(|id| id % entries as i64).collect();
            let table = numbers(seed, entries * width);
            let dy = numbers(!seed, places * width);
            let expected = naive::gather_backward(&wide(&dy), width, &ids, entries);
            each_way(|| {
                let mut out = vec![f32::NAN; places * width];
                gather(&table, width, &ids, &mut out);
                close("out", &out, &naive::gather(&wide(&table), width, &ids), 0.0);
                let mut dtable = vec![f32::NAN; entries * width];
                gather_backward(&dy, width, &ids, &mut dtable);
                // Rounding errors add up over the places of an entry.
                let tolerance = 1e-5 * (places as f64).sqrt();
                close("dtable", &dtable, &expected, tolerance);
            });
        }
    }

    #[test]
    fn the_gradient_is_the_finite_difference() {
        let (table, dy) = (wide(&numbers(1, 12)), wide(&numbers(2, 15)));
        let ids = [3, 0, 3, 2, 3];
        let found = naive::gather_backward(&dy, 3, &ids, 4);
        close_slopes(
            "dtable",
            &found,
            &slopes(&table, |table| dot(&naive::gather(table, 3, &ids), &dy)),
        );
    }

    #[test]
    fn nothing_is_fine_and_unknown_ids_are_refused() {
        gather(&[], 5, &[], &mut []);
        gather_backward(&[], 5, &[], &mut []);
        for id in [-1, 2] {
            let message = panic_of(|| gather(&[0.0; 6], 3, &[id], &mut [0.0; 3]));
            let expected = format!("embedding: the id {id} is not in a table of 2 entries");
            assert!(message.contains(&expected), "{message}");
        }
        let message = panic_of(|| gather_backward(&[0.0; 4], 3, &[0], &mut [0.0; 6]));
        assert!(message.contains("embedding_backward: dy has 4 numbers instead of 3"));
    }
}
