//! The alphabet of byte-level BPE: a printable character for each byte (`bytes_to_unicode`). Radford et al. 2019 (GPT-2).

/// One printable character per byte: printable bytes map to themselves, the rest are shifted above U+0100, so that
/// vocabulary files hold no control characters or spaces.
pub(crate) fn byte_level_alphabet() -> [char; 256] {
    let mut shifted = (0x100u32..).filter_map(char::from_u32);
    std::array::from_fn(|byte| match byte as u8 {
        printable @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => printable as char,
        _ => shifted
            .next()
            .expect("there are far more than 256 characters"),
    })
}

/// The byte of a symbol: the inverse of [`byte_level_alphabet`].
pub(crate) fn byte_of_symbol(symbol: char) -> Option<u8> {
    let code = symbol as u32;
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        // The shifted bytes in order: 0x00-0x20, then 0x7F-0xA0, then 0xAD.
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    Some(byte as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_symbols_are_those_of_gpt2() {
        let symbols = byte_level_alphabet();
        assert!(
            symbols
                .iter()
                .all(|symbol| ByteLevel::alphabet().contains(symbol))
        );
        assert_eq!(symbols[b' ' as usize], 'Ġ');
        for (byte, &symbol) in symbols.iter().enumerate() {
            assert_eq!(byte_of_symbol(symbol), Some(byte as u8));
        }
    }
}
