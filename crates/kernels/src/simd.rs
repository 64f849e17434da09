//! SIMD dispatch, once at run time (AVX-512, AVX2 with FMA, NEON, or scalar), prefetching, and vectorized elementary functions.

#[cfg(test)]
use std::cell::Cell;
#[cfg(target_arch = "x86_64")]
use std::mem::transmute_copy;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, _CMP_NLT_UQ, _mm512_cmp_ps_mask, _mm512_maskz_scalef_ps, _mm512_set1_ps,
};

use pulp::{Arch, Simd, WithSimd};

/// Which instruction set to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// The widest that the CPU supports.
    Native,
    /// AVX2 with FMA, even on a CPU with AVX-512.
    Avx2,
    /// No SIMD: the fallback, and a reference in tests.
    Scalar,
}

#[cfg(test)]
thread_local! {
    static FORCED: Cell<Option<Instructions>> = const { Cell::new(None) };
}

/// Runs `work` with the given instruction set on this thread, overriding the environment.
#[cfg(test)]
pub(crate) fn with_instructions<T>(instructions: Instructions, work: impl FnOnce() -> T) -> T {
    let before = FORCED.replace(Some(instructions));
    let result = work();
    FORCED.set(before);
    result
}

/// The instruction set from `ATTENTIVE_SIMD` (`avx2`, `scalar`, or unset for the widest); a test may force another on its thread.
///
/// # Panics
/// When `ATTENTIVE_SIMD` has any other value.
pub fn instructions() -> Instructions {
    static CHOSEN: OnceLock<Instructions> = OnceLock::new();
    #[cfg(test)]
    if let Some(forced) = FORCED.get() {
        return forced;
    }
    *CHOSEN.get_or_init(|| from_environment().unwrap_or_else(|problem| panic!("{problem}")))
}

/// The instruction set that `ATTENTIVE_SIMD` selects.
///
/// # Errors
/// When the value is unknown or the CPU does not support it, with a message for the user.
pub fn from_environment() -> Result<Instructions, String> {
    let Some(value) = std::env::var_os("ATTENTIVE_SIMD") else {
        return Ok(Instructions::Native);
    };
    match value.to_str() {
        Some("scalar") => Ok(Instructions::Scalar),
        Some("avx2") if has_avx2() => Ok(Instructions::Avx2),
        Some("avx2") => Err(
            "ATTENTIVE_SIMD is avx2, which this CPU does not have; unset it, or set it to `scalar`"
                .to_owned(),
        ),
        _ => Err(format!(
            "ATTENTIVE_SIMD is {value:?}; unset it for the widest instructions, or set it to `avx2` or `scalar`"
        )),
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    pulp::x86::V3::try_new().is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

/// The distinct instruction sets of this machine, widest first.
#[cfg(test)]
pub(crate) fn available() -> &'static [Instructions] {
    #[cfg(target_arch = "x86_64")]
    if pulp::x86::V4::try_new().is_some() {
        return &[
            Instructions::Native,
            Instructions::Avx2,
            Instructions::Scalar,
        ];
    }
    &[Instructions::Native, Instructions::Scalar]
}

/// Runs a kernel, its `with_simd`, with the given instruction set.
///
/// A multithreaded kernel reads [`instructions`] once and passes it to its tasks, which run on other threads.
///
/// # Panics
/// When the CPU does not support it.
pub fn run<K: WithSimd>(instructions: Instructions, kernel: K) -> K::Output {
    match instructions {
        Instructions::Native => Arch::new().dispatch(kernel),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => {
            let simd = pulp::x86::V3::try_new().expect("this CPU has no AVX2");
            Simd::vectorize(simd, kernel)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Instructions::Avx2 => panic!("this CPU has no AVX2"),
        Instructions::Scalar => kernel.with_simd(pulp::Scalar::new()),
    }
}

/// Prefetches values into L1.
///
/// Any address is allowed: nothing is dereferenced. A partial last cache line may be left out.
#[inline(always)]
pub(crate) fn prefetch_l1(start: *const f32, count: usize) {
    #[cfg(target_arch = "x86_64")]
    prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(start, count);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, count);
}

/// [`prefetch_l1`] into L2 only, for values that are needed later, and once.
#[inline(always)]
pub(crate) fn prefetch_l2(start: *const f32, count: usize) {
    #[cfg(target_arch = "x86_64")]
    prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(start, count);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, count);
}

/// `f32` values per cache line.
pub(crate) const CACHE_LINE: usize = 16;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch<const HINT: i32>(start: *const f32, count: usize) {
    for line in (0..count).step_by(CACHE_LINE) {
        // SAFETY: SSE is part of x86-64, and a prefetch dereferences nothing.
        unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(start.wrapping_add(line).cast()) };
    }
}

