//! Matrix multiplication: packed panels, cache blocking, and an epilogue while the result is still in cache. Goto and van de
//! Geijn 2008.
//!
//! ```text
//!            columns of B, in panels                C is partitioned into a grid of blocks, one task each, with no
//!          ┌────┬────┬────┬────┐                    synchronization until the end. A task packs KC rows of its columns
//!   A      │    │    │    │    │ KC                 of B, then runs the microkernel over all pairs of panels: a panel of
//! ┌──┬──┐  └────┴────┴────┴────┘                    B stays in L1 (or a tile's rows of A, if the panel is too large), MC
//! │MC│  │  ┌────┬────┬────┬────┐                    rows of A in L2, and packed B in L3.
//! ├──┼──┤  │ C: epilogue after the last KC │
//! └──┴──┘
//! ```
//!
//! A is packed too, unless its rows are contiguous and there are few columns of B. Wide tiles (AVX-512) read so little of A that
//! they read it in place, even transposed if it is narrow, and prefetch its next rows. They read so much of B that packed B has
//! to stay in L2 for all rows of A: fewer columns, but in their full depth if that is not too large. Each thread caches its
//! packed B for the next block, which mostly has the same columns.
//!
//! Every element of C is summed in the same order, however C is partitioned.

mod grid;
mod macrokernel;
mod split_k;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::microkernel::{Init, TileSize, View};
use crate::simd::{self, Instructions};
use crate::threads::{self, TaskSet};
use grid::Grid;
#[cfg(test)]
pub(crate) use macrokernel::KC;
use macrokernel::{Blocking, Macrokernel, OutputPtr};
pub(crate) use split_k::SplitK;

