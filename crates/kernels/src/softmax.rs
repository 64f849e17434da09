//! Softmax over rows, and its gradient.

use pulp::{Simd, WithSimd};

use crate::elementwise::Scale;
use crate::map_reduce::{VectorOp, map_reduce, max};
use crate::partition::{self, Partition, check_length};
use crate::simd;

/// `y = softmax(x)` in each row of `width`. A row of minus infinity gives zeros.
///
/// # Panics
/// When the sizes do not match.
pub fn softmax(x: &[f32], width: usize, y: &mut [f32]) {
    check_length("softmax", "y", y.len(), x.len());
    let rows = rows("softmax", x.len(), width);
    let instructions = simd::instructions();
    let parts = Partition::of_rows(rows, width);
    let tasks: Vec<_> = (parts.split(x, width).zip(parts.split_mut(y, width)))
        .map(|(x, y)| SoftmaxForward { width, x, y })
        .collect();
    partition::for_each(tasks, |task| simd::run(instructions, task));
}

/// `dx = y · (dy - sum of y · dy)` in each row of `width`.
///
/// # Panics
/// When the sizes do not match.
pub fn softmax_backward(y: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
    check_length("softmax_backward", "dy", dy.len(), y.len());
    check_length("softmax_backward", "dx", dx.len(), y.len());
    let rows = rows("softmax_backward", y.len(), width);
    let instructions = simd::instructions();
    let parts = Partition::of_rows(rows, width);
    let tasks: Vec<_> = (parts.split(y, width).zip(parts.split(dy, width)))
        .zip(parts.split_mut(dx, width))
        .map(|((y, dy), dx)| SoftmaxBackward { width, y, dy, dx })
        .collect();
    partition::for_each(tasks, |task| simd::run(instructions, task));
}

fn rows(operation: &str, len: usize, width: usize) -> usize {
    if len == 0 {
        return 0;
    }
    assert!(
        width > 0 && len.is_multiple_of(width),
        "{operation}: {len} values are not rows of {width}"
    );
    len / width
}

/// In-place softmax of one row, for use inside other kernels.
#[inline(always)]
pub(crate) fn softmax_row<S: Simd>(simd: S, row: &mut [f32]) {
    let max = finite_max(simd, row);
    let [sum] = map_reduce(simd, &ExpMinusMax { max }, [], [&mut *row]);
    let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
    map_reduce(simd, &Scale { factor }, [], [row]);
}

/// The maximum of a row, or zero if all of it is minus infinity.
#[inline(always)]
fn finite_max<S: Simd>(simd: S, row: &[f32]) -> f32 {
    // `-∞ - -∞` is NaN; with any finite maximum, a row of minus infinity gives zeros.
    match max(simd, row) {
        f32::NEG_INFINITY => 0.0,
        max => max,
    }
}

struct SoftmaxForward<'a> {
    width: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for SoftmaxForward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.x.chunks_exact(self.width);
        for (x, y) in rows.zip(self.y.chunks_exact_mut(self.width)) {
            let max = finite_max(simd, x);
            let [sum] = map_reduce(simd, &ExpMinusMax { max }, [x], [&mut *y]);
            let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            map_reduce(simd, &Scale { factor }, [], [y]);
        }
    }
}

struct ExpMinusMax {
    max: f32,
}

impl VectorOp<1, 1, 1> for ExpMinusMax {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x]: [S::f32s; 1],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let y = simd::exp_nonpositive(simd, simd.sub_f32s(x, simd.splat_f32s(self.max)));
        ([y], [y])
    }
}

impl VectorOp<0, 1, 1> for ExpMinusMax {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 1]) {
        let y = simd::exp_nonpositive(simd, simd.sub_f32s(x, simd.splat_f32s(self.max)));
        ([y], [y])
    }
}

struct SoftmaxBackward<'a> {
    width: usize,
    y: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = (self.y.chunks_exact(self.width))
            .zip(self.dy.chunks_exact(self.width))
            .zip(self.dx.chunks_exact_mut(self.width));
        for ((y, dy), dx) in rows {
            let [sum] = map_reduce(simd, &DotProduct, [y, dy], []);
            map_reduce(simd, &SoftmaxGradient { sum }, [y, dy], [dx]);
        }
    }
}

