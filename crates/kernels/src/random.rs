//! Counter-based random numbers from a key and an index, in any order and on any thread: Philox 4x32-10. Salmon et al. 2011.
//!
//! A block of the cipher is four words. So that vectors of counters need no shuffling, words are indexed in groups of sixteen
//! counters:
//!
//! ```text
//! index   0 ..  15   word 0 of counters 0 .. 15
//!        16 ..  31   word 1 of counters 0 .. 15
//!        32 ..  47   word 2
//!        48 ..  63   word 3
//!        64 ..  79   word 0 of counters 16 .. 31, and so on
//! ```

use pulp::Simd;

/// Selects a random stream.
pub type Key = [u32; 2];

/// Random words per group: the four words of sixteen counters.
pub const GROUP: usize = 4 * COUNTERS;

const COUNTERS: usize = 16;
const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const INCREMENTS: Key = [0x9E37_79B9, 0xBB67_AE85];

/// The block of the cipher at a counter.
#[cfg(test)]
fn philox(counter: [u32; 4], key: Key) -> [u32; 4] {
    blocks(pulp::Scalar::new(), counter, key)
}

/// The random bits at an index.
///
/// For a single index; [`group`] is four times cheaper per word.
#[inline(always)]
pub fn bits(key: Key, index: u64) -> u32 {
    let (group, within) = (index / GROUP as u64, index as usize % GROUP);
    let counter = group * COUNTERS as u64 + (within % COUNTERS) as u64;
    let counter = [counter as u32, (counter >> 32) as u32, 0, 0];
    blocks(pulp::Scalar::new(), counter, key)[within / COUNTERS]
}

/// The random bits of all indices of a group, from `group · GROUP` on.
#[inline(always)]
pub fn group<S: Simd>(simd: S, key: Key, group: u64) -> [u32; GROUP] {
    let mut out = [0; GROUP];
    let counter = group * COUNTERS as u64;
    let high = simd.splat_u32s((counter >> 32) as u32);
    let zero = simd.splat_u32s(0);
    for start in (0..COUNTERS).step_by(S::U32_LANES) {
        // Sixteen counters share their high half, so there is no carry.
        let lanes = simd.partial_load_u32s(&LANES[start..start + S::U32_LANES]);
        let low = simd.add_u32s(simd.splat_u32s(counter as u32), lanes);
        let words = blocks(simd, [low, high, zero, zero], key);
        for (word, bits) in words.iter().enumerate() {
            let first = word * COUNTERS + start;
            simd.partial_store_u32s(&mut out[first..first + S::U32_LANES], *bits);
        }
    }
    out
}

const LANES: [u32; COUNTERS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The blocks of the cipher at a vector of counters.
#[inline(always)]
fn blocks<S: Simd>(simd: S, counter: [S::u32s; 4], mut key: Key) -> [S::u32s; 4] {
    let first = simd.splat_u32s(MULTIPLIERS[0]);
    let second = simd.splat_u32s(MULTIPLIERS[1]);
    let [mut a, mut b, mut c, mut d] = counter;
    for _ in 0..ROUNDS {
        let (left, right) = (simd.splat_u32s(key[0]), simd.splat_u32s(key[1]));
        let (low_a, high_a) = simd.widening_mul_u32s(a, first);
        let (low_c, high_c) = simd.widening_mul_u32s(c, second);
        [a, b, c, d] = [
            simd.xor_u32s(simd.xor_u32s(high_c, b), left),
            low_c,
            simd.xor_u32s(simd.xor_u32s(high_a, d), right),
            low_a,
        ];
        key = [
            key[0].wrapping_add(INCREMENTS[0]),
            key[1].wrapping_add(INCREMENTS[1]),
        ];
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;
    use pulp::WithSimd;

    struct Group(Key, u64);
    impl WithSimd for Group {
        type Output = [u32; GROUP];

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [u32; GROUP] {
            group(simd, self.0, self.1)
        }
    }

    /// The test vectors of Random123.
    #[test]
    fn blocks_are_the_published_ones() {
        let ones = u32::MAX;
        for (counter, key, block) in [
            (
                [0; 4],
                [0; 2],
                [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8],
            ),
            (
                [ones; 4],
                [ones; 2],
                [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD],
            ),
            (
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0],
                [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
            ),
        ] {
            assert_eq!(philox(counter, key), block);
        }
    }

    #[test]
    fn groups_equal_single_words_on_all_instruction_sets() {
        let key = [7, 11];
        for number in [0, 1, 2, (1 << 28) - 1, 1 << 28, (1 << 40) + 3] {
            let start = number * GROUP as u64;
            let expected: [u32; GROUP] = std::array::from_fn(|i| bits(key, start + i as u64));
            for &instructions in simd::available() {
                assert_eq!(simd::run(instructions, Group(key, number)), expected);
            }
        }
        // The order of words is part of the format: changing it changes every mask.
        let block = philox([17, 0, 0, 0], key);
        assert_eq!([65, 81, 97, 113].map(|index| bits(key, index)), block);
    }
}
