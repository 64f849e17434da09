//! Bytes read one after the other, never beyond their end.

/// A place in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// At a place of bytes; one beyond the end reads nothing.
    pub(super) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    /// How many bytes lie before.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// The next bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some(taken) = rest.get(..count) else {
            return Err(format!(
                "it ends where {count} more bytes should follow byte {}",
                self.position
            ));
        };
        self.position += count;
        Ok(taken)
    }

    /// The next bytes, whose count is a number of the file.
    pub(super) fn take_long(&mut self, count: u64) -> Result<&'a [u8], String> {
        // A count beyond usize is beyond every file, too.
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The bytes up to the next line break, which is passed.
    pub(super) fn line(&mut self) -> Result<&'a [u8], String> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(format!(
                "it ends in the line that starts at byte {}",
                self.position
            ));
        };
        self.position += length + 1;
        Ok(&rest[..length])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    pub(super) fn u8(&mut self) -> Result<u8, String> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next two bytes, the lowest first.
    pub(super) fn u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes, the lowest first.
    pub(super) fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next four bytes, the lowest first, with a sign.
    pub(super) fn i32(&mut self) -> Result<i32, String> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes, the lowest first.
    pub(super) fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
