//! Python's pickle machine, as far as dictionaries of tensors need it. It calls nothing.
//!
//! Each operation takes at least a byte and makes at most one value, so time and memory are bounded by the pickle's length.
//! There is no recursion: nesting costs numbers on a heap.

mod call;
mod literal;

use std::collections::HashMap;

use crate::cursor::Cursor;
use crate::pickle::opcode::*;
use crate::pickle::value::{Content, Heap, Value};

/// The most operations of a pickle, enough for 80,000 tensors. Before PyTorch 1.6 a pickle's end is not known before it is
/// run, and a file of many gigabytes does not justify a stack of many gigabytes.
const MOST_OPERATIONS: usize = 1 << 21;

/// What a pickle built.
#[derive(Debug)]
pub(super) struct Built<'a> {
    /// The object it is about.
    pub(super) top: Value<'a>,
    /// What that consists of.
    pub(super) heap: Heap<'a>,
    /// Where the pickle ends.
    pub(super) end: usize,
}

/// Runs the pickle that starts at a byte.
pub(super) fn run(bytes: &[u8], start: usize) -> Result<Built<'_>, String> {
    let mut machine = Machine {
        cursor: Cursor::at(bytes, start),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        heap: Heap::default(),
        operations_left: bytes.len().saturating_sub(start).min(MOST_OPERATIONS),
    };
    let opcode = machine.cursor.u8()?;
    let version = machine.cursor.u8()?;
    if opcode != PROTO || !(2..=5).contains(&version) {
        return Err(format!(
            "no pickle of versions 2 to 5 starts at byte {start}"
        ));
    }
    loop {
        machine.count(1)?;
        let opcode = machine.cursor.u8()?;
        if opcode == STOP {
            break;
        }
        machine.step(opcode)?;
    }
    Ok(Built {
        top: machine.pop()?,
        heap: machine.heap,
        end: machine.cursor.position(),
    })
}

struct Machine<'a> {
    cursor: Cursor<'a>,
    stack: Vec<Value<'a>>,
    /// How high the stack was when a group of values began.
    marks: Vec<usize>,
    /// Values by number, to be pushed again. A map: a number of the file is no reason for memory.
    memo: HashMap<u32, Value<'a>>,
    heap: Heap<'a>,
    operations_left: usize,
}

impl<'a> Machine<'a> {
    fn count(&mut self, operations: usize) -> Result<(), String> {
        let left = self.operations_left.checked_sub(operations);
        self.operations_left = left.ok_or("its pickle is too long to be one of tensors")?;
        Ok(())
    }

    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            // The length of a frame helps who reads from a stream.
            FRAME => {
                self.cursor.u64()?;
            }
            MARK => self.marks.push(self.stack.len()),
            BINPUT | LONG_BINPUT | MEMOIZE => self.remember(opcode)?,
            BINGET | LONG_BINGET => self.recall(opcode)?,
            EMPTY_TUPLE => self.tuple(0)?,
            TUPLE1 => self.tuple(1)?,
            TUPLE2 => self.tuple(2)?,
            TUPLE3 => self.tuple(3)?,
            TUPLE => {
                let values = self.pop_group()?;
                self.add(Content::Tuple(values));
            }
            EMPTY_LIST => self.add(Content::List(Vec::new())),
            APPEND => {
                let value = self.pop()?;
                self.append(vec![value])?;
            }
            APPENDS => {
                let values = self.pop_group()?;
                self.append(values)?;
            }
            EMPTY_DICT => self.add(Content::Dictionary(Vec::new())),
            SETITEM => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            SETITEMS => {
                let values = self.pop_group()?;
                self.set(&values)?;
            }
            GLOBAL | STACK_GLOBAL => self.name(opcode)?,
            BINPERSID => self.persistent()?,
            REDUCE => self.reduce()?,
            BUILD => self.build()?,
            _ => {
                let value = self.literal(opcode)?;
                self.stack.push(value);
            }
        }
        Ok(())
    }

    fn add(&mut self, content: Content<'a>) {
        let value = self.heap.add(content);
        self.stack.push(value);
    }

    /// Takes the last value of the present group.
    fn pop(&mut self) -> Result<Value<'a>, String> {
        let below = self.marks.last().copied().unwrap_or(0);
        let value = if self.stack.len() > below {
            self.stack.pop()
        } else {
            None
        };
        value.ok_or_else(|| "its pickle takes a value where there is none".to_owned())
    }

    /// The last value of the present group, which stays.
    fn peek(&mut self) -> Result<Value<'a>, String> {
        let value = self.pop()?;
        self.stack.push(value);
        Ok(value)
    }

    /// Takes all values since the last mark, and the mark.
    fn pop_group(&mut self) -> Result<Vec<Value<'a>>, String> {
        let start = self.marks.pop();
        let start = start.ok_or("its pickle ends a group of values that never began")?;
        Ok(self.stack.drain(start..).collect())
    }

    fn remember(&mut self, opcode: u8) -> Result<(), String> {
        let number = match opcode {
            BINPUT => self.cursor.u8()?.into(),
            LONG_BINPUT => self.cursor.u32()?,
            // At most `MOST_OPERATIONS`, which a u32 holds.
            _ => self.memo.len() as u32,
        };
        let value = self.peek()?;
        self.memo.insert(number, value);
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<(), String> {
        let number = match opcode {
            BINGET => self.cursor.u8()?.into(),
            _ => self.cursor.u32()?,
        };
        let value = self.memo.get(&number);
        let value = value.ok_or_else(|| format!("its pickle has no value number {number}"))?;
        self.stack.push(*value);
        Ok(())
    }

    fn tuple(&mut self, length: usize) -> Result<(), String> {
        let mut values = Vec::with_capacity(length);
        for _ in 0..length {
            values.push(self.pop()?);
        }
        values.reverse();
        self.add(Content::Tuple(values));
        Ok(())
    }

    fn append(&mut self, values: Vec<Value<'a>>) -> Result<(), String> {
        let list = self.peek()?;
        match self.heap.content_mut(list) {
            Some(Content::List(list)) => list.extend(values),
            _ => return Err("its pickle appends to what is no list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, keys_and_values: &[Value<'a>]) -> Result<(), String> {
        let dictionary = self.peek()?;
        let Some(Content::Dictionary(pairs)) = self.heap.content_mut(dictionary) else {
            return Err("its pickle sets keys of what is no dictionary".to_owned());
        };
        let (new, rest) = keys_and_values.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("its pickle sets a key without a value".to_owned());
        }
        pairs.extend(new.iter().map(|[key, value]| (*key, *value)));
        Ok(())
    }
}
