//! Vector instructions, chosen once at run time: AVX-512, AVX2 with FMA, NEON, or scalar.

use std::cell::Cell;
#[cfg(target_arch = "x86_64")]
use std::mem::transmute_copy;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, _CMP_NLT_UQ, _mm512_cmp_ps_mask, _mm512_maskz_scalef_ps, _mm512_set1_ps,
};

use pulp::{Arch, Simd, WithSimd};

/// Which instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// The widest that the processor has.
    Native,
    /// AVX2 with FMA, also where there is AVX-512.
    Avx2,
    /// One number at a time: the fallback, and what tests compare with.
    Scalar,
}

thread_local! {
    static FORCED: Cell<Option<Instructions>> = const { Cell::new(None) };
}

/// Runs `work` with the given instructions on this thread, whatever the environment says. For tests.
pub fn with_instructions<T>(instructions: Instructions, work: impl FnOnce() -> T) -> T {
    let before = FORCED.replace(Some(instructions));
    let result = work();
    FORCED.set(before);
    result
}

/// The instructions of this thread: forced, or from `ATTENTIVE_SIMD` (`avx2`, `scalar`, or unset for the widest).
///
/// # Panics
/// When `ATTENTIVE_SIMD` is something else.
pub fn instructions() -> Instructions {
    static CHOSEN: OnceLock<Instructions> = OnceLock::new();
    FORCED.get().unwrap_or_else(|| {
        *CHOSEN.get_or_init(|| from_environment().unwrap_or_else(|problem| panic!("{problem}")))
    })
}

/// What `ATTENTIVE_SIMD` says, or what is wrong with it.
pub fn from_environment() -> Result<Instructions, String> {
    let Some(said) = std::env::var_os("ATTENTIVE_SIMD") else {
        return Ok(Instructions::Native);
    };
    match said.to_str() {
        Some("scalar") => Ok(Instructions::Scalar),
        Some("avx2") if has_avx2() => Ok(Instructions::Avx2),
        Some("avx2") => Err(
            "ATTENTIVE_SIMD is avx2, which this processor does not have; unset it, or say `scalar`"
                .to_owned(),
        ),
        _ => Err(format!(
            "ATTENTIVE_SIMD is {said:?}; unset it for the widest instructions, or say `avx2` or `scalar`"
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

/// All ways in which this processor can run a kernel, each once, the widest first.
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

/// Runs a kernel with the given instructions.
///
/// A kernel that spreads over threads reads [`instructions`] once and hands them to its tasks, which run elsewhere.
///
/// # Panics
/// When the processor does not have them.
pub fn run<K: WithSimd>(instructions: Instructions, kernel: K) -> K::Output {
    match instructions {
        Instructions::Native => Arch::new().dispatch(kernel),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => {
            let simd = pulp::x86::V3::try_new().expect("this processor has no AVX2");
            Simd::vectorize(simd, kernel)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Instructions::Avx2 => panic!("this processor has no AVX2"),
        Instructions::Scalar => kernel.with_simd(pulp::Scalar::new()),
    }
}

/// Asks the processor to bring numbers into the first cache, where the kernel knows better which are needed next.
///
/// Any address may be given: nothing is read. A last line of which only the beginning belongs to the numbers may be left out.
#[inline(always)]
pub(crate) fn fetch(start: *const f32, count: usize) {
    #[cfg(target_arch = "x86_64")]
    fetch_into::<{ std::arch::x86_64::_MM_HINT_T0 }>(start, count);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, count);
}

/// [`fetch`] into the second cache: for numbers that are needed once, and not so soon.
#[inline(always)]
pub(crate) fn fetch_far(start: *const f32, count: usize) {
    #[cfg(target_arch = "x86_64")]
    fetch_into::<{ std::arch::x86_64::_MM_HINT_T1 }>(start, count);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, count);
}

/// Numbers of a line of the caches.
pub(crate) const LINE: usize = 16;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fetch_into<const HINT: i32>(start: *const f32, count: usize) {
    for line in (0..count).step_by(LINE) {
        // SAFETY: SSE is part of x86-64, and a hint reads nothing.
        unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(start.wrapping_add(line).cast()) };
    }
}

/// `e^x` in each lane, to about two units in the last place; zero below -87.3 and infinite above 88.7.
///
/// The integer part of the exponent to base two goes into the bits of a power of two, the rest through a polynomial.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let clamped = simd.max_f32s(simd.min_f32s(x, splat(HIGHEST)), splat(LOWEST));
    let Factors {
        fraction: [fraction],
        shifted: [shifted],
        ..
    } = factors(simd, [clamped]);
    // The power of two is made as a product of two, because for the largest results it does not fit into one.
    let bits = simd.transmute_u32s_f32s(shifted);
    let integer = simd.sub_u32s(bits, simd.splat_u32s(0x4B40_0000));
    let half = shift_right_signed(simd, integer);
    let other = simd.sub_u32s(integer, half);
    let power = |exponent: S::u32s| {
        let biased = simd.add_u32s(exponent, simd.splat_u32s(127));
        simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(biased, simd.splat_u32s(23)))
    };
    let result = simd.mul_f32s(simd.mul_f32s(fraction, power(half)), power(other));
    let below = simd.less_than_f32s(x, splat(LOWEST));
    let above = simd.greater_than_f32s(x, splat(HIGHEST));
    let result = simd.select_f32s(below, splat(0.0), result);
    let result = simd.select_f32s(above, splat(f32::INFINITY), result);
    // min and max drop NaN, so it is put back: what is not equal to itself.
    let number = simd.equal_f32s(x, x);
    simd.select_f32s(number, result, x)
}

