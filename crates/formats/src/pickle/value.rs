//! Unpickled values: plain data.

use crate::DType;
use crate::pickle::global::Global;

/// A value. It owns nothing, so copies are cheap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    None,
    Integer(i64),
    /// A little-endian integer of more than eight bytes.
    Large(&'a [u8]),
    String(&'a str),
    /// A function or class that the pickle references.
    Global(Global),
    /// A float, bool or bytes, which no tensor depends on.
    Other,
    /// A heap object.
    Object(ObjectId),
}

/// An index into the heap. Objects refer to each other by index, so cycles and long chains are harmless: nothing here
/// follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectId(usize);

/// A compound value.
#[derive(Debug)]
pub(super) enum Object<'a> {
    Tuple(Vec<Value<'a>>),
    List(Vec<Value<'a>>),
    Dict(Vec<(Value<'a>, Value<'a>)>),
    Storage(Storage<'a>),
    Tensor(Tensor),
}

/// A contiguous array of elements in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a str,
    pub(super) dtype: DType,
    pub(super) count: usize,
}

/// A view of a storage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    /// The arguments of the rebuild function: storage, offset, shape, strides, and more. Validated when the tensor is located.
    pub(super) arguments: ObjectId,
    /// The dtype, if it is not that of the storage.
    pub(super) dtype: Option<DType>,
}

/// All compound values.
#[derive(Debug, Default)]
pub(super) struct Heap<'a>(Vec<Object<'a>>);

impl<'a> Heap<'a> {
    pub(super) fn add(&mut self, object: Object<'a>) -> Value<'a> {
        self.0.push(object);
        Value::Object(ObjectId(self.0.len() - 1))
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Object<'a>> {
        self.0.iter()
    }

    fn object(&self, value: Value<'a>) -> Option<&Object<'a>> {
        match value {
            Value::Object(object) => self.0.get(object.0),
            _ => None,
        }
    }

    pub(super) fn object_mut(&mut self, value: Value<'a>) -> Option<&mut Object<'a>> {
        match value {
            Value::Object(object) => self.0.get_mut(object.0),
            _ => None,
        }
    }

    pub(super) fn tuple(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match self.object(value)? {
            Object::Tuple(values) => Some(values),
            _ => None,
        }
    }

    pub(super) fn list(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match self.object(value)? {
            Object::List(values) => Some(values),
            _ => None,
        }
    }

    /// The items of a tuple or a list.
    pub(super) fn sequence(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        self.tuple(value).or_else(|| self.list(value))
    }

    pub(super) fn dict(&self, value: Value<'a>) -> Option<&[(Value<'a>, Value<'a>)]> {
        match self.object(value)? {
            Object::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub(super) fn storage(&self, value: Value<'a>) -> Option<Storage<'a>> {
        match self.object(value)? {
            Object::Storage(storage) => Some(*storage),
            _ => None,
        }
    }

    pub(super) fn tensor(&self, value: Value<'a>) -> Option<Tensor> {
        match self.object(value)? {
            Object::Tensor(tensor) => Some(*tensor),
            _ => None,
        }
    }
}
