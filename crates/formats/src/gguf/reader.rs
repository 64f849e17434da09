//! Little-endian numbers and texts from bytes, one after the other, and never from beyond their end.

/// Bytes, and how far they are read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// At the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The byte that is read next.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// How many bytes there are in all.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The next number, made from its bytes.
    pub(super) fn number<const N: usize, T>(
        &mut self,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<T, String> {
        let Some((bytes, _)) = self.rest().split_first_chunk::<N>() else {
            return Err(format!(
                "the file ends at byte {}, within a number",
                self.size()
            ));
        };
        self.position += N;
        Ok(from(*bytes))
    }

    /// So many numbers; the memory for them is taken when they are seen to be there.
    pub(super) fn numbers<const N: usize, T>(
        &mut self,
        count: usize,
        from: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, String> {
        let (chunks, _) = self.rest().as_chunks::<N>();
        let Some(chunks) = chunks.get(..count) else {
            return Err(format!(
                "the file ends at byte {}, within numbers",
                self.size()
            ));
        };
        self.position += count * N;
        Ok(chunks.iter().map(|chunk| from(*chunk)).collect())
    }

    /// How many of something follow. As each takes `least` bytes or more, the bytes that are left bound the memory that
    /// a count can make its reader take.
    pub(super) fn count(&mut self, what: &str, least: usize) -> Result<usize, String> {
        let place = self.position;
        let count = self.number(u64::from_le_bytes)?;
        let left = self.rest().len();
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
        let place = self.position;
        let bytes = &self.rest()[..length];
        self.position += length;
        std::str::from_utf8(bytes).map_err(|_| format!("the text at byte {place} is no UTF-8"))
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }
}
