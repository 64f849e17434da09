//! Addition and scaling of slices.

use pulp::{Simd, WithSimd};

use crate::map_reduce::{VectorOp, map_reduce, parallel_map};

/// `out = x + y`.
///
/// # Panics
/// When the slices have different lengths.
pub fn add(x: &[f32], y: &[f32], out: &mut [f32]) {
    parallel_map("add", &Add, [x, y], [out]);
}

/// `x = x + y`.
///
/// # Panics
/// When the slices have different lengths.
pub fn add_assign(x: &mut [f32], y: &[f32]) {
    parallel_map("add_assign", &AddAssign, [y], [x]);
}

/// [`add_assign`] inside a kernel.
#[inline(always)]
pub(crate) fn add_assign_with<S: Simd>(simd: S, x: &mut [f32], y: &[f32]) {
    map_reduce(simd, &AddAssign, [y], [x]);
}

/// [`add_assign`] on one thread.
pub(crate) struct AddAssignKernel<'a> {
    pub x: &'a mut [f32],
    pub y: &'a [f32],
}

impl WithSimd for AddAssignKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        add_assign_with(simd, self.x, self.y);
    }
}

/// `x = x · factor`.
pub fn scale_assign(x: &mut [f32], factor: f32) {
    parallel_map("scale_assign", &Scale { factor }, [], [x]);
}

/// `to = from · factor` for the short rows of attention, where the overhead of [`map_reduce`] would exceed the work.
#[inline(always)]
pub(crate) fn scale_into<S: Simd>(simd: S, from: &[f32], factor: f32, to: &mut [f32]) {
    let (vectors, rest) = S::as_simd_f32s(from);
    let (to, to_rest) = S::as_mut_simd_f32s(to);
    let factors = simd.splat_f32s(factor);
    for (to, from) in to.iter_mut().zip(vectors) {
        *to = simd.mul_f32s(*from, factors);
    }
    for (to, from) in to_rest.iter_mut().zip(rest) {
        *to = *from * factor;
    }
}

struct Add;

impl VectorOp<2, 1, 0> for Add {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [x, y]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.add_f32s(x, y)], [])
    }
}

struct AddAssign;

impl VectorOp<1, 1, 0> for AddAssign {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        [y]: [S::f32s; 1],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.add_f32s(x, y)], [])
    }
}

/// Multiplies by a constant.
pub(crate) struct Scale {
    pub(crate) factor: f32,
}

impl VectorOp<0, 1, 0> for Scale {
    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(x, simd.splat_f32s(self.factor))], [])
    }
}

/// The specification: one element at a time.
pub mod naive {
    /// `x + y`.
    pub fn add(x: &[f64], y: &[f64]) -> Vec<f64> {
        x.iter().zip(y).map(|(x, y)| x + y).collect()
    }

    /// `x · factor`.
    pub fn scale(x: &[f64], factor: f64) -> Vec<f64> {
        x.iter().map(|x| x * factor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        few_cases, lengths, on_each_instruction_set, panic_message, random_values, to_f64,
    };
    use attentive_testing::{Scale, assert_close};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(few_cases())]

        #[test]
        fn sums_and_multiples_match_the_naive_version(length in lengths(), seed: u64) {
            let (x, y) = (random_values(seed, length), random_values(!seed, length));
            let sum = naive::add(&to_f64(&x), &to_f64(&y));
            on_each_instruction_set(|| {
                let mut out = vec![f32::NAN; length];
                add(&x, &y, &mut out);
                assert_close("add", &out, &sum, Scale::EachOrOne, 1e-6);
                let mut out = x.clone();
                add_assign(&mut out, &y);
                assert_close("add_assign", &out, &sum, Scale::EachOrOne, 1e-6);
                let mut out = x.clone();
                scale_assign(&mut out, 0.3);
                assert_close("scale_assign", &out, &naive::scale(&to_f64(&x), f64::from(0.3f32)), Scale::EachOrOne, 1e-6);
            });
        }
    }

    #[test]
    fn mismatched_lengths_are_refused() {
        let message = panic_message(|| add(&[1.0], &[1.0, 2.0], &mut [0.0]));
        assert!(
            message.contains("add: argument 2 has 2 values, but the first has 1"),
            "{message}"
        );
    }
}
