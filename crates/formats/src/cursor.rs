//! A bounds-checked cursor over bytes.

/// A position in a byte slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at `position`; one beyond the end has nothing left to read.
    pub(crate) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Reads `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let Some(taken) = self.rest().get(..count) else {
            return Err(format!(
                "it ends where {count} more bytes should follow byte {}",
                self.position
            ));
        };
        self.position += count;
        Ok(taken)
    }

    /// Reads `count` bytes, where the count comes from the file.
    pub(crate) fn take_long(&mut self, count: u64) -> Result<&'a [u8], String> {
        // A count that overflows usize is past the end of any file.
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Reads a line, and consumes its newline.
    pub(crate) fn line(&mut self) -> Result<&'a [u8], String> {
        let rest = self.rest();
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(format!(
                "it ends in the line that starts at byte {}",
                self.position
            ));
        };
        self.position += length + 1;
        Ok(&rest[..length])
    }

    /// Reads an array of `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Reads a `u8`.
    pub(crate) fn u8(&mut self) -> Result<u8, String> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Reads a little-endian `u16`.
    pub(crate) fn u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads a little-endian `u32`.
    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads a little-endian `i32`.
    pub(crate) fn i32(&mut self) -> Result<i32, String> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// Reads a little-endian `u64`.
    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
