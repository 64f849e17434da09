//! Softmax over rows, and its gradient.

use pulp::{Simd, WithSimd};

use crate::parts::{self, Parts, fits};
use crate::simd;
use crate::sweep::{Step, largest, sweep};

/// `y = softmax(x)` in each row of `width` numbers. A row of nothing but minus infinity gives zeros.
///
/// # Panics
/// When the sizes do not fit.
pub fn softmax(x: &[f32], width: usize, y: &mut [f32]) {
    fits("softmax", "y", y.len(), x.len());
    let rows = rows("softmax", x.len(), width);
    let instructions = simd::instructions();
    let parts = Parts::of_rows(rows, width);
    let work: Vec<_> = (parts.cut(x, width).zip(parts.cut_mut(y, width)))
        .map(|(x, y)| Forward { width, x, y })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

/// `dx = y · (dy - sum of y · dy)` in each row of `width` numbers.
///
/// # Panics
/// When the sizes do not fit.
pub fn softmax_backward(y: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
    fits("softmax_backward", "dy", dy.len(), y.len());
    fits("softmax_backward", "dx", dx.len(), y.len());
    let rows = rows("softmax_backward", y.len(), width);
    let instructions = simd::instructions();
    let parts = Parts::of_rows(rows, width);
    let work: Vec<_> = (parts.cut(y, width).zip(parts.cut(dy, width)))
        .zip(parts.cut_mut(dx, width))
        .map(|((y, dy), dx)| Backward { width, y, dy, dx })
        .collect();
    parts::each(work, |part| simd::run(instructions, part));
}

fn rows(operation: &str, numbers: usize, width: usize) -> usize {
    if numbers == 0 {
        return 0;
    }
    assert!(
        width > 0 && numbers.is_multiple_of(width),
        "{operation}: {numbers} numbers are not rows of {width}"
    );
    numbers / width
}

/// The same for one row in its place, for use inside other kernels.
#[inline(always)]
pub(crate) fn softmax_row<S: Simd>(simd: S, row: &mut [f32]) {
    let shift = shift(simd, row);
    let [sum] = sweep(simd, &Exponentials { shift }, [], [&mut *row]);
    let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
    sweep(simd, &Multiply { factor }, [], [row]);
}

/// The largest number of a row, which is subtracted before exponentials.
#[inline(always)]
fn shift<S: Simd>(simd: S, row: &[f32]) -> f32 {
    // Infinity less infinity is no number; any other shift makes a row of minus infinity zeros.
    match largest(simd, row) {
        f32::NEG_INFINITY => 0.0,
        largest => largest,
    }
}

struct Forward<'a> {
    width: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.x.chunks_exact(self.width);
        for (x, y) in rows.zip(self.y.chunks_exact_mut(self.width)) {
            let shift = shift(simd, x);
            let [sum] = sweep(simd, &Exponentials { shift }, [x], [&mut *y]);
            let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            sweep(simd, &Multiply { factor }, [], [y]);
        }
    }
}

struct Exponentials {
    shift: f32,
}

impl Step<1, 1, 1> for Exponentials {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let y = simd::decay(simd, simd.sub_f32s(x, simd.splat_f32s(self.shift)));
        ([y], [y])
    }
}

impl Step<0, 1, 1> for Exponentials {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let y = simd::decay(simd, simd.sub_f32s(x, simd.splat_f32s(self.shift)));
        ([y], [y])
    }
}

struct Multiply {
    factor: f32,
}

impl Step<0, 1, 0> for Multiply {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [y]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(y, simd.splat_f32s(self.factor))], [])
    }
}

struct Backward<'a> {
    width: usize,
    y: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = (self.y.chunks_exact(self.width))
            .zip(self.dy.chunks_exact(self.width))
            .zip(self.dx.chunks_exact_mut(self.width));
        for ((y, dy), dx) in rows {
            let [sum] = sweep(simd, &Products, [y, dy], []);
            sweep(simd, &Gradient { sum }, [y, dy], [dx]);
        }
    }
}