/// `e^x` in each lane, to about 2 ULP; zero below -87.3 and infinite above 88.7.
///
/// Range reduction to `2^n · 2^f`: the power of two is built in the exponent bits, the rest is a polynomial.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let clamped = simd.max_f32s(simd.min_f32s(x, splat(EXP_MAX)), splat(EXP_MIN));
    let ExpFactors {
        fraction: [fraction],
        shifted: [shifted],
        ..
    } = exp_factors(simd, [clamped]);
    // 2^n as a product of two powers, because 2^128 is not an f32.
    let bits = simd.transmute_u32s_f32s(shifted);
    let integer = simd.sub_u32s(bits, simd.splat_u32s(0x4B40_0000));
    let half = halve_signed(simd, integer);
    let other = simd.sub_u32s(integer, half);
    let power = |exponent: S::u32s| {
        let biased = simd.add_u32s(exponent, simd.splat_u32s(127));
        simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(biased, simd.splat_u32s(23)))
    };
    let result = simd.mul_f32s(simd.mul_f32s(fraction, power(half)), power(other));
    let below = simd.less_than_f32s(x, splat(EXP_MIN));
    let above = simd.greater_than_f32s(x, splat(EXP_MAX));
    let result = simd.select_f32s(below, splat(0.0), result);
    let result = simd.select_f32s(above, splat(f32::INFINITY), result);
    // min and max drop NaN, so it is restored.
    let is_number = simd.equal_f32s(x, x);
    simd.select_f32s(is_number, result, x)
}

/// Evaluates an expression for each of several vectors.
///
/// This interleaves dependency chains for instruction-level parallelism: one after the other, the first few would fill the
/// scheduler's window, and the others could not start.
macro_rules! interleave {
    ($simd:expr, $count:expr, |$index:ident| $value:expr) => {{
        let mut all = [$simd.splat_f32s(0.0); $count];
        for $index in 0..$count {
            all[$index] = $value;
        }
        all
    }};
}
pub(crate) use interleave;

/// The factors of `e^x` after range reduction: a value near one, and a power of two.
struct ExpFactors<V, const N: usize> {
    fraction: [V; N],
    /// The exponent of the power of two.
    exponent: [V; N],
    /// The exponent plus [`ROUND_MAGIC`], which leaves it in the low bits.
    shifted: [V; N],
}

/// See [`ExpFactors`].
#[inline(always)]
fn exp_factors<S: Simd, const N: usize>(simd: S, x: [S::f32s; N]) -> ExpFactors<S::f32s, N> {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    /// The low-order part of log2(e), beyond its nearest `f32` (Cody-Waite).
    const LOG2_E_LOW: f32 = 1.925_963e-8;
    /// Minimax polynomial of 2^-x on [-1/2, 1/2], to 3e-9.
    const COEFFICIENTS: [f32; 6] = [
        -1.339_080_6e-3,
        9.618_506e-3,
        -5.550_36e-2,
        2.402_264_8e-1,
        -std::f32::consts::LN_2,
        1.0,
    ];
    let splat = |value: f32| simd.splat_f32s(value);
    let magic = splat(ROUND_MAGIC);
    let shifted = interleave!(simd, N, |i| simd.mul_add_f32s(x[i], splat(LOG2_E), magic));
    let exponent = interleave!(simd, N, |i| simd.sub_f32s(shifted[i], magic));
    let near = interleave!(simd, N, |i| simd.mul_add_f32s(
        x[i],
        splat(-LOG2_E),
        exponent[i]
    ));
    let reduced = interleave!(simd, N, |i| simd.mul_add_f32s(
        x[i],
        splat(-LOG2_E_LOW),
        near[i]
    ));
    let mut fraction = [splat(1.532_646_3e-4); N];
    for coefficient in COEFFICIENTS {
        fraction = interleave!(simd, N, |i| {
            simd.mul_add_f32s(fraction[i], reduced[i], splat(coefficient))
        });
    }
    ExpFactors {
        fraction,
        exponent,
        shifted,
    }
}

/// Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
const ROUND_MAGIC: f32 = 12_582_912.0;

/// Above, `e^x` overflows.
const EXP_MAX: f32 = 88.722_84;

/// Below, `e^x` is subnormal.
const EXP_MIN: f32 = -87.336_55;

/// `e^x` in each lane for nonpositive `x`, at half the cost of [`exp`].
///
/// For softmax and sigmoid: nothing overflows, so one power of two is enough, and NaN propagates because nothing is clamped.
/// Correct up to 88.
#[inline(always)]
pub fn exp_nonpositive<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    exp_nonpositives(simd, [x])[0]
}

