//! Detects truncated JPEG files. The decoder silently fills in missing data. Pillow refuses such files, and so do we:
//! otherwise a model would classify half an image without an error.

/// Whether the end-of-image marker is found.
///
/// ```text
/// FF D8 │ FF marker, length, … │ … │ FF DA, length, … coded data (FF is followed by 00 or D0..D7) │ FF D9
/// start   segments, skipped by their length            scans; progressive files have several        end
/// ```
/// Data after the end (such as previews and videos of cameras) is ignored, as are previews in segments.
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(marker) = next_marker(bytes, &mut at) {
        match marker {
            0xD9 => return true,
            // Byte stuffing and restart markers in coded data, and the start: no segment to skip.
            0x00 | 0x01 | 0xD0..=0xD8 => {}
            _ => {
                let Some(&[high, low]) = bytes.get(at..at + 2) else {
                    return false;
                };
                at += usize::from(u16::from_be_bytes([high, low]));
            }
        }
    }
    false
}

/// Advances past the next run of FF, and returns the marker.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    let rest = bytes.get(*at..)?;
    let start = rest.iter().position(|&byte| byte == 0xFF)?;
    let length = rest[start..].iter().position(|&byte| byte != 0xFF)?;
    *at += start + length + 1;
    Some(rest[start + length])
}