struct DotProduct;

impl VectorOp<2, 0, 1> for DotProduct {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [y, dy]: [S::f32s; 2],
        []: [S::f32s; 0],
    ) -> ([S::f32s; 0], [S::f32s; 1]) {
        ([], [simd.mul_f32s(y, dy)])
    }
}

struct SoftmaxGradient {
    sum: f32,
}

impl VectorOp<2, 1, 0> for SoftmaxGradient {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [y, dy]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        let centered = simd.sub_f32s(dy, simd.splat_f32s(self.sum));
        ([simd.mul_f32s(y, centered)], [])
    }
}

/// The specification: one element at a time.
pub mod naive {
    /// `softmax(x)` in each row.
    pub fn softmax(x: &[f64], width: usize) -> Vec<f64> {
        let mut y = Vec::new();
        for row in x.chunks(width.max(1)) {
            if row.iter().all(|x| *x == f64::NEG_INFINITY) {
                y.extend(row.iter().map(|_| 0.0));
                continue;
            }
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            y.extend(row.iter().map(|x| (x - max).exp() / sum));
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
        assert_close_or_nan, assert_gradients_close, dot, few_cases, finite_differences,
        on_each_instruction_set, panic_message, random_values, shapes, to_f64,
    };
    use proptest::prelude::*;

    fn check(x: &[f32], dy: &[f32], width: usize) {
        let expected = naive::softmax(&to_f64(x), width);
        on_each_instruction_set(|| {
            let mut y = vec![f32::NAN; x.len()];
            softmax(x, width, &mut y);
            assert_close_or_nan("softmax", &y, &expected, 1e-6);
            let mut dx = vec![f32::NAN; x.len()];
            softmax_backward(&y, dy, width, &mut dx);
            let expected = naive::softmax_backward(&to_f64(&y), &to_f64(dy), width);
            assert_close_or_nan("softmax_backward", &dx, &expected, 2e-6);
        });
    }

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn rows_equal_the_naive_reference((rows, width) in shapes(), seed: u64, scale in 0.1f32..30.0) {
            let x: Vec<f32> = random_values(seed, rows * width).iter().map(|x| x * scale).collect();
            check(&x, &random_values(!seed, x.len()), width);
        }
    }

    #[test]
    fn infinities_and_nan_propagate_as_in_pytorch_and_masked_rows_are_zero() {
        let (low, high, nan) = (f32::NEG_INFINITY, f32::INFINITY, f32::NAN);
        let mut x = random_values(1, 6 * 11);
        x[..11].fill(low);
        x[11..21].fill(low);
        x[25] = nan;
        x[33..43].fill(low);
        x[43] = nan;
        x[50] = high;
        x[60] = low;
        check(&x, &random_values(2, x.len()), 11);
        let mut y = vec![1.0; x.len()];
        softmax(&x, 11, &mut y);
        assert_eq!(&y[..11], &[0.0; 11]);
        assert!(y[22..55].iter().all(|y| y.is_nan()));
    }

    #[test]
    fn the_gradient_matches_finite_differences() {
        let (x, dy) = (to_f64(&random_values(3, 21)), to_f64(&random_values(4, 21)));
        let found = naive::softmax_backward(&naive::softmax(&x, 7), &dy, 7);
        assert_gradients_close(
            "dx",
            &found,
            &finite_differences(&x, |x| dot(&naive::softmax(x, 7), &dy)),
        );
    }

    #[test]
    fn mismatched_sizes_are_refused() {
        let message = panic_message(|| softmax(&[0.0; 7], 3, &mut [0.0; 7]));
        assert!(
            message.contains("softmax: 7 values are not rows of 3"),
            "{message}"
        );
        assert!(
            panic_message(|| softmax(&[0.0; 6], 3, &mut [0.0; 7]))
                .contains("7 values instead of 6")
        );
    }
}
