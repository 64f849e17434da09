//! The subset of Python's pickle machine that state dicts need. It calls nothing.
//!
//! Each opcode takes at least a byte and makes at most one value, so time and memory are bounded by the pickle's length.
//! Nothing recurses: nested values refer to each other by index into a heap.

mod call;
mod literal;

use std::collections::HashMap;

use crate::ParseError;
use crate::cursor::Cursor;
use crate::pickle::opcode::*;
use crate::pickle::value::{Heap, Object, Value};

/// The most opcodes of a pickle, enough for 80,000 tensors. In the legacy format the end of a pickle is known only after running
/// it, and a file of many gigabytes must not justify a stack of many gigabytes.
const MAX_OPCODES: usize = 1 << 21;

/// The result of a pickle.
#[derive(Debug)]
pub(super) struct Unpickled<'a> {
    /// The unpickled object.
    pub(super) top: Value<'a>,
    /// The values it refers to.
    pub(super) heap: Heap<'a>,
    /// The offset of the end of the pickle.
    pub(super) end: usize,
}

/// Unpickles from offset `start`.
pub(super) fn run(bytes: &[u8], start: usize) -> Result<Unpickled<'_>, ParseError> {
    let mut unpickler = Unpickler {
        cursor: Cursor::at(bytes, start),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        heap: Heap::default(),
        opcodes_left: bytes.len().saturating_sub(start).min(MAX_OPCODES),
    };
    let opcode = unpickler.cursor.u8()?;
    let version = unpickler.cursor.u8()?;
    if opcode != PROTO || !(2..=5).contains(&version) {
        return Err(format!("no pickle of protocols 2 to 5 starts at byte {start}").into());
    }
    loop {
        unpickler.count(1)?;
        let opcode = unpickler.cursor.u8()?;
        if opcode == STOP {
            break;
        }
        unpickler.step(opcode)?;
    }
    Ok(Unpickled {
        top: unpickler.pop()?,
        heap: unpickler.heap,
        end: unpickler.cursor.position(),
    })
}

struct Unpickler<'a> {
    cursor: Cursor<'a>,
    stack: Vec<Value<'a>>,
    /// Heights of the stack at each `MARK`.
    marks: Vec<usize>,
    /// Memoized values. A map, so that a large index from the file allocates nothing.
    memo: HashMap<u32, Value<'a>>,
    heap: Heap<'a>,
    opcodes_left: usize,
}

impl<'a> Unpickler<'a> {
    /// Counts opcodes towards [`MAX_OPCODES`].
    fn count(&mut self, opcodes: usize) -> Result<(), ParseError> {
        let left = self.opcodes_left.checked_sub(opcodes);
        self.opcodes_left = left.ok_or_else(|| {
            ParseError::unsupported(
                "its pickle is too long for a state dict, and nothing else is supported",
            )
        })?;
        Ok(())
    }

    fn step(&mut self, opcode: u8) -> Result<(), ParseError> {
        match opcode {
            // Frame lengths only matter to streaming readers.
            FRAME => {
                self.cursor.u64()?;
            }
            MARK => self.marks.push(self.stack.len()),
            BINPUT | LONG_BINPUT | MEMOIZE => self.memo_put(opcode)?,
            BINGET | LONG_BINGET => self.memo_get(opcode)?,
            EMPTY_TUPLE => self.tuple(0)?,
            TUPLE1 => self.tuple(1)?,
            TUPLE2 => self.tuple(2)?,
            TUPLE3 => self.tuple(3)?,
            TUPLE => {
                let values = self.pop_mark()?;
                self.add(Object::Tuple(values));
            }
            EMPTY_LIST => self.add(Object::List(Vec::new())),
            APPEND => {
                let value = self.pop()?;
                self.append(vec![value])?;
            }
            APPENDS => {
                let values = self.pop_mark()?;
                self.append(values)?;
            }
            EMPTY_DICT => self.add(Object::Dict(Vec::new())),
            SETITEM => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            SETITEMS => {
                let values = self.pop_mark()?;
                self.set(&values)?;
            }
            GLOBAL | STACK_GLOBAL => self.name(opcode)?,
            BINPERSID => self.persistent_load()?,
            REDUCE => self.reduce()?,
            BUILD => self.build()?,
            _ => {
                let value = self.literal(opcode)?;
                self.stack.push(value);
            }
        }
        Ok(())
    }

    fn add(&mut self, object: Object<'a>) {
        let value = self.heap.add(object);
        self.stack.push(value);
    }

    /// Pops a value above the last mark.
    fn pop(&mut self) -> Result<Value<'a>, String> {
        let below = self.marks.last().copied().unwrap_or(0);
        let value = if self.stack.len() > below {
            self.stack.pop()
        } else {
            None
        };
        value.ok_or_else(|| "its pickle pops an empty stack".to_owned())
    }

    /// The value on top of the stack.
    fn peek(&mut self) -> Result<Value<'a>, String> {
        let value = self.pop()?;
        self.stack.push(value);
        Ok(value)
    }

    /// Pops the last mark and all values above it.
    fn pop_mark(&mut self) -> Result<Vec<Value<'a>>, String> {
        let start = self.marks.pop();
        let start = start.ok_or("its pickle pops a mark that is not there")?;
        Ok(self.stack.drain(start..).collect())
    }

    fn memo_put(&mut self, opcode: u8) -> Result<(), String> {
        let number = match opcode {
            BINPUT => self.cursor.u8()?.into(),
            LONG_BINPUT => self.cursor.u32()?,
            // At most `MAX_OPCODES`, which a u32 holds.
            _ => self.memo.len() as u32,
        };
        let value = self.peek()?;
        self.memo.insert(number, value);
        Ok(())
    }

    fn memo_get(&mut self, opcode: u8) -> Result<(), String> {
        let number = match opcode {
            BINGET => self.cursor.u8()?.into(),
            _ => self.cursor.u32()?,
        };
        let value = self.memo.get(&number);
        let value = value.ok_or_else(|| format!("its pickle has no memo {number}"))?;
        self.stack.push(*value);
        Ok(())
    }

    fn tuple(&mut self, length: usize) -> Result<(), String> {
        let mut values = Vec::with_capacity(length);
        for _ in 0..length {
            values.push(self.pop()?);
        }
        values.reverse();
        self.add(Object::Tuple(values));
        Ok(())
    }

    fn append(&mut self, values: Vec<Value<'a>>) -> Result<(), String> {
        let list = self.peek()?;
        match self.heap.object_mut(list) {
            Some(Object::List(list)) => list.extend(values),
            _ => return Err("its pickle appends to something other than a list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, keys_and_values: &[Value<'a>]) -> Result<(), String> {
        let dictionary = self.peek()?;
        let Some(Object::Dict(pairs)) = self.heap.object_mut(dictionary) else {
            return Err("its pickle sets keys of something other than a dict".to_owned());
        };
        let (new, rest) = keys_and_values.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("its pickle sets a key without a value".to_owned());
        }
        pairs.extend(new.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }
}
