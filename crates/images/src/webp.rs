//! Detects truncated WebP files. The decoder allocates as much as the EXIF chunk declares before reading it.

/// Whether all chunks lie within the file.
///
/// ```text
/// "RIFF" │ length │ "WEBP" │ name, length, … │ name, length, … │ …
///   4        4        4        4     4    padded to an even length
/// ```
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
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