/// Does one thing to each of several vectors.
///
/// Chains of dependent operations stand abreast this way: one after the other, the first few would fill the processor's list
/// of what waits, and the others could not begin.
macro_rules! abreast {
    ($simd:expr, $count:expr, |$index:ident| $value:expr) => {{
        let mut all = [$simd.splat_f32s(0.0); $count];
        for $index in 0..$count {
            all[$index] = $value;
        }
        all
    }};
}
pub(crate) use abreast;

/// The two factors of `e^x`: a number near one, and a power of two.
struct Factors<V, const N: usize> {
    fraction: [V; N],
    /// The exponent of the power of two.
    whole: [V; N],
    /// The same plus [`SHIFTER`], so that it is in the low bits.
    shifted: [V; N],
}

/// See [`Factors`].
#[inline(always)]
fn factors<S: Simd, const N: usize>(simd: S, x: [S::f32s; N]) -> Factors<S::f32s, N> {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    /// What the logarithm of e has beyond the digits of its nearest number.
    const MORE: f32 = 1.925_963e-8;
    /// Of 2^-x between minus and plus a half, to 3e-9.
    const COEFFICIENTS: [f32; 6] = [
        -1.339_080_6e-3,
        9.618_506e-3,
        -5.550_36e-2,
        2.402_264_8e-1,
        -std::f32::consts::LN_2,
        1.0,
    ];
    let splat = |value: f32| simd.splat_f32s(value);
    let shifter = splat(SHIFTER);
    let shifted = abreast!(simd, N, |i| simd.mul_add_f32s(x[i], splat(LOG2_E), shifter));
    let whole = abreast!(simd, N, |i| simd.sub_f32s(shifted[i], shifter));
    let near = abreast!(simd, N, |i| simd.mul_add_f32s(
        x[i],
        splat(-LOG2_E),
        whole[i]
    ));
    let rest = abreast!(simd, N, |i| simd.mul_add_f32s(x[i], splat(-MORE), near[i]));
    let mut fraction = [splat(1.532_646_3e-4); N];
    for coefficient in COEFFICIENTS {
        fraction = abreast!(simd, N, |i| {
            simd.mul_add_f32s(fraction[i], rest[i], splat(coefficient))
        });
    }
    Factors {
        fraction,
        whole,
        shifted,
    }
}

/// Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
const SHIFTER: f32 = 12_582_912.0;

/// Above, `e^x` is more than the largest number.
const HIGHEST: f32 = 88.722_84;

/// Below, `e^x` is less than the smallest normal number.
const LOWEST: f32 = -87.336_55;

/// `e^x` in each lane for `x` that are not above zero, at half the cost of [`exp`].
///
/// What softmax and sigmoid need: there is nothing to overflow, so one power of two is enough, and no clamping keeps NaN
/// from passing. Correct up to 88.
#[inline(always)]
pub fn decay<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    decays(simd, [x])[0]
}

