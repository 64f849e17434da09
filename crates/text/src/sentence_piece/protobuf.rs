//! A reader of Protocol Buffers that trusts no length and no tag: fields one by one, borrowed from the bytes.

/// A field: its number, then what it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'bytes> {
    Number(u32, u64),
    Float(u32, f32),
    Bytes(u32, &'bytes [u8]),
    /// Eight fixed bytes, which no field of SentencePiece has.
    Eight,
}

/// The fields of a message, in order. After an error there are no more.
pub(super) struct Fields<'bytes> {
    rest: &'bytes [u8],
}

impl<'bytes> Fields<'bytes> {
    pub(super) fn new(bytes: &'bytes [u8]) -> Self {
        Self { rest: bytes }
    }

    fn field(&mut self) -> Result<Field<'bytes>, String> {
        let tag = self.number()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
        let number =
            number.ok_or("it has a field without a number, so it is not a SentencePiece model")?;
        match tag & 7 {
            0 => Ok(Field::Number(number, self.number()?)),
            1 => self.take(8).map(|_| Field::Eight),
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| ended())?;
                Ok(Field::Bytes(number, self.take(length)?))
            }
            5 => {
                let bytes = self.take(4)?.try_into().map_err(|_| ended())?;
                Ok(Field::Float(number, f32::from_le_bytes(bytes)))
            }
            kind => Err(format!(
                "it has a field of the kind {kind}, so it is not a SentencePiece model"
            )),
        }
    }

    /// Seven bits per byte, the lowest first.
    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("it has a number of more than 64 bits, so it is not a SentencePiece model".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'bytes [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(ended)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'bytes> Iterator for Fields<'bytes> {
    type Item = Result<Field<'bytes>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn ended() -> String {
    "it ends in the middle of a field".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_read_in_order() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1D, 0, 0, 0x80, 0x3F,
        ];
        let fields: Vec<Field> = Fields::new(&bytes)
            .map(|field| field.expect("a field"))
            .collect();
        assert_eq!(
            fields,
            [
                Field::Number(1, 150),
                Field::Bytes(2, b"hi"),
                Field::Float(3, 1.0)
            ]
        );
        for length in [1, 2, 4, 5, 6, 8, 11] {
            assert!(
                Fields::new(&bytes[..length]).any(|field| field.is_err()),
                "{length}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let count = Fields::new(&bytes).count();
            prop_assert!(count <= bytes.len());
            let _ = crate::sentence_piece::PieceModel::read(&bytes);
        }
    }
}
