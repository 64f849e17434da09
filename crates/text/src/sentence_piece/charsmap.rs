//! The rules that replace characters in a SentencePiece model, checked before anything follows them.
//!
//! ```text
//! | u32: bytes of the trie | trie: u32 units, a double array | replacements: texts, each closed by a zero byte |
//!
//! unit of a node:  bits 0-7 its byte · bit 8 a value hangs below · bit 9 offset in units of 256 · bits 10-30 offset
//! unit of a value: bit 31 set · bits 0-30 where the replacement begins
//! ```
//! From the node at `place` the child for `byte` is at `place ^ offset ^ byte`. The normalizer of the `tokenizers` crate
//! follows these numbers without looking, so a wrong one would be a panic.

/// An error if following the rules could leave the trie or the replacements.
pub(crate) fn check_charsmap(charsmap: &[u8]) -> Result<(), String> {
    if charsmap.is_empty() {
        return Ok(());
    }
    let wrong = || "its character rules (precompiled_charsmap) are damaged".to_owned();
    let (size, rest) = charsmap.split_first_chunk::<4>().ok_or_else(wrong)?;
    let size = u32::from_le_bytes(*size) as usize;
    let (trie, replacements) = rest.split_at_checked(size).ok_or_else(wrong)?;
    let replacements = std::str::from_utf8(replacements).map_err(|_| wrong())?;
    let (units, left_over) = trie.as_chunks::<4>();
    if units.is_empty() || !left_over.is_empty() {
        return Err(wrong());
    }
    let sound = units.iter().enumerate().all(|(place, unit)| {
        let unit = u32::from_le_bytes(*unit);
        if unit >> 31 == 1 {
            // A replacement begins at the start of a character and may be empty, but not beyond the last zero byte.
            let begin = (unit & 0x7FFF_FFFF) as usize;
            return begin < replacements.len() && replacements.is_char_boundary(begin);
        }
        let offset = (unit as usize >> 10) << ((unit & 0x200) >> 6);
        let children = place ^ offset;
        // The value is the child for the byte 0; all children lie in the same 256 units.
        let value_is_value = unit & 0x100 == 0
            || units
                .get(children)
                .is_some_and(|unit| u32::from_le_bytes(*unit) >> 31 == 1);
        (children | 0xFF) < units.len() && value_is_value
    });
    if sound { Ok(()) } else { Err(wrong()) }
}
