//! The primitives of GGUF: little-endian numbers, counts bounded by the remaining bytes, and length-prefixed strings.

use crate::cursor::Cursor;

/// A cursor over a file.
pub(super) struct Reader<'a> {
    cursor: Cursor<'a>,
    size: usize,
}

impl<'a> Reader<'a> {
    /// A reader at this byte.
    pub(super) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self {
            cursor: Cursor::at(bytes, position),
            size: bytes.len(),
        }
    }

    /// The offset of the next byte.
    pub(super) fn position(&self) -> usize {
        self.cursor.position()
    }

    /// The size of the file in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Reads a number, decoded by `from`.
    pub(super) fn number<const N: usize, T>(
        &mut self,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<T, String> {
        Ok(from(self.cursor.array()?))
    }

    /// Reads `count` numbers; allocates only after checking that the file has them.
    pub(super) fn numbers<const N: usize, T>(
        &mut self,
        count: usize,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, String> {
        // A length that overflows usize is past the end of any file.
        let bytes = self.cursor.take(count.saturating_mul(N))?;
        let (chunks, _) = bytes.as_chunks::<N>();
        Ok(chunks.iter().map(|chunk| from(*chunk)).collect())
    }

    /// Reads a count of items that take at least `min_bytes` each. The remaining bytes bound it, so it is safe to allocate for.
    pub(super) fn count(&mut self, what: &str, min_bytes: usize) -> Result<usize, String> {
        let offset = self.position();
        let count = self.number(u64::from_le_bytes)?;
        let left = self.cursor.rest().len();
        match usize::try_from(count) {
            Ok(count) if count <= left / min_bytes => Ok(count),
            _ => Err(format!(
                "byte {offset} declares {count} {what}, too many for the {left} bytes that follow"
            )),
        }
    }

    /// Reads a length-prefixed string.
    pub(super) fn string(&mut self) -> Result<&'a str, String> {
        let length = self.count("bytes of string", 1)?;
        let offset = self.position();
        let bytes = self.cursor.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| format!("the string at byte {offset} is not UTF-8"))
    }
}