/// A strided matrix operand.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A contiguous row-major matrix.
    ///
    /// # Panics
    /// When the slice has the wrong length.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(
            data.len(),
            rows * columns,
            "matrix: {} values are not {rows} rows of {columns}",
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

    /// A matrix with strides between its rows and between its columns: part of a larger one, or a transposed one.
    ///
    /// # Panics
    /// When it extends beyond the slice.
    pub fn strided(
        data: &'a [f32],
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Self {
        if let (Some(down), Some(right)) = (rows.checked_sub(1), columns.checked_sub(1)) {
            let last = down * row_stride + right * column_stride;
            assert!(
                last < data.len(),
                "matrix: {rows} rows of {columns} with strides {row_stride} and {column_stride} do not fit in {} values",
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

    /// Rows and columns.
    pub fn sizes(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Row `row`, if rows are contiguous.
    pub(crate) fn row(&self, row: usize) -> Option<&'a [f32]> {
        let start = row * self.row_stride;
        (self.column_stride == 1).then(|| &self.data[start..start + self.columns])
    }

    /// The transpose, without copying.
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

    /// Splits into the columns before `column` and the rest.
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

    /// Splits into the rows before `row` and the rest.
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

/// `C = init + A · B` with a contiguous C. `epilogue(row, first column, values)` is called once for each segment of a row of C,
/// while it is still in cache.
///
/// # Panics
/// When the shapes do not match.
pub fn gemm(
    a: Matrix,
    b: Matrix,
    c: &mut [f32],
    init: Init,
    epilogue: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    let gemm = Gemm::new([(a, b)], c, init, epilogue);
    threads::run_all(&[&gemm]);
}

/// The type of [`NO_EPILOGUE`].
pub(crate) type NoEpilogue = fn(usize, usize, &mut [f32]);

/// An epilogue that does nothing.
pub(crate) const NO_EPILOGUE: NoEpilogue = |_, _, _| ();

/// The next unused id of a term.
static NEXT_TERM_ID: AtomicUsize = AtomicUsize::new(0);

/// `C = init + A · B`, or a sum of such products, as tasks that can run in any order.
pub(crate) struct Gemm<'a, F> {
    /// The id of the first term; those of the others follow.
    first_term: usize,
    terms: Vec<(Matrix<'a>, Matrix<'a>)>,
    init: Init<'a>,
    epilogue: F,
    grid: Grid,
    output: OutputPtr,
    instructions: Instructions,
    tile: TileSize,
    /// C, which `output` points to.
    borrowed: PhantomData<&'a mut [f32]>,
}

impl<'a, F: Fn(usize, usize, &mut [f32]) + Sync> Gemm<'a, F> {
    /// The sum of the products of these pairs.
    ///
    /// # Panics
    /// When the shapes do not match, or there is no pair.
    pub fn new(
        terms: impl IntoIterator<Item = (Matrix<'a>, Matrix<'a>)>,
        c: &'a mut [f32],
        init: Init<'a>,
        epilogue: F,
    ) -> Self {
        Self::with_threads(terms, c, init, epilogue, threads::count())
    }

    /// The same, partitioned for a given number of threads.
    fn with_threads(
        terms: impl IntoIterator<Item = (Matrix<'a>, Matrix<'a>)>,
        c: &'a mut [f32],
        init: Init<'a>,
        epilogue: F,
        threads: usize,
    ) -> Self {
        let mut terms: Vec<_> = terms.into_iter().collect();
        let [rows, columns] = check(&terms, c.len(), init);
        terms.retain(|(a, _)| a.columns > 0);
        if terms.is_empty() && columns > 0 {
            for (row, values) in c.chunks_mut(columns).enumerate() {
                match init {
                    Init::Zero => values.fill(0.0),
                    Init::Accumulate => (),
                    Init::Bias(bias) => values.copy_from_slice(bias),
                }
                epilogue(row, 0, values);
            }
        }
        let depth = terms.iter().map(|(a, _)| a.columns).sum();
        let instructions = simd::instructions();
        let tile = TileSize::of(instructions);
        let cached_columns = match terms.len() {
            // The block size is not known yet: this holds even for small blocks.
            1 => Blocking::of(depth, 0, tile).cached_columns(depth),
            _ => None,
        };
        Self {
            first_term: NEXT_TERM_ID.fetch_add(terms.len(), Ordering::Relaxed),
            terms,
            init,
            epilogue,
            grid: Grid::new([rows, columns], depth, cached_columns, tile, threads),
            output: OutputPtr {
                start: c.as_mut_ptr(),
                columns,
            },
            instructions,
            tile,
            borrowed: PhantomData,
        }
    }
}

/// The sizes of C. Panics where the operands do not match.
fn check(terms: &[(Matrix, Matrix)], outputs: usize, init: Init) -> [usize; 2] {
    let (rows, columns) = (terms[0].0.rows, terms[0].1.columns);
    for (a, b) in terms {
        assert!(
            a.columns == b.rows
                && [a.rows, b.columns] == [rows, columns]
                && outputs == rows * columns,
            "gemm: {}×{} by {}×{} does not give {outputs} values",
            a.rows,
            a.columns,
            b.rows,
            b.columns
        );
    }
    if let Init::Bias(bias) = init {
        assert_eq!(
            bias.len(),
            columns,
            "gemm: a bias of {} values is added to rows of {columns}",
            bias.len()
        );
    }
    [rows, columns]
}

impl<F> Gemm<'_, F> {
    /// Whether the epilogue is always given a whole row of C.
    pub fn epilogue_sees_whole_rows(&self) -> bool {
        self.terms.is_empty()
            || (self.grid.across() == 1 && self.output.columns <= macrokernel::STRIP)
    }
}

impl<F: Fn(usize, usize, &mut [f32]) + Sync> TaskSet for Gemm<'_, F> {
    fn tasks(&self) -> usize {
        match self.terms.is_empty() {
            true => 0,
            false => self.grid.tasks(),
        }
    }

    unsafe fn run(&self, task: usize) {
        for (index, (a, b)) in self.terms.iter().enumerate() {
            let block = Macrokernel {
                term: self.first_term + index,
                instructions: self.instructions,
                tile: self.tile,
                a: *a,
                b: *b,
                init: if index == 0 {
                    self.init
                } else {
                    Init::Accumulate
                },
                rows: self.grid.rows(task),
                columns: self.grid.columns(task),
                output: self.output,
            };
            let epilogue = (index + 1 == self.terms.len()).then_some(&self.epilogue);
            block.run(epilogue);
        }
    }
}

pub(crate) type Scratch = RefCell<Vec<Vec<f32>>>;

/// Lends a thread-local buffer; nested kernels get separate buffers.
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
    scratch.with_borrow_mut(|buffers| buffers.push(buffer));
    result
}

/// Splits a buffer of [`with_scratch`] into buffers of these sizes.
#[inline(always)]
pub(crate) fn split_scratch<const N: usize>(
    scratch: &mut [f32],
    sizes: [usize; N],
) -> [&mut [f32]; N] {
    let mut rest = scratch;
    let mut buffers: [&mut [f32]; N] = std::array::from_fn(|_| Default::default());
    for (buffer, size) in buffers.iter_mut().zip(sizes) {
        (*buffer, rest) = rest.split_at_mut(size);
    }
    buffers
}

/// The specification: one element at a time.
pub mod naive {
    use super::{Init, Matrix};

    /// `C = init + A · B`.
    pub fn gemm(a: Matrix, b: Matrix, c: &mut [f32], init: Init) {
        for row in 0..a.rows {
            for column in 0..b.columns {
                let product = |k: usize| {
                    f64::from(a.data[row * a.row_stride + k * a.column_stride])
                        * f64::from(b.data[k * b.row_stride + column * b.column_stride])
                };
                let sum: f64 = (0..a.columns).map(product).sum();
                let out = &mut c[row * b.columns + column];
                *out = match init {
                    Init::Zero => sum as f32,
                    Init::Accumulate => (f64::from(*out) + sum) as f32,
                    Init::Bias(bias) => (f64::from(bias[column]) + sum) as f32,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests;
