//! The calls of a pickle, recorded and never executed.

use crate::ParseError;
use crate::error_text::excerpt;
use crate::pickle::global::{Global, find_class};
use crate::pickle::opcode::GLOBAL;
use crate::pickle::unpickler::Unpickler;
use crate::pickle::value::{Object, Storage, Tensor, Value};

/// The longest key of a storage; PyTorch writes numbers.
const MAX_KEY_LENGTH: usize = 64;

impl<'a> Unpickler<'a> {
    /// Pushes a global, if it is allowed.
    pub(super) fn name(&mut self, opcode: u8) -> Result<(), ParseError> {
        let (module, name) = if opcode == GLOBAL {
            let lines = (self.cursor.line()?, self.cursor.line()?);
            (str::from_utf8(lines.0).ok(), str::from_utf8(lines.1).ok())
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            (text(module), text(name))
        };
        let (Some(module), Some(name)) = (module, name) else {
            return Err("its pickle names a global by something other than a string".into());
        };
        self.stack.push(Value::Global(find_class(module, name)?));
        Ok(())
    }

    /// Storages are persistent ids: tuples `("storage", class, key, device, count)`, in the legacy format followed by a view of
    /// another storage.
    pub(super) fn persistent_load(&mut self) -> Result<(), ParseError> {
        let id = self.pop()?;
        let parts = self.heap.tuple(id).unwrap_or_default();
        let parts = parts.strip_suffix(&[Value::None]).unwrap_or(parts);
        let [
            Value::String("storage"),
            Value::Global(Global::Storage(dtype)),
            Value::String(key),
            _,
            Value::Integer(count),
            view @ ..,
        ] = parts
        else {
            return Err("its pickle has a persistent id that is not a storage".into());
        };
        if !view.is_empty() {
            return Err(ParseError::unsupported(
                "it has a storage that is a view of another one, which is not supported; \
                 save it with a newer PyTorch",
            ));
        }
        let storage = Storage {
            key,
            dtype: *dtype,
            count: usize::try_from(*count).map_err(|_| format!("a storage of {count} elements"))?,
        };
        if storage.key.len() > MAX_KEY_LENGTH {
            return Err(format!(
                "a storage has the key {}, which is not a number",
                excerpt(storage.key)
            )
            .into());
        }
        self.add(Object::Storage(storage));
        Ok(())
    }

    /// Records the result of a call.
    pub(super) fn reduce(&mut self) -> Result<(), ParseError> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Object(object), Some(values)) = (arguments, self.heap.tuple(arguments)) else {
            return Err("its pickle calls a function with something other than a tuple".into());
        };
        let result = match (function, values) {
            (Value::Global(Global::OrderedDict), []) => Object::Dict(Vec::new()),
            (Value::Global(Global::OrderedDict), [list]) => {
                let list = *list;
                self.dict_from_pairs(list)?
            }
            (Value::Global(Global::Size), [sizes]) if self.heap.tuple(*sizes).is_some() => {
                self.stack.push(*sizes);
                return Ok(());
            }
            // A parameter is its tensor; `requires_grad` does not matter here.
            (Value::Global(Global::RebuildParameter), [tensor, ..])
                if self.heap.tensor(*tensor).is_some() =>
            {
                self.stack.push(*tensor);
                return Ok(());
            }
            (Value::Global(Global::RebuildTensorV2), [_, _, _, _, _, _, more @ ..]) => {
                self.refuse_metadata(more)?;
                Object::Tensor(Tensor {
                    arguments: object,
                    dtype: None,
                })
            }
            (
                Value::Global(Global::RebuildTensorV3),
                [
                    _,
                    _,
                    _,
                    _,
                    _,
                    _,
                    Value::Global(Global::DType(dtype)),
                    more @ ..,
                ],
            ) => {
                self.refuse_metadata(more)?;
                Object::Tensor(Tensor {
                    arguments: object,
                    dtype: Some(*dtype),
                })
            }
            _ => {
                return Err("its pickle calls a function with other arguments than PyTorch".into());
            }
        };
        self.add(result);
        Ok(())
    }

    /// An `OrderedDict` from a list of pairs, as Python 2 pickled it.
    fn dict_from_pairs(&mut self, list: Value<'a>) -> Result<Object<'a>, ParseError> {
        let length = self.heap.list(list).map_or(0, <[_]>::len);
        // Otherwise every following opcode could copy the same list.
        self.count(length)?;
        let pairs = self.heap.list(list).and_then(|list| {
            let pairs = list.iter().map(|pair| match self.heap.sequence(*pair) {
                Some([key, value]) => Some((*key, *value)),
                _ => None,
            });
            pairs.collect::<Option<Vec<_>>>()
        });
        let pairs = pairs.ok_or("its pickle makes a dict of something other than pairs")?;
        Ok(Object::Dict(pairs))
    }

    /// Metadata marks a lazy negation or conjugate; ignoring it would silently change values.
    fn refuse_metadata(&self, more: &[Value<'a>]) -> Result<(), ParseError> {
        match more {
            [] | [Value::None] => Ok(()),
            [metadata] if self.heap.dict(*metadata).is_some_and(<[_]>::is_empty) => Ok(()),
            _ => Err(ParseError::unsupported(
                "a tensor has metadata (a lazy negation or conjugate), which is not supported",
            )),
        }
    }

    /// Sets attributes. Those of dicts (`_metadata`: module versions) do not affect tensors.
    pub(super) fn build(&mut self) -> Result<(), ParseError> {
        self.pop()?;
        let target = self.peek()?;
        if self.heap.dict(target).is_none() {
            return Err(ParseError::unsupported(
                "its pickle sets attributes of something other than a dict, which is not supported",
            ));
        }
        Ok(())
    }
}

fn text<'a>(value: Value<'a>) -> Option<&'a str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}
