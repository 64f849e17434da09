//! Literals: numbers, strings, bytes.

use crate::ParseError;
use crate::cursor::Cursor;
use crate::pickle::opcode::*;
use crate::pickle::unpickler::Unpickler;
use crate::pickle::value::Value;

impl<'a> Unpickler<'a> {
    /// The value of an opcode that pushes a literal.
    pub(super) fn literal(&mut self, opcode: u8) -> Result<Value<'a>, ParseError> {
        let cursor = &mut self.cursor;
        Ok(match opcode {
            NONE => Value::None,
            NEWTRUE | NEWFALSE => Value::Other,
            BININT => Value::Integer(cursor.i32()?.into()),
            BININT1 => Value::Integer(cursor.u8()?.into()),
            BININT2 => Value::Integer(cursor.u16()?.into()),
            LONG1 | LONG4 => {
                let length = length_prefix(cursor, opcode)?;
                long(cursor.take_long(length)?)
            }
            BINFLOAT => {
                cursor.take(8)?;
                Value::Other
            }
            BINUNICODE | SHORT_BINUNICODE | BINUNICODE8 => {
                let length = length_prefix(cursor, opcode)?;
                let text = str::from_utf8(cursor.take_long(length)?);
                Value::String(text.map_err(|_| "a string of its pickle is not UTF-8")?)
            }
            BINSTRING | SHORT_BINSTRING => {
                let length = length_prefix(cursor, opcode)?;
                let text = str::from_utf8(cursor.take_long(length)?);
                // Python 2 strings may be bytes.
                text.map_or(Value::Other, Value::String)
            }
            BINBYTES | SHORT_BINBYTES | BINBYTES8 | BYTEARRAY8 => {
                let length = length_prefix(cursor, opcode)?;
                cursor.take_long(length)?;
                Value::Other
            }
            _ => {
                let offset = cursor.position() - 1;
                return Err(match UNSUPPORTED.contains(&opcode) {
                    true => ParseError::Unsupported(format!(
                        "its pickle has the opcode {opcode:#04x} at byte {offset}, which state dicts do not need \
                         and which is not supported"
                    )),
                    false => format!(
                        "its pickle has {opcode:#04x} at byte {offset}, which is not an opcode"
                    )
                    .into(),
                });
            }
        })
    }
}

/// The length prefix of strings, bytes and long integers.
fn length_prefix(cursor: &mut Cursor<'_>, opcode: u8) -> Result<u64, String> {
    Ok(match opcode {
        LONG1 | SHORT_BINUNICODE | SHORT_BINSTRING | SHORT_BINBYTES => cursor.u8()?.into(),
        BINUNICODE8 | BINBYTES8 | BYTEARRAY8 => cursor.u64()?,
        _ => cursor.u32()?.into(),
    })
}

/// A little-endian two's-complement integer of any length.
fn long(bytes: &[u8]) -> Value<'_> {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut extended = [if negative { 0xff } else { 0 }; 8];
    match extended.get_mut(..bytes.len()) {
        Some(low) => {
            low.copy_from_slice(bytes);
            Value::Integer(i64::from_le_bytes(extended))
        }
        None => Value::Large(bytes),
    }
}
