//! What a pickle builds: plain data.

use crate::Kind;
use crate::pickle::global::Global;

/// A value. It owns nothing, so that a pickle that names one value a thousand times costs a thousand words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    None,
    Integer(i64),
    /// A whole number of more than eight bytes, the lowest first.
    Large(&'a [u8]),
    Text(&'a str),
    /// A function or class.
    Global(Global),
    /// A float, a truth or bytes: nothing of a tensor depends on them.
    Other,
    /// Something of the heap.
    Object(Object),
}

/// The number of something in the heap. Objects hold each other by number: a circle of them is harmless, and so is a chain a
/// million long, as nothing here follows one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object(usize);

/// A value with parts.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Tuple(Vec<Value<'a>>),
    List(Vec<Value<'a>>),
    Dictionary(Vec<(Value<'a>, Value<'a>)>),
    Storage(Storage<'a>),
    Tensor(Tensor),
}

/// Numbers that lie one after the other in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a str,
    pub(super) kind: Kind,
    pub(super) count: usize,
}

/// A window onto a storage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    /// The tuple that a function of PyTorch's was to be called with: storage, offset, sizes, strides, and more. Its parts are
    /// looked at when the tensor is known to be asked for.
    pub(super) arguments: Object,
    /// What its numbers are, where the storage does not say it.
    pub(super) kind: Option<Kind>,
}

/// All the values with parts.
#[derive(Debug, Default)]
pub(super) struct Heap<'a>(Vec<Content<'a>>);

impl<'a> Heap<'a> {
    pub(super) fn add(&mut self, content: Content<'a>) -> Value<'a> {
        self.0.push(content);
        Value::Object(Object(self.0.len() - 1))
    }

    pub(super) fn contents(&self) -> impl Iterator<Item = &Content<'a>> {
        self.0.iter()
    }

    fn content(&self, value: Value<'a>) -> Option<&Content<'a>> {
        match value {
            Value::Object(object) => self.0.get(object.0),
            _ => None,
        }
    }

    pub(super) fn content_mut(&mut self, value: Value<'a>) -> Option<&mut Content<'a>> {
        match value {
            Value::Object(object) => self.0.get_mut(object.0),
            _ => None,
        }
    }

    pub(super) fn tuple(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match self.content(value)? {
            Content::Tuple(values) => Some(values),
            _ => None,
        }
    }

    pub(super) fn list(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match self.content(value)? {
            Content::List(values) => Some(values),
            _ => None,
        }
    }

    /// The parts of a tuple or a list.
    pub(super) fn sequence(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        self.tuple(value).or_else(|| self.list(value))
    }

    pub(super) fn dictionary(&self, value: Value<'a>) -> Option<&[(Value<'a>, Value<'a>)]> {
        match self.content(value)? {
            Content::Dictionary(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub(super) fn storage(&self, value: Value<'a>) -> Option<Storage<'a>> {
        match self.content(value)? {
            Content::Storage(storage) => Some(*storage),
            _ => None,
        }
    }

    pub(super) fn tensor(&self, value: Value<'a>) -> Option<Tensor> {
        match self.content(value)? {
            Content::Tensor(tensor) => Some(*tensor),
            _ => None,
        }
    }
}
