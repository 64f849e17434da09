//! What this machine can do at most, measured: the scale on which benchmarks are read.

use std::hint::black_box;
use std::time::Instant;

use pulp::{Simd, WithSimd};

use crate::{parts, simd, threads};

/// Floating-point operations per second of all threads together, in products and sums that never leave registers.
pub fn peak_operations() -> f64 {
    const ROUNDS: usize = 4_000_000;
    let instructions = simd::instructions();
    let once = || {
        let started = Instant::now();
        let spins = vec![Spin(ROUNDS); threads::count()];
        let operations: usize = parts::map(spins, |spin| simd::run(instructions, spin))
            .into_iter()
            .sum();
        operations as f64 / started.elapsed().as_secs_f64()
    };
    (0..8).map(|_| once()).fold(0.0, f64::max)
}

/// Chains of multiplications and additions; gives how many operations that were.
#[derive(Clone)]
struct Spin(usize);

/// Enough chains to hide the latency of one, few enough to stay in registers.
const CHAINS: usize = 12;

impl WithSimd for Spin {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let factor = simd.splat_f32s(black_box(0.999_999));
        let addend = simd.splat_f32s(black_box(1e-6));
        let mut sums = [simd.splat_f32s(1.0); CHAINS];
        for _ in 0..self.0 {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, factor, addend);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += simd.reduce_sum_f32s(sum);
        }
        black_box(total);
        2 * self.0 * CHAINS * S::F32_LANES
    }
}

/// Bytes read per second by all threads together, from memory too large for any cache.
pub fn peak_reads() -> f64 {
    let numbers = vec![1f32; 64 << 20];
    let part = numbers.len() / threads::count();
    let instructions = simd::instructions();
    let once = || {
        let started = Instant::now();
        let sums = numbers.chunks(part).map(Sum).collect();
        let sum: f32 = parts::map(sums, |part| simd::run(instructions, part))
            .into_iter()
            .sum();
        black_box(sum);
        (4 * numbers.len()) as f64 / started.elapsed().as_secs_f64()
    };
    (0..8).map(|_| once()).fold(0.0, f64::max)
}

struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, _) = S::as_simd_f32s(self.0);
        let mut sums = [simd.splat_f32s(0.0); 8];
        for chunk in vectors.as_chunks::<8>().0 {
            for (sum, vector) in sums.iter_mut().zip(chunk) {
                *sum = simd.add_f32s(*sum, *vector);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += simd.reduce_sum_f32s(sum);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_a_real_machine() {
        // From a slow board to far beyond any processor: what lies outside was measured wrongly.
        assert!((1e8..1e14).contains(&peak_operations()));
        assert!((1e8..1e13).contains(&peak_reads()));
    }
}
