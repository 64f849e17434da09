//! Base64 with padding, the encoding of bytes in tokenizer.json.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= chunk.len() {
                DIGITS[index] as char
            } else {
                '='
            });
        }
    }
    text
}

/// Decodes canonical base64.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.as_bytes().chunks(4) {
        let digits = four.iter().take_while(|digit| **digit != b'=');
        let mut bits = 0;
        let mut count = 0;
        for digit in digits {
            let value = DIGITS.iter().position(|it| it == digit)?;
            bits = bits << 6 | value as u32;
            count += 1;
        }
        let three = (bits << (6 * (4 - count))).to_be_bytes();
        bytes.extend_from_slice(&three[1..][..(count as usize).saturating_sub(1)]);
    }
    // Only the canonical encoding is accepted.
    (encode_base64(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        for length in 0..70 {
            let bytes: Vec<u8> = (0..length).map(|at: u8| at.wrapping_mul(37)).collect();
            assert_eq!(decode_base64(&encode_base64(&bytes)), Some(bytes));
        }
        assert_eq!(encode_base64(b"light w"), "bGlnaHQgdw==");
        for wrong in ["a", "a===", "ab=c", "abc", "ab!=", "YWJ=", "=", "====", "ü"] {
            assert_eq!(decode_base64(wrong), None, "{wrong}");
        }
    }
}