/// [`exp_nonpositive`] of several vectors, interleaved.
#[inline(always)]
pub fn exp_nonpositives<S: Simd, const N: usize>(simd: S, x: [S::f32s; N]) -> [S::f32s; N] {
    let splat = |value: f32| simd.splat_f32s(value);
    let ExpFactors {
        fraction,
        exponent,
        shifted,
    } = exp_factors(simd, x);
    #[cfg(target_arch = "x86_64")]
    if has_avx512::<S>() {
        return interleave!(simd, N, |i| {
            // SAFETY: these vectors are those of AVX-512, so the CPU has it.
            unsafe {
                let result = scale_or_zero(
                    transmute_copy(&x[i]),
                    transmute_copy(&fraction[i]),
                    transmute_copy(&exponent[i]),
                );
                transmute_copy(&result)
            }
        });
    }
    interleave!(simd, N, |i| {
        // The shift drops the bits of the magic constant.
        let bits = simd.transmute_u32s_f32s(shifted[i]);
        let exponent = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
        let power = simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.splat_u32s(127 << 23)));
        let result = simd.mul_f32s(fraction[i], power);
        let underflows = simd.less_than_f32s(x[i], splat(EXP_MIN));
        simd.select_f32s(underflows, splat(0.0), result)
    })
}

/// Whether a kernel is compiled for AVX-512.
#[inline(always)]
pub(crate) const fn has_avx512<S: Simd>() -> bool {
    cfg!(target_arch = "x86_64") && S::F32_LANES == 16 && S::REGISTER_COUNT == 32
}

/// `fraction · 2^exponent`, or zero where `x` is below [`EXP_MIN`].
///
/// # Safety
/// The CPU must have AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn scale_or_zero(x: __m512, fraction: __m512, exponent: __m512) -> __m512 {
    let in_range = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(EXP_MIN));
    _mm512_maskz_scalef_ps(in_range, fraction, exponent)
}

/// Half of a signed integer, rounded down.
#[inline(always)]
fn halve_signed<S: Simd>(simd: S, integer: S::u32s) -> S::u32s {
    let shifted = simd.wrapping_dyn_shr_u32s(integer, simd.splat_u32s(1));
    let sign = simd.and_u32s(integer, simd.splat_u32s(0x8000_0000));
    simd.or_u32s(shifted, sign)
}

/// `tanh(x)` in each lane, from one exponential, to a few ULP everywhere.
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let magnitude = simd.abs_f32s(x);
    // (1 - e^-2|x|) / (1 + e^-2|x|)
    let power = exp(simd, simd.mul_f32s(magnitude, splat(-2.0)));
    let large = simd.div_f32s(
        simd.sub_f32s(splat(1.0), power),
        simd.add_f32s(splat(1.0), power),
    );
    // Near zero the difference above cancels; an odd polynomial does not (Cephes).
    let square = simd.mul_f32s(x, x);
    let mut series = splat(-5.704_988_7e-3);
    for coefficient in [2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1] {
        series = simd.mul_add_f32s(series, square, splat(coefficient));
    }
    let small = simd.mul_add_f32s(simd.mul_f32s(series, square), magnitude, magnitude);
    let near = simd.less_than_f32s(magnitude, splat(0.625));
    let magnitude = simd.select_f32s(near, small, large);
    let negative = simd.less_than_f32s(x, splat(0.0));
    simd.select_f32s(negative, simd.neg_f32s(magnitude), magnitude)
}

/// Φ(x), the CDF of the normal distribution, in each lane.
///
/// The tail beyond `|x|` is half the inverse of a polynomial's fourth power. Its absolute error is below 3e-7 and shrinks
/// as `|x|` grows, so that `x · Φ(x)` is accurate to 1.5e-7 far below zero too, where `(1 + erf) / 2` cancels.
#[inline(always)]
pub fn normal_cdf<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const COEFFICIENTS: [f32; 10] = [
        -4.931_339e-5,
        2.624_588e-4,
        -6.665_412e-4,
        1.467_322_6e-3,
        1.811_898_8e-4,
        6.169_093e-3,
        2.603_305_1e-2,
        9.951_122e-2,
        1.994_690_6e-1,
        1.0,
    ];
    let splat = |value: f32| simd.splat_f32s(value);
    let magnitude = simd.abs_f32s(x);
    let mut root = splat(4.793_399_5e-6);
    for coefficient in COEFFICIENTS {
        root = simd.mul_add_f32s(root, magnitude, splat(coefficient));
    }
    let square = simd.mul_f32s(root, root);
    let tail = simd.div_f32s(splat(0.5), simd.mul_f32s(square, square));
    let negative = simd.less_than_f32s(x, splat(0.0));
    simd.select_f32s(negative, tail, simd.sub_f32s(splat(1.0), tail))
}

#[cfg(test)]
mod tests;