struct Products;

impl Step<2, 0, 1> for Products {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [y, dy]: [S::f32s; 2],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        ([], [simd.mul_f32s(y, dy)])
    }
}

struct Gradient {
    sum: f32,
}

impl Step<2, 1, 0> for Gradient {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [y, dy]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        let centred = simd.sub_f32s(dy, simd.splat_f32s(self.sum));
        ([simd.mul_f32s(y, centred)], [])
    }
}

/// The specification: one number at a time.
pub mod naive {
    /// `softmax(x)` in each row.
    pub fn softmax(x: &[f64], width: usize) -> Vec<f64> {
        let mut y = Vec::new();
        for row in x.chunks(width.max(1)) {
            if row.iter().all(|x| *x == f64::NEG_INFINITY) {
                y.extend(row.iter().map(|_| 0.0));
                continue;
            }
            let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
            y.extend(row.iter().map(|x| (x - largest).exp() / sum));
        }
        y
    }

    /// The gradient of `x`, from the softmax and its gradient.
    pub fn softmax_backward(y: &[f64], dy: &[f64], width: usize) -> Vec<f64> {
        let rows = y.chunks(width.max(1)).zip(dy.chunks(width.max(1)));
        rows.flat_map(|(y, dy)| {
            let sum: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            y.iter().zip(dy).map(move |(y, dy)| y * (dy - sum))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        close, close_slopes, dot, each_way, few, numbers, panic_of, shapes, slopes, wide,
    };
    use proptest::prelude::*;

    fn check(x: &[f32], dy: &[f32], width: usize) {
        let expected = naive::softmax(&wide(x), width);
        each_way(|| {
            let mut y = vec![f32::NAN; x.len()];
            softmax(x, width, &mut y);
            close("softmax", &y, &expected, 1e-6);
            let mut dx = vec![f32::NAN; x.len()];
            softmax_backward(&y, dy, width, &mut dx);
            let expected = naive::softmax_backward(&wide(&y), &wide(dy), width);
            close("softmax_backward", &dx, &expected, 2e-6);
        });
    }

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn rows_are_the_twins((rows, width) in shapes(), seed: u64, size in 0.1f32..30.0) {
            let x: Vec<f32> = numbers(seed, rows * width).iter().map(|x| x * size).collect();
            check(&x, &numbers(!seed, x.len()), width);
        }
    }

    #[test]
    fn infinities_and_nan_pass_as_in_pytorch_and_empty_rows_are_zero() {
        let (low, high, nan) = (f32::NEG_INFINITY, f32::INFINITY, f32::NAN);
        let mut x = numbers(1, 6 * 11);
        x[..11].fill(low);
        x[11..21].fill(low);
        x[25] = nan;
        x[33..43].fill(low);
        x[43] = nan;
        x[50] = high;
        x[60] = low;
        check(&x, &numbers(2, x.len()), 11);
        let mut y = vec![1.0; x.len()];
        softmax(&x, 11, &mut y);
        assert_eq!(&y[..11], &[0.0; 11]);
        assert!(y[22..55].iter().all(|y| y.is_nan()));
    }

    #[test]
    fn the_gradient_is_the_finite_difference() {
        let (x, dy) = (wide(&numbers(3, 21)), wide(&numbers(4, 21)));
        let found = naive::softmax_backward(&naive::softmax(&x, 7), &dy, 7);
        close_slopes(
            "dx",
            &found,
            &slopes(&x, |x| dot(&naive::softmax(x, 7), &dy)),
        );
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let message = panic_of(|| softmax(&[0.0; 7], 3, &mut [0.0; 7]));
        assert!(
            message.contains("softmax: 7 numbers are not rows of 3"),
            "{message}"
        );
        assert!(
            panic_of(|| softmax(&[0.0; 6], 3, &mut [0.0; 7])).contains("7 numbers instead of 6")
        );
    }
}
