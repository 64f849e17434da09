//! What a GGUF file is written in: numbers, counts that the bytes left must justify, and texts after their length.

use crate::cursor::Cursor;

/// Bytes, and how far they are read.
pub(super) struct Reader<'a> {
    cursor: Cursor<'a>,
    size: usize,
}

impl<'a> Reader<'a> {
    /// At the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::at(bytes, 0),
            size: bytes.len(),
        }
    }

    /// The byte that is read next.
    pub(super) fn position(&self) -> usize {
        self.cursor.position()
    }

    /// How many bytes there are in all.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The next number, made from its bytes.
    pub(super) fn number<const N: usize, T>(
        &mut self,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<T, String> {
        Ok(from(self.cursor.array()?))
    }

    /// So many numbers; the memory for them is taken when they are seen to be there.
    pub(super) fn numbers<const N: usize, T>(
        &mut self,
        count: usize,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, String> {
        // A length beyond usize is beyond every file, too.
        let bytes = self.cursor.take(count.saturating_mul(N))?;
        let (chunks, _) = bytes.as_chunks::<N>();
        Ok(chunks.iter().map(|chunk| from(*chunk)).collect())
    }

    /// How many of something follow. As each takes `least` bytes or more, the bytes that are left bound the memory that
    /// a count can make its reader take.
    pub(super) fn count(&mut self, what: &str, least: usize) -> Result<usize, String> {
        let place = self.position();
        let count = self.number(u64::from_le_bytes)?;
        let left = self.cursor.rest().len();
        match usize::try_from(count) {
            Ok(count) if count <= left / least => Ok(count),
            _ => Err(format!(
                "byte {place} announces {count} {what}, too many for the {left} bytes that follow"
            )),
        }
    }

    /// A text after its length.
    pub(super) fn text(&mut self) -> Result<&'a str, String> {
        let length = self.count("bytes of text", 1)?;
        let place = self.position();
        let bytes = self.cursor.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| format!("the text at byte {place} is no UTF-8"))
    }
}
