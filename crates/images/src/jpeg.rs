//! Whether a JPEG file goes on to its end. The decoder makes up what is missing and says nothing; Pillow refuses,
//! and so do we: a model would answer confidently about half a picture.

/// Whether the marker of the image's end comes where it should.
///
/// ```text
/// FF D8 │ FF marker, length, … │ … │ FF DA, length, … coded data (FF is followed by 00 or D0..D7) │ FF D9
/// start   segments, skipped by their length            scans; progressive files have several        end
/// ```
/// What stands behind the end (cameras put previews and films there) plays no part, nor does a preview in a segment.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(marker) = next_marker(bytes, &mut at) {
        match marker {
            0xD9 => return true,
            // Stuffed zeros and restarts within coded data, and the start: nothing to skip.
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

/// The byte after the next run of FF, and moves behind it.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    let rest = bytes.get(*at..)?;
    let start = rest.iter().position(|&byte| byte == 0xFF)?;
    let length = rest[start..].iter().position(|&byte| byte != 0xFF)?;
    *at += start + length + 1;
    Some(rest[start + length])
}
