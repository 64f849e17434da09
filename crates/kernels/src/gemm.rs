//! Matrix products: packed panels, blocks that fit the caches, and work on the result while it is still in cache.
//!
//! ```text
//!            columns of B, in panels                C is cut into a grid of pieces, one task each, so that nobody waits
//!          ┌────┬────┬────┬────┐                    for anybody until the end. A task packs KC rows of its columns of
//!   A      │    │    │    │    │ KC                 B, then runs the tile over all pairs of panels: a panel of B stays
//! ┌──┬──┐  └────┴────┴────┴────┘                    in the first cache (or a tile's rows of A, where it is too large),
//! │MC│  │  ┌────┬────┬────┬────┐                    MC rows of A in the second, and packed B in the third.
//! ├──┼──┤  │ C: finished after the last KC │
//! └──┴──┘
//! ```
//!
//! Rows of A are packed too, in panels, unless they follow each other and meet few columns. Wide tiles (AVX-512) read so little
//! of A that they take it where it stands, also where it lies transposed and narrow, and ask memory for the next rows while they
//! compute. They read so much of B that it stays in the second cache while all rows of A pass by: fewer columns, but in all their
//! depth if that is not too large. What a thread has packed of B it keeps for the next piece, which mostly has the same columns.
//!
//! Every number of C is a sum in the same order, however C is cut. After Goto and van de Geijn 2008.

mod grid;
mod halves;
mod piece;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::micro::{Base, Onto, TileSize, View};
use crate::simd::{self, Instructions};
use crate::threads::{self, Work};
use grid::Grid;
pub(crate) use halves::Halves;
use piece::{Blocks, Piece, Target};

/// A matrix to read: rows and columns anywhere in a slice.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix whose rows follow each other.
    ///
    /// # Panics
    /// When the slice has another size.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(
            data.len(),
            rows * columns,
            "matrix: {} numbers are not {rows} rows of {columns}",
            data.len()
        );
        Self {
            data,
            rows,
            columns,
            row_stride: columns,
            column_stride: 1,
        }
    }

    /// A matrix whose neighbours below and beside each other are so far apart: a part of a larger one, or one that lies
    /// transposed.
    ///
    /// # Panics
    /// When it reaches beyond the slice.
    pub fn strided(
        data: &'a [f32],
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Self {
        if let (Some(down), Some(right)) = (rows.checked_sub(1), columns.checked_sub(1)) {
            let last = down * row_stride + right * column_stride;
            assert!(
                last < data.len(),
                "matrix: {rows} rows of {columns}, {row_stride} and {column_stride} apart, do not fit {} numbers",
                data.len()
            );
        }
        Self {
            data,
            rows,
            columns,
            row_stride,
            column_stride,
        }
    }

    /// Its rows and columns.
    pub fn sizes(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Row `row`, where its numbers follow each other.
    pub(crate) fn row(&self, row: usize) -> Option<&'a [f32]> {
        let start = row * self.row_stride;
        (self.column_stride == 1).then(|| &self.data[start..start + self.columns])
    }

    /// The same numbers with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// The columns before one, and the others.
    fn split_columns(self, column: usize) -> [Self; 2] {
        let rest = self
            .data
            .get(column * self.column_stride..)
            .unwrap_or_default();
        let first = Self {
            columns: column,
            ..self
        };
        let second = Self {
            columns: self.columns - column,
            data: rest,
            ..self
        };
        [first, second]
    }

    /// The rows before one, and the others.
    fn split_rows(self, row: usize) -> [Self; 2] {
        self.transposed().split_columns(row).map(Self::transposed)
    }

    fn view(&self, row: usize, column: usize) -> View {
        View {
            start: &raw const self.data[row * self.row_stride + column * self.column_stride],
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }
}

/// `C (+)= A · B`, with C's rows following each other; `finish(first row, first column, row of results)` is called once for
/// each finished piece of a row, while it is still in cache.
///
/// # Panics
/// When the shapes do not fit.
pub fn gemm(
    a: Matrix,
    b: Matrix,
    c: &mut [f32],
    onto: Onto,
    finish: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    let product = Product::new([(a, b)], c, onto, finish);
    threads::together(&[&product]);
}

/// What is done to a finished piece of a row where nothing is to be done.
pub(crate) type Nothing = fn(usize, usize, &mut [f32]);

/// See [`Nothing`].
pub(crate) const NOTHING: Nothing = |_, _, _| ();

/// How many terms there were so far: each has its own number.
static TERMS: AtomicUsize = AtomicUsize::new(0);

/// `C = base + A · B`, or a sum of such products, cut into pieces that can be worked on in any order.
pub(crate) struct Product<'a, F> {
    /// The number of the first term; the others have the next.
    first_term: usize,
    terms: Vec<(Matrix<'a>, Matrix<'a>)>,
    base: Base<'a>,
    finish: F,
    grid: Grid,
    target: Target,
    instructions: Instructions,
    tile: TileSize,
    /// C, which `target` points to.
    borrowed: PhantomData<&'a mut [f32]>,
}

