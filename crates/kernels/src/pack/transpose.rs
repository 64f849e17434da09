//! Transposes of small blocks in registers, by shuffles that are not portable.

/// Transposes sixteen rows of sixteen values.
///
/// # Safety
/// The CPU must have AVX-512; sixteen rows, `from_stride` apart, must be readable, and as many, `to_stride` apart,
/// writable.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn transpose_16x16(
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
) {
    use std::arch::x86_64::{
        __m512, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps, _mm512_setzero_ps,
        _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps,
        _mm512_unpacklo_pd, _mm512_unpacklo_ps,
    };
    let mut rows = [_mm512_setzero_ps(); 16];
    for (i, row) in rows.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        *row = unsafe { _mm512_loadu_ps(from.add(i * from_stride)) };
    }
    let mut other = rows;
    // Interleave pairs of rows, then groups of four; then exchange 128-bit lanes, twice.
    for i in 0..8 {
        let [a, b] = [rows[2 * i], rows[2 * i + 1]];
        other[2 * i] = _mm512_unpacklo_ps(a, b);
        other[2 * i + 1] = _mm512_unpackhi_ps(a, b);
    }
    for i in 0..4 {
        for half in 0..2 {
            let [a, b] =
                [other[4 * i + half], other[4 * i + half + 2]].map(|it| _mm512_castps_pd(it));
            rows[4 * i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            rows[4 * i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    let even = |a: __m512, b: __m512| _mm512_shuffle_f32x4::<0x88>(a, b);
    let odd = |a: __m512, b: __m512| _mm512_shuffle_f32x4::<0xDD>(a, b);
    for i in 0..4 {
        for half in [0, 8] {
            other[half + i] = even(rows[half + i], rows[half + i + 4]);
            other[half + i + 4] = odd(rows[half + i], rows[half + i + 4]);
        }
    }
    for i in 0..8 {
        rows[i] = even(other[i], other[i + 8]);
        rows[i + 8] = odd(other[i], other[i + 8]);
    }
    for (i, row) in rows.into_iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_storeu_ps(to.add(i * to_stride), row) };
    }
}

/// Transposes eight rows of eight values.
///
/// # Safety
/// The CPU must have AVX; eight rows, `from_stride` apart, must be readable, and as many, `to_stride` apart, writable.
#[target_feature(enable = "avx")]
#[inline]
pub(super) unsafe fn transpose_8x8(
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
) {
    use std::arch::x86_64::{
        _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
        _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * from_stride));
        let r = [
            row(0),
            row(1),
            row(2),
            row(3),
            row(4),
            row(5),
            row(6),
            row(7),
        ];
        // Interleave pairs of rows, then groups of four; then exchange 128-bit lanes.
        let p = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
            _mm256_unpacklo_ps(r[2], r[3]),
            _mm256_unpackhi_ps(r[2], r[3]),
            _mm256_unpacklo_ps(r[4], r[5]),
            _mm256_unpackhi_ps(r[4], r[5]),
            _mm256_unpacklo_ps(r[6], r[7]),
            _mm256_unpackhi_ps(r[6], r[7]),
        ];
        let q = [
            _mm256_shuffle_ps::<0x44>(p[0], p[2]),
            _mm256_shuffle_ps::<0xEE>(p[0], p[2]),
            _mm256_shuffle_ps::<0x44>(p[1], p[3]),
            _mm256_shuffle_ps::<0xEE>(p[1], p[3]),
            _mm256_shuffle_ps::<0x44>(p[4], p[6]),
            _mm256_shuffle_ps::<0xEE>(p[4], p[6]),
            _mm256_shuffle_ps::<0x44>(p[5], p[7]),
            _mm256_shuffle_ps::<0xEE>(p[5], p[7]),
        ];
        for i in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(q[i], q[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(q[i], q[i + 4]);
            _mm256_storeu_ps(to.add(i * to_stride), low);
            _mm256_storeu_ps(to.add((i + 4) * to_stride), high);
        }
    }
}

/// Transposes four rows of eight values into eight of four.
///
/// # Safety
/// The CPU must have AVX; four rows, `from_stride` apart, must be readable, and eight, `to_stride` apart, writable.
#[target_feature(enable = "avx")]
#[inline]
pub(super) unsafe fn transpose_4x8(
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
) {
    use std::arch::x86_64::{
        _mm_storeu_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_loadu_ps,
        _mm256_shuffle_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * from_stride));
        let r = [row(0), row(1), row(2), row(3)];
        let p = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
            _mm256_unpacklo_ps(r[2], r[3]),
            _mm256_unpackhi_ps(r[2], r[3]),
        ];
        let fours = [
            _mm256_shuffle_ps::<0x44>(p[0], p[2]),
            _mm256_shuffle_ps::<0xEE>(p[0], p[2]),
            _mm256_shuffle_ps::<0x44>(p[1], p[3]),
            _mm256_shuffle_ps::<0xEE>(p[1], p[3]),
        ];
        for (i, four) in fours.into_iter().enumerate() {
            _mm_storeu_ps(to.add(i * to_stride), _mm256_castps256_ps128(four));
            let high = _mm256_extractf128_ps::<1>(four);
            _mm_storeu_ps(to.add((i + 4) * to_stride), high);
        }
    }
}

/// Transposes two rows of eight values into eight of two.
///
/// # Safety
/// The CPU must have AVX; two rows, `from_stride` apart, must be readable, and eight, `to_stride` apart, writable.
#[target_feature(enable = "avx")]
#[inline]
pub(super) unsafe fn transpose_2x8(
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
) {
    use std::arch::x86_64::{
        _mm_castps_pd, _mm_storeh_pd, _mm_storel_pd, _mm256_castps256_ps128, _mm256_extractf128_ps,
        _mm256_loadu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        let r = [
            _mm256_loadu_ps(from),
            _mm256_loadu_ps(from.add(from_stride)),
        ];
        let pairs = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
        ];
        let to = |i: usize| to.add(i * to_stride).cast();
        for (i, pair) in pairs.into_iter().enumerate() {
            let low = _mm_castps_pd(_mm256_castps256_ps128(pair));
            let high = _mm_castps_pd(_mm256_extractf128_ps::<1>(pair));
            _mm_storel_pd(to(2 * i), low);
            _mm_storeh_pd(to(2 * i + 1), low);
            _mm_storel_pd(to(2 * i + 4), high);
            _mm_storeh_pd(to(2 * i + 5), high);
        }
    }
}
