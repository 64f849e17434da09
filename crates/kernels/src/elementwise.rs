//! Sums and multiples of whole slices.

use pulp::{Simd, WithSimd};

use crate::sweep::{Step, sweep, threaded};

/// `out = x + y`.
///
/// # Panics
/// When the slices have different lengths.
pub fn add(x: &[f32], y: &[f32], out: &mut [f32]) {
    threaded("add", &Add, [x, y], [out]);
}

/// `x = x + y`.
///
/// # Panics
/// When the slices have different lengths.
pub fn add_assign(x: &mut [f32], y: &[f32]) {
    threaded("add_assign", &AddAssign, [y], [x]);
}

/// `x = x + y`, for use inside other kernels.
#[inline(always)]
pub(crate) fn add_to<S: Simd>(simd: S, x: &mut [f32], y: &[f32]) {
    sweep(simd, &AddAssign, [y], [x]);
}

/// [`add_to`] as a kernel.
pub(crate) struct AddTo<'a> {
    pub sums: &'a mut [f32],
    pub more: &'a [f32],
}

impl WithSimd for AddTo<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        add_to(simd, self.sums, self.more);
    }
}

/// `x = x · factor`.
pub fn scale_assign(x: &mut [f32], factor: f32) {
    threaded("scale_assign", &Scale { factor }, [], [x]);
}

/// `to = from · factor`, vector by vector: rows of attention are short, and a call for each would take longer than the work.
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

impl Step<2, 1, 0> for Add {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [x, y]: [S::f32s; 2],
        _: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.add_f32s(x, y)], [])
    }
}

struct AddAssign;

impl Step<1, 1, 0> for AddAssign {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        [y]: [S::f32s; 1],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.add_f32s(x, y)], [])
    }
}

struct Scale {
    factor: f32,
}

impl Step<0, 1, 0> for Scale {
    #[inline(always)]
    fn step<S: Simd>(
        &self,
        simd: S,
        []: [S::f32s; 0],
        [x]: [S::f32s; 1],
    ) -> ([S::f32s; 1], [S::f32s; 0]) {
        ([simd.mul_f32s(x, simd.splat_f32s(self.factor))], [])
    }
}

/// The specification: one number at a time.
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
    use crate::checks::{close, each_way, few, lengths, numbers, panic_of, wide};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(few())]

        #[test]
        fn sums_and_multiples_are_the_twins(length in lengths(), seed: u64) {
            let (x, y) = (numbers(seed, length), numbers(!seed, length));
            let sum = naive::add(&wide(&x), &wide(&y));
            each_way(|| {
                let mut out = vec![f32::NAN; length];
                add(&x, &y, &mut out);
                close("add", &out, &sum, 1e-6);
                let mut out = x.clone();
                add_assign(&mut out, &y);
                close("add_assign", &out, &sum, 1e-6);
                let mut out = x.clone();
                scale_assign(&mut out, 0.3);
                close("scale_assign", &out, &naive::scale(&wide(&x), f64::from(0.3f32)), 1e-6);
            });
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        let message = panic_of(|| add(&[1.0], &[1.0, 2.0], &mut [0.0]));
        assert!(
            message.contains("add: argument 2 has 2 numbers, but the first has 1"),
            "{message}"
        );
    }
}
