//! Values that stand in a pickle themselves: numbers, text, bytes.

use crate::cursor::Cursor;
use crate::pickle::machine::Machine;
use crate::pickle::opcode::*;
use crate::pickle::value::Value;

impl<'a> Machine<'a> {
    /// The value of an operation that does nothing but push one.
    pub(super) fn literal(&mut self, opcode: u8) -> Result<Value<'a>, String> {
        let cursor = &mut self.cursor;
        Ok(match opcode {
            NONE => Value::None,
            NEWTRUE | NEWFALSE => Value::Other,
            BININT => Value::Integer(cursor.i32()?.into()),
            BININT1 => Value::Integer(cursor.u8()?.into()),
            BININT2 => Value::Integer(cursor.u16()?.into()),
            LONG1 | LONG4 => {
                let length = counted(cursor, opcode)?;
                long(cursor.take_long(length)?)
            }
            BINFLOAT => {
                cursor.take(8)?;
                Value::Other
            }
            BINUNICODE | SHORT_BINUNICODE | BINUNICODE8 => {
                let length = counted(cursor, opcode)?;
                let text = str::from_utf8(cursor.take_long(length)?);
                Value::Text(text.map_err(|_| "a text of its pickle is no UTF-8")?)
            }
            BINSTRING | SHORT_BINSTRING => {
                let length = counted(cursor, opcode)?;
                let text = str::from_utf8(cursor.take_long(length)?);
                // Python 2 kept bytes and text apart no better.
                text.map_or(Value::Other, Value::Text)
            }
            BINBYTES | SHORT_BINBYTES | BINBYTES8 | BYTEARRAY8 => {
                let length = counted(cursor, opcode)?;
                cursor.take_long(length)?;
                Value::Other
            }
            _ => {
                let place = cursor.position() - 1;
                return Err(format!(
                    "its pickle has the operation {opcode:#04x} at byte {place}, which dictionaries of tensors do not need"
                ));
            }
        })
    }
}

/// The length that stands before text, bytes and long numbers.
fn counted(cursor: &mut Cursor<'_>, opcode: u8) -> Result<u64, String> {
    Ok(match opcode {
        LONG1 | SHORT_BINUNICODE | SHORT_BINSTRING | SHORT_BINBYTES => cursor.u8()?.into(),
        BINUNICODE8 | BINBYTES8 | BYTEARRAY8 => cursor.u64()?,
        _ => cursor.u32()?.into(),
    })
}

/// A whole number of any length, the lowest byte first; the highest bit is its sign.
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
