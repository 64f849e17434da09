//! What a pickle would have called: noted, never done.

use crate::pickle::global::{Global, permitted};
use crate::pickle::machine::Machine;
use crate::pickle::opcode::GLOBAL;
use crate::pickle::value::{Content, Storage, Tensor, Value};
use crate::shown::shown;

/// The longest key of a storage; PyTorch's are numbers.
const LONGEST_KEY: usize = 64;

impl<'a> Machine<'a> {
    /// Pushes what a name stands for, if it may be named at all.
    pub(super) fn name(&mut self, opcode: u8) -> Result<(), String> {
        let (module, name) = if opcode == GLOBAL {
            let lines = (self.cursor.line()?, self.cursor.line()?);
            (str::from_utf8(lines.0).ok(), str::from_utf8(lines.1).ok())
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            (text(module), text(name))
        };
        let (Some(module), Some(name)) = (module, name) else {
            return Err("its pickle names a function by what is no text".to_owned());
        };
        self.stack.push(Value::Global(permitted(module, name)?));
        Ok(())
    }

    /// Storages are not in the pickle: it has a tuple in their place, `("storage", kind, key, device, count)`, before PyTorch
    /// 1.6 with a view of another storage at its end.
    pub(super) fn persistent(&mut self) -> Result<(), String> {
        let id = self.pop()?;
        let parts = self.heap.tuple(id).unwrap_or_default();
        let parts = parts.strip_suffix(&[Value::None]).unwrap_or(parts);
        let [
            Value::Text("storage"),
            Value::Global(Global::Storage(kind)),
            Value::Text(key),
            _,
            Value::Integer(count),
        ] = parts
        else {
            return Err(
                "its pickle refers to something outside that is no storage, or a view of one"
                    .to_owned(),
            );
        };
        let storage = Storage {
            key,
            kind: *kind,
            count: usize::try_from(*count).map_err(|_| format!("a storage of {count} numbers"))?,
        };
        if storage.key.len() > LONGEST_KEY {
            return Err(format!(
                "a storage has the key {}, which is no number",
                shown(storage.key)
            ));
        }
        self.add(Content::Storage(storage));
        Ok(())
    }

    /// Notes what a call would have built.
    pub(super) fn reduce(&mut self) -> Result<(), String> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Object(object), Some(values)) = (arguments, self.heap.tuple(arguments)) else {
            return Err("its pickle calls a function with what is no tuple".to_owned());
        };
        let result = match (function, values) {
            (Value::Global(Global::OrderedDict), []) => Content::Dictionary(Vec::new()),
            (Value::Global(Global::OrderedDict), [list]) => {
                let list = *list;
                self.dictionary_of(list)?
            }
            (Value::Global(Global::Size), [sizes]) if self.heap.tuple(*sizes).is_some() => {
                self.stack.push(*sizes);
                return Ok(());
            }
            // A parameter is its tensor; that it is trained does not matter here.
            (Value::Global(Global::RebuildParameter), [tensor, ..])
                if self.heap.tensor(*tensor).is_some() =>
            {
                self.stack.push(*tensor);
                return Ok(());
            }
            (Value::Global(Global::RebuildTensor), [_, _, _, _, _, _, more @ ..]) => {
                self.without_metadata(more)?;
                Content::Tensor(Tensor {
                    arguments: object,
                    kind: None,
                })
            }
            (
                Value::Global(Global::RebuildTensorOfKind),
                [
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    Value::Global(Global::Kind(kind)),
                    more @ ..,
                ],
            ) => {
                self.without_metadata(more)?;
                Content::Tensor(Tensor {
                    arguments: object,
                    kind: Some(*kind),
                })
            }
            _ => {
                return Err(
                    "its pickle calls a function with other arguments than PyTorch".to_owned(),
                );
            }
        };
        self.add(result);
        Ok(())
    }

    /// A dictionary from a list of keys and values, as Python 2 wrote it.
    fn dictionary_of(&mut self, list: Value<'a>) -> Result<Content<'a>, String> {
        let length = self.heap.list(list).map_or(0, <[_]>::len);
        // One list could be copied by every operation that follows.
        self.count(length)?;
        let pairs = self.heap.list(list).and_then(|list| {
            let pairs = list.iter().map(|pair| match self.heap.sequence(*pair) {
                Some([key, value]) => Some((*key, *value)),
                _ => None,
            });
            pairs.collect::<Option<Vec<_>>>()
        });
        let pairs = pairs.ok_or("its pickle makes a dictionary of what are no keys and values")?;
        Ok(Content::Dictionary(pairs))
    }

    /// Metadata says that the numbers mean their negatives or conjugates, which no one would see.
    fn without_metadata(&self, more: &[Value<'a>]) -> Result<(), String> {
        match more {
            [] | [Value::None] => Ok(()),
            [metadata] if self.heap.dictionary(*metadata).is_some_and(<[_]>::is_empty) => Ok(()),
            _ => Err("a tensor has metadata, which is not supported".to_owned()),
        }
    }

    /// Sets attributes. Those of dictionaries (`_metadata`: versions of modules) say nothing about tensors.
    pub(super) fn build(&mut self) -> Result<(), String> {
        self.pop()?;
        let target = self.peek()?;
        if self.heap.dictionary(target).is_none() {
            return Err("its pickle sets attributes of what is no dictionary".to_owned());
        }
        Ok(())
    }
}

fn text<'a>(value: Value<'a>) -> Option<&'a str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
