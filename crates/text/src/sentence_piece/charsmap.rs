//! Validates the `precompiled_charsmap` of a SentencePiece model, the replacement rules of its normalizer.
//!
//! ```text
//! | u32: size of the trie in bytes | trie: u32 units, a double array (Darts) | replacements: zero-terminated strings |
//!
//! unit of a node: bits 0-7 label · bit 8 has a leaf · bit 9 offset in units of 256 · bits 10-30 offset
//! unit of a leaf: bit 31 set · bits 0-30 start of the replacement
//! ```
//! From the node at `index` the child for `byte` is at `index ^ offset ^ byte`. The normalizer of the `tokenizers` crate does
//! not check bounds, so a damaged charsmap would panic.

/// An error if a lookup could leave the trie or the replacements.
pub(crate) fn check_charsmap(charsmap: &[u8]) -> Result<(), String> {
    if charsmap.is_empty() {
        return Ok(());
    }
    let damaged = || "its precompiled_charsmap is damaged".to_owned();
    let (size, rest) = charsmap.split_first_chunk::<4>().ok_or_else(damaged)?;
    let size = u32::from_le_bytes(*size) as usize;
    let (trie, replacements) = rest.split_at_checked(size).ok_or_else(damaged)?;
    let replacements = std::str::from_utf8(replacements).map_err(|_| damaged())?;
    let (units, remainder) = trie.as_chunks::<4>();
    if units.is_empty() || !remainder.is_empty() {
        return Err(damaged());
    }
    let valid = units.iter().enumerate().all(|(index, unit)| {
        let unit = u32::from_le_bytes(*unit);
        if unit >> 31 == 1 {
            // A replacement starts at a character boundary before the last zero byte; it may be empty.
            let begin = (unit & 0x7FFF_FFFF) as usize;
            return begin < replacements.len() && replacements.is_char_boundary(begin);
        }
        let offset = (unit as usize >> 10) << ((unit & 0x200) >> 6);
        let children = index ^ offset;
        // The leaf is the child for byte 0; all children are in the same 256 units.
        let has_valid_leaf = unit & 0x100 == 0
            || units
                .get(children)
                .is_some_and(|unit| u32::from_le_bytes(*unit) >> 31 == 1);
        (children | 0xFF) < units.len() && has_valid_leaf
    });
    if valid { Ok(()) } else { Err(damaged()) }
}