impl<'a, F: Fn(usize, usize, &mut [f32]) + Sync> Product<'a, F> {
    /// The sum of the products of these pairs.
    ///
    /// # Panics
    /// When the shapes do not fit, or there is no pair.
    pub fn new(
        terms: impl IntoIterator<Item = (Matrix<'a>, Matrix<'a>)>,
        c: &'a mut [f32],
        base: impl Into<Base<'a>>,
        finish: F,
    ) -> Self {
        Self::with_threads(terms, c, base, finish, threads::count())
    }

    /// The same in pieces for so many threads.
    fn with_threads(
        terms: impl IntoIterator<Item = (Matrix<'a>, Matrix<'a>)>,
        c: &'a mut [f32],
        base: impl Into<Base<'a>>,
        finish: F,
        threads: usize,
    ) -> Self {
        let base = base.into();
        let mut terms: Vec<_> = terms.into_iter().collect();
        let (rows, columns) = (terms[0].0.rows, terms[0].1.columns);
        for (a, b) in &terms {
            assert!(
                a.columns == b.rows
                    && [a.rows, b.columns] == [rows, columns]
                    && c.len() == rows * columns,
                "gemm: {}×{} by {}×{} does not give {} numbers",
                a.rows,
                a.columns,
                b.rows,
                b.columns,
                c.len()
            );
        }
        if let Base::Row(row) = base {
            assert_eq!(
                row.len(),
                columns,
                "gemm: {} numbers are added to rows of {columns}",
                row.len()
            );
        }
        terms.retain(|(a, _)| a.columns > 0);
        if terms.is_empty() && columns > 0 {
            for (row, values) in c.chunks_mut(columns).enumerate() {
                match base {
                    Base::Nothing => values.fill(0.0),
                    Base::Old => (),
                    Base::Row(numbers) => values.copy_from_slice(numbers),
                }
                finish(row, 0, values);
            }
        }
        let depth = terms.iter().map(|(a, _)| a.columns).sum();
        let instructions = simd::instructions();
        let tile = TileSize::of(instructions);
        let kept_columns = match terms.len() {
            // However small the pieces will be.
            1 => Blocks::of(depth, 0, tile).kept_columns(depth),
            _ => None,
        };
        Self {
            first_term: TERMS.fetch_add(terms.len(), Ordering::Relaxed),
            terms,
            base,
            finish,
            grid: Grid::new([rows, columns], depth, kept_columns, tile, threads),
            target: Target {
                start: c.as_mut_ptr(),
                columns,
            },
            instructions,
            tile,
            borrowed: PhantomData,
        }
    }
}

impl<F> Product<'_, F> {
    /// Whether rows are never finished in several pieces.
    pub fn finishes_whole_rows(&self) -> bool {
        self.terms.is_empty() || (self.grid.across() == 1 && self.target.columns <= piece::STRIP)
    }
}

impl<F: Fn(usize, usize, &mut [f32]) + Sync> Work for Product<'_, F> {
    fn tasks(&self) -> usize {
        match self.terms.is_empty() {
            true => 0,
            false => self.grid.pieces(),
        }
    }

    unsafe fn run(&self, task: usize) {
        for (index, (a, b)) in self.terms.iter().enumerate() {
            let piece = Piece {
                term: self.first_term + index,
                instructions: self.instructions,
                tile: self.tile,
                a: *a,
                b: *b,
                base: if index == 0 { self.base } else { Base::Old },
                rows: self.grid.rows(task),
                columns: self.grid.columns(task),
                target: self.target,
            };
            let finish = (index + 1 == self.terms.len()).then_some(&self.finish);
            piece.multiply(finish);
        }
    }
}

pub(crate) type Scratch = RefCell<Vec<Vec<f32>>>;

/// Lends a buffer of this thread; a kernel that calls another finds a second one.
pub(crate) fn with_scratch<T>(
    scratch: &'static std::thread::LocalKey<Scratch>,
    size: usize,
    work: impl FnOnce(&mut [f32]) -> T,
) -> T {
    let mut buffer = scratch.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < size {
        buffer.resize(size, 0.0);
    }
    let result = work(&mut buffer[..size]);
    scratch.with_borrow_mut(|held| held.push(buffer));
    result
}

/// The specification: one number at a time.
pub fn gemm_naive(a: Matrix, b: Matrix, c: &mut [f32], onto: Onto) {
    for row in 0..a.rows {
        for column in 0..b.columns {
            let product = |k: usize| {
                f64::from(a.data[row * a.row_stride + k * a.column_stride])
                    * f64::from(b.data[k * b.row_stride + column * b.column_stride])
            };
            let sum: f64 = (0..a.columns).map(product).sum();
            let place = &mut c[row * b.columns + column];
            *place = match onto {
                Onto::Replace => sum as f32,
                Onto::Add => (f64::from(*place) + sum) as f32,
            };
        }
    }
}

#[cfg(test)]
mod tests;
