//! The machine's measured peak FLOP/s and read bandwidth, the roofline that benchmarks are compared with.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use attentive_kernels::{simd, threads};
use pulp::{Simd, WithSimd};
use serde_json::json;

/// Prints both peaks, with all threads.
pub fn measure() {
    let line = json!({
        "work": "limits",
        "flops_per_second": peak_flops(),
        "bytes_per_second": peak_read_bandwidth(),
    });
    println!("{line}");
}

/// FLOP/s of all threads together, in FMAs on registers.
fn peak_flops() -> f64 {
    const ROUNDS: usize = 4_000_000;
    let instructions = simd::instructions();
    let once = || {
        let operations = AtomicUsize::new(0);
        let started = Instant::now();
        threads::parallel_for(threads::count(), |_| {
            let done = simd::run(instructions, FmaChains { rounds: ROUNDS });
            operations.fetch_add(done, Ordering::Relaxed);
        });
        operations.into_inner() as f64 / started.elapsed().as_secs_f64()
    };
    (0..8).map(|_| once()).fold(0.0, f64::max)
}

/// Independent chains of FMAs; returns the number of floating-point operations.
struct FmaChains {
    rounds: usize,
}

/// Enough chains to hide the latency of one, few enough to stay in registers.
const CHAINS: usize = 12;

impl WithSimd for FmaChains {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let factor = simd.splat_f32s(black_box(0.999_999));
        let addend = simd.splat_f32s(black_box(1e-6));
        let mut sums = [simd.splat_f32s(1.0); CHAINS];
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, factor, addend);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += simd.reduce_sum_f32s(sum);
        }
        black_box(total);
        2 * self.rounds * CHAINS * S::F32_LANES
    }
}

/// Bytes per second read by all threads together, from an array larger than any cache.
fn peak_read_bandwidth() -> f64 {
    let values = vec![1f32; 64 << 20];
    let chunks: Vec<&[f32]> = values.chunks(values.len() / threads::count()).collect();
    let instructions = simd::instructions();
    let once = || {
        let started = Instant::now();
        threads::parallel_for(chunks.len(), |index| {
            black_box(simd::run(instructions, Sum(chunks[index])));
        });
        (4 * values.len()) as f64 / started.elapsed().as_secs_f64()
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
    fn limits_are_plausible() {
        // From below the slowest board to far above any CPU.
        assert!((1e8..1e14).contains(&peak_flops()));
        assert!((1e8..1e13).contains(&peak_read_bandwidth()));
    }
}
