//! Numbers in blocks of few bits, as ggml quantizes them, back to f32, by the steps of its `dequantize_row_*`.
//!
//! ```text
//! kind   numbers   bytes of a block                                                      a number
//! Q4_0      32     2: scale │ 16: nibbles                                                (nibble - 8) · scale
//! Q4_1      32     2: scale │ 2: least │ 16: nibbles                                     nibble · scale + least
//! Q8_0      32     2: scale │ 32: i8                                                     i8 · scale
//! Q4_K     256     2: scale │ 2: least │ 12: own scales, own leasts │ 128: nibbles       nibble · scale · own - least · own
//! Q6_K     256     128: low four bits │ 64: high two bits │ 16: own scales │ 2: scale    (six bits - 32) · scale · own
//!
//! Scales and leasts are f16. A group of a block's numbers has own ones: of six bits for 32 numbers in Q4_K, an i8 for 16
//! numbers in Q6_K.
//!
//! nibbles: the low halves of n bytes are the first n numbers, their high halves the next n.
//!
//!          byte   0     1          n - 1
//!               ┌─┬─┐ ┌─┬─┐      ┌─┬─┐    high │ low
//!               │n│0│ │ │1│  …   │ │ │
//!               └─┴─┘ └─┴─┘      └─┴─┘
//!          n is 16 where a block has 32 numbers. Q4_K has four such runs of n = 32, each half with its own scale and least.
//!
//! Q6_K: two runs of 128 numbers, each of four quarters of 32. Number i of a quarter is made from
//!
//!          quarter   low four bits            high two bits    own scale
//!             0      low half of low[i]       bits 0, 1 of     2 · 0 + i / 16
//!             1      low half of low[32 + i]  bits 2, 3 of     2 · 1 + i / 16
//!             2      high half of low[i]      bits 4, 5 of     2 · 2 + i / 16
//!             3      high half of low[32 + i] bits 6, 7 of     2 · 3 + i / 16
//!                                                  high[i]
//! ```

use half::f16;

/// Numbers of `Q4_0`.
pub(crate) fn q4_0(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 18], numbers: &mut [f32; 32]| {
        let scale = half_at(block, 0);
        nibbles(&block[2..], numbers, |nibble| (nibble - 8.0) * scale);
    })
}

/// Numbers of `Q4_1`.
pub(crate) fn q4_1(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 20], numbers: &mut [f32; 32]| {
        let (scale, least) = (half_at(block, 0), half_at(block, 2));
        nibbles(&block[4..], numbers, |nibble| nibble * scale + least);
    })
}

/// Numbers of `Q8_0`.
pub(crate) fn q8_0(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 34], numbers: &mut [f32; 32]| {
        let scale = half_at(block, 0);
        for (number, byte) in numbers.iter_mut().zip(&block[2..]) {
            *number = f32::from(byte.cast_signed()) * scale;
        }
    })
}

/// Numbers of `Q4_K`.
pub(crate) fn q4_k(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 144], numbers: &mut [f32; 256]| {
        let (scale, least) = (half_at(block, 0), half_at(block, 2));
        let owns = &block[4..16];
        let runs = block[16..].chunks_exact(32);
        for (run, (bytes, numbers)) in runs.zip(numbers.chunks_exact_mut(64)).enumerate() {
            let own = |half: usize| {
                let (own_scale, own_least) = six_bits(owns, 2 * run + half);
                (scale * own_scale, least * own_least)
            };
            let ((low_scale, low_least), (high_scale, high_least)) = (own(0), own(1));
            let (low, high) = numbers.split_at_mut(32);
            for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                *low = low_scale * f32::from(byte & 15) - low_least;
                *high = high_scale * f32::from(byte >> 4) - high_least;
            }
        }
    })
}

/// Numbers of `Q6_K`.
pub(crate) fn q6_k(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 210], numbers: &mut [f32; 256]| {
        let scale = half_at(block, 208);
        for run in 0..2 {
            let low = &block[64 * run..][..64];
            let high = &block[128 + 32 * run..][..32];
            let owns = &block[192 + 8 * run..][..8];
            let quarters = numbers[128 * run..][..128].chunks_exact_mut(32);
            for (quarter, numbers) in quarters.enumerate() {
                let low = &low[32 * (quarter % 2)..][..32];
                for (index, number) in numbers.iter_mut().enumerate() {
                    let low = low[index] >> (4 * (quarter / 2)) & 15;
                    let high = high[index] >> (2 * quarter) & 3;
                    let own = f32::from(owns[2 * quarter + index / 16].cast_signed());
                    *number = scale * own * (f32::from(low | high << 4) - 32.0);
                }
            }
        }
    })
}

/// The scale and the least of one of eight groups, of six bits each, from their twelve bytes.
///
/// ```text
/// bytes 0 to 3    EE AAAAAA    scales A of groups 0 to 3, and above them the high bits of the scales of groups 4 to 7
/// bytes 4 to 7    ee aaaaaa    the same of the leasts
/// bytes 8 to 11   eeee EEEE    the low bits of the leasts and the scales of groups 4 to 7
/// ```
fn six_bits(bytes: &[u8], group: usize) -> (f32, f32) {
    let at = group % 4;
    let (scale, least) = if group < 4 {
        (bytes[at] & 63, bytes[4 + at] & 63)
    } else {
        (
            bytes[8 + at] & 15 | bytes[at] >> 6 << 4,
            bytes[8 + at] >> 4 | bytes[4 + at] >> 6 << 4,
        )
    };
    (scale.into(), least.into())
}

/// Sixteen bytes of two nibbles each.
fn nibbles(bytes: &[u8], numbers: &mut [f32; 32], number: impl Fn(f32) -> f32) {
    let (low, high) = numbers.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = number((byte & 15).into());
        *high = number((byte >> 4).into());
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// All numbers of bytes that are whole blocks.
fn blocks<const BYTES: usize, const NUMBERS: usize>(
    bytes: &[u8],
    fill: impl Fn(&[u8; BYTES], &mut [f32; NUMBERS]),
) -> Vec<f32> {
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let mut numbers = vec![0.0; blocks.len() * NUMBERS];
    let (filled, _) = numbers.as_chunks_mut::<NUMBERS>();
    for (block, numbers) in blocks.iter().zip(filled) {
        fill(block, numbers);
    }
    numbers
}
