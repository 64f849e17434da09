//! A bounds-checked Protocol Buffers parser: an iterator over borrowed fields.

/// A field: its number and value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'bytes> {
    Varint(u32, u64),
    Float(u32, f32),
    Bytes(u32, &'bytes [u8]),
    /// A 64-bit value, which no field of SentencePiece has.
    Fixed64,
}

/// The fields of a message, in order. Ends after an error.
pub(super) struct Fields<'bytes> {
    rest: &'bytes [u8],
}

impl<'bytes> Fields<'bytes> {
    pub(super) fn new(bytes: &'bytes [u8]) -> Self {
        Self { rest: bytes }
    }

    fn field(&mut self) -> Result<Field<'bytes>, String> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
        let number =
            number.ok_or("it has a field without a number, so it is not a SentencePiece model")?;
        match tag & 7 {
            0 => Ok(Field::Varint(number, self.varint()?)),
            1 => self.take(8).map(|_| Field::Fixed64),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ended())?;
                Ok(Field::Bytes(number, self.take(length)?))
            }
            5 => {
                let bytes = self.take(4)?.try_into().map_err(|_| ended())?;
                Ok(Field::Float(number, f32::from_le_bytes(bytes)))
            }
            wire_type => Err(format!(
                "it has a field of wire type {wire_type}, so it is not a SentencePiece model"
            )),
        }
    }

    /// Reads a varint.
    fn varint(&mut self) -> Result<u64, String> {
        let mut varint = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            varint |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(varint);
            }
        }
        Err("it has a varint of more than 64 bits, so it is not a SentencePiece model".to_owned())
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
                Field::Varint(1, 150),
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
        fn parsing_any_bytes_terminates(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let count = Fields::new(&bytes).count();
            prop_assert!(count <= bytes.len());
            let _ = crate::sentence_piece::SentencePieceModel::read(&bytes);
        }
    }
}