/// [`decay`] of several vectors, abreast.
#[inline(always)]
pub fn decays<S: Simd, const N: usize>(simd: S, x: [S::f32s; N]) -> [S::f32s; N] {
    let splat = |value: f32| simd.splat_f32s(value);
    let Factors {
        fraction,
        whole,
        shifted,
    } = factors(simd, x);
    #[cfg(target_arch = "x86_64")]
    if has_avx512::<S>() {
        return abreast!(simd, N, |i| {
            // SAFETY: these vectors are those of AVX-512, so the processor has it.
            unsafe {
                let result = scaled_unless_lower(
                    transmute_copy(&x[i]),
                    transmute_copy(&fraction[i]),
                    transmute_copy(&whole[i]),
                );
                transmute_copy(&result)
            }
        });
    }
    abreast!(simd, N, |i| {
        // The shift leaves nothing of the shifter's own bits.
        let bits = simd.transmute_u32s_f32s(shifted[i]);
        let exponent = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
        let power = simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.splat_u32s(127 << 23)));
        let result = simd.mul_f32s(fraction[i], power);
        let gone = simd.less_than_f32s(x[i], splat(LOWEST));
        simd.select_f32s(gone, splat(0.0), result)
    })
}

/// Whether a kernel is compiled for AVX-512.
#[inline(always)]
pub(crate) const fn has_avx512<S: Simd>() -> bool {
    cfg!(target_arch = "x86_64") && S::F32_LANES == 16 && S::REGISTER_COUNT == 32
}

/// `fraction · 2^whole`, or zero where `x` is below [`LOWEST`].
///
/// # Safety
/// The processor must have AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn scaled_unless_lower(x: __m512, fraction: __m512, whole: __m512) -> __m512 {
    let stays = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(LOWEST));
    _mm512_maskz_scalef_ps(stays, fraction, whole)
}

/// Half of a signed integer, rounded down.
#[inline(always)]
fn shift_right_signed<S: Simd>(simd: S, integer: S::u32s) -> S::u32s {
    let shifted = simd.wrapping_dyn_shr_u32s(integer, simd.splat_u32s(1));
    let sign = simd.and_u32s(integer, simd.splat_u32s(0x8000_0000));
    simd.or_u32s(shifted, sign)
}

/// `tanh(x)` in each lane, from one exponential; exact to a few units in the last place near zero and beyond.
#[inline(always)]
pub fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value: f32| simd.splat_f32s(value);
    let size = simd.abs_f32s(x);
    // (1 - e^-2|x|) / (1 + e^-2|x|)
    let decay = exp(simd, simd.mul_f32s(size, splat(-2.0)));
    let large = simd.div_f32s(
        simd.sub_f32s(splat(1.0), decay),
        simd.add_f32s(splat(1.0), decay),
    );
    // Near zero the difference above loses digits; an odd polynomial does not (Cephes).
    let square = simd.mul_f32s(x, x);
    let mut series = splat(-5.704_988_7e-3);
    for coefficient in [2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1] {
        series = simd.mul_add_f32s(series, square, splat(coefficient));
    }
    let small = simd.mul_add_f32s(simd.mul_f32s(series, square), size, size);
    let near = simd.less_than_f32s(size, splat(0.625));
    let size = simd.select_f32s(near, small, large);
    let negative = simd.less_than_f32s(x, splat(0.0));
    simd.select_f32s(negative, simd.neg_f32s(size), size)
}

/// Φ(x), the normal distribution, in each lane.
///
/// What lies beyond `|x|` is half the inverse of a polynomial's fourth power. Its absolute error is below 3e-7 and shrinks
/// outwards, so that `x · Φ(x)` is good to 1.5e-7 far below zero too, where `(1 + erf) / 2` has lost more.
#[inline(always)]
pub fn normal_distribution<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
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
    let size = simd.abs_f32s(x);
    let mut root = splat(4.793_399_5e-6);
    for coefficient in COEFFICIENTS {
        root = simd.mul_add_f32s(root, size, splat(coefficient));
    }
    let square = simd.mul_f32s(root, root);
    let beyond = simd.div_f32s(splat(0.5), simd.mul_f32s(square, square));
    let negative = simd.less_than_f32s(x, splat(0.0));
    simd.select_f32s(negative, beyond, simd.sub_f32s(splat(1.0), beyond))
}

#[cfg(test)]
mod tests;
