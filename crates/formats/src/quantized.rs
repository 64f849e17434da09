//! Dequantization of ggml's block formats to f32, following its `dequantize_row_*`.
//!
//! ```text
//! type   values   bytes of a block                                                              value
//! Q4_0     32     2: scale │ 16: nibbles                                                        (nibble - 8) · scale
//! Q4_1     32     2: scale │ 2: min │ 16: nibbles                                               nibble · scale + min
//! Q8_0     32     2: scale │ 32: i8                                                             i8 · scale
//! Q4_K    256     2: scale │ 2: min │ 12: group scales, group mins │ 128: nibbles               nibble · scale · group - min · group
//! Q6_K    256     128: low four bits │ 64: high two bits │ 16: group scales │ 2: scale          (six bits - 32) · scale · group
//!
//! Scales and mins of a block are f16. Those of a group are 6-bit integers for 32 values in Q4_K, and i8 for 16 values in Q6_K.
//!
//! nibbles: the low halves of n bytes are the first n values, their high halves the next n.
//!
//!          byte   0     1          n - 1
//!               ┌─┬─┐ ┌─┬─┐      ┌─┬─┐    high │ low
//!               │n│0│ │ │1│  …   │ │ │
//!               └─┴─┘ └─┴─┘      └─┴─┘
//!          n is 16 where a block has 32 values. Q4_K has four such runs of n = 32, each half with its own group scale and min.
//!
//! Q6_K: two runs of 128 values, each of four quarters of 32. Value i of a quarter combines
//!
//!          quarter   low four bits            high two bits    group scale
//!             0      low half of low[i]       bits 0, 1 of     2 · 0 + i / 16
//!             1      low half of low[32 + i]  bits 2, 3 of     2 · 1 + i / 16
//!             2      high half of low[i]      bits 4, 5 of     2 · 2 + i / 16
//!             3      high half of low[32 + i] bits 6, 7 of     2 · 3 + i / 16
//!                                                  high[i]
//! ```

use half::f16;

/// Dequantizes `Q4_0`.
pub(crate) fn q4_0(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 18], values: &mut [f32; 32]| {
        let scale = f16_at(block, 0);
        nibbles(&block[2..], values, |nibble| (nibble - 8.0) * scale);
    })
}

/// Dequantizes `Q4_1`.
pub(crate) fn q4_1(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 20], values: &mut [f32; 32]| {
        let (scale, min) = (f16_at(block, 0), f16_at(block, 2));
        nibbles(&block[4..], values, |nibble| nibble * scale + min);
    })
}

/// Dequantizes `Q8_0`.
pub(crate) fn q8_0(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 34], values: &mut [f32; 32]| {
        let scale = f16_at(block, 0);
        for (value, byte) in values.iter_mut().zip(&block[2..]) {
            *value = f32::from(byte.cast_signed()) * scale;
        }
    })
}

/// Dequantizes `Q4_K`.
pub(crate) fn q4_k(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 144], values: &mut [f32; 256]| {
        let (scale, min) = (f16_at(block, 0), f16_at(block, 2));
        let group_scales = &block[4..16];
        let runs = block[16..].chunks_exact(32);
        for (run, (bytes, values)) in runs.zip(values.chunks_exact_mut(64)).enumerate() {
            let group = |half: usize| {
                let (group_scale, group_min) = unpack_6bit(group_scales, 2 * run + half);
                (scale * group_scale, min * group_min)
            };
            let ((low_scale, low_min), (high_scale, high_min)) = (group(0), group(1));
            let (low, high) = values.split_at_mut(32);
            for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                *low = low_scale * f32::from(byte & 15) - low_min;
                *high = high_scale * f32::from(byte >> 4) - high_min;
            }
        }
    })
}

/// Dequantizes `Q6_K`.
pub(crate) fn q6_k(bytes: &[u8]) -> Vec<f32> {
    blocks(bytes, |block: &[u8; 210], values: &mut [f32; 256]| {
        let scale = f16_at(block, 208);
        for run in 0..2 {
            let low = &block[64 * run..][..64];
            let high = &block[128 + 32 * run..][..32];
            let group_scales = &block[192 + 8 * run..][..8];
            let quarters = values[128 * run..][..128].chunks_exact_mut(32);
            for (quarter, values) in quarters.enumerate() {
                let low = &low[32 * (quarter % 2)..][..32];
                for (index, value) in values.iter_mut().enumerate() {
                    let low = low[index] >> (4 * (quarter / 2)) & 15;
                    let high = high[index] >> (2 * quarter) & 3;
                    let group = f32::from(group_scales[2 * quarter + index / 16].cast_signed());
                    *value = scale * group * (f32::from(low | high << 4) - 32.0);
                }
            }
        }
    })
}

/// Unpacks the 6-bit scale and min of one of eight groups from their twelve bytes.
///
/// ```text
/// bytes 0 to 3    EE AAAAAA    scales A of groups 0 to 3, and above them the high bits of the scales of groups 4 to 7
/// bytes 4 to 7    ee aaaaaa    the same of the mins
/// bytes 8 to 11   eeee EEEE    the low bits of the mins and the scales of groups 4 to 7
/// ```
fn unpack_6bit(bytes: &[u8], group: usize) -> (f32, f32) {
    let at = group % 4;
    let (scale, min) = if group < 4 {
        (bytes[at] & 63, bytes[4 + at] & 63)
    } else {
        (
            bytes[8 + at] & 15 | bytes[at] >> 6 << 4,
            bytes[8 + at] >> 4 | bytes[4 + at] >> 6 << 4,
        )
    };
    (scale.into(), min.into())
}

/// Unpacks sixteen bytes of two nibbles each.
fn nibbles(bytes: &[u8], values: &mut [f32; 32], value: impl Fn(f32) -> f32) {
    let (low, high) = values.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = value((byte & 15).into());
        *high = value((byte >> 4).into());
    }
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Dequantizes every block of `bytes`.
fn blocks<const BYTES: usize, const VALUES: usize>(
    bytes: &[u8],
    fill: impl Fn(&[u8; BYTES], &mut [f32; VALUES]),
) -> Vec<f32> {
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let mut values = vec![0.0; blocks.len() * VALUES];
    let (filled, _) = values.as_chunks_mut::<VALUES>();
    for (block, values) in blocks.iter().zip(filled) {
        fill(block, values);
    }
    values
}
