//! Whether a WebP file holds all that it says. The decoder takes memory for its EXIF as large as the file says it is, before
//! it looks for it.

/// Whether all chunks end before the file does.
///
/// ```text
/// "RIFF" │ length │ "WEBP" │ name, length, … │ name, length, … │ …
///   4        4        4        4     4    padded to an even length
/// ```
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let mut at = 12;
    while let Some(length) = bytes.get(at + 4..at + 8) {
        let length = length
            .try_into()
            .map(u32::from_le_bytes)
            .unwrap_or(u32::MAX) as usize;
        if length > bytes.len() - at - 8 {
            return false;
        }
        at += 8 + length.next_multiple_of(2);
    }
    true
}
