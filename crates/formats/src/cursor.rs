//! Bytes read one after the other, never beyond their end.

/// A place in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// At a place of bytes; one beyond the end reads nothing.
    pub(crate) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    /// How many bytes lie before.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The next bytes.
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

    /// The next bytes, whose count is a number of the file.
    pub(crate) fn take_long(&mut self, count: u64) -> Result<&'a [u8], String> {
        // A count beyond usize is beyond every file, too.
        self.take(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The bytes up to the next line break, which is passed.
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

    /// The next bytes, as many as the array has.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Result<u8, String> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// The next two bytes, the lowest first.
    pub(crate) fn u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next four bytes, the lowest first.
    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next four bytes, the lowest first, with a sign.
    pub(crate) fn i32(&mut self) -> Result<i32, String> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes, the lowest first.
    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
