//! The tensors of one file or of several that belong together.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::shown::shown;
use crate::{Entry, FileError, Kind, Mapped};

/// Tensors by name, in mapped files.
#[derive(Debug, Default)]
pub struct TensorSet {
    files: Vec<Mapped>,
    /// Each with the number of its file.
    entries: BTreeMap<String, (usize, Entry)>,
}

impl TensorSet {
    /// Adds the tensors of a file; the error names one that is there already.
    pub fn add(
        &mut self,
        file: Mapped,
        entries: impl IntoIterator<Item = (String, Entry)>,
    ) -> Result<(), FileError> {
        let number = self.files.len();
        for (name, entry) in entries {
            if self.entries.contains_key(&name) {
                return Err(file.broken(format!("tensor {} is there a second time", shown(&name))));
            }
            self.entries.insert(name, (number, entry));
        }
        self.files.push(file);
        Ok(())
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// What a tensor is, if it is there.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(|(_, entry)| entry)
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|entry| entry.shape.as_slice())
    }

    /// The kind of a tensor, if it is there.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.entry(name).map(|entry| entry.kind)
    }

    /// The bytes of a tensor as they lie in the file.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let (file, entry) = self.entries.get(name)?;
        self.files[*file].get(entry.bytes.clone())
    }

    /// A tensor as f32, its rows following each other; none where it is missing or holds whole numbers.
    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        let (file, entry) = self.entries.get(name)?;
        let floats = in_order(entry, entry.kind.floats(self.bytes(name)?)?);
        // A model is read once, tensor by tensor; the file's bytes need not stay beside the numbers made of them.
        self.files[*file].release(entry.bytes.clone());
        Some(floats)
    }

    /// The bytes of a tensor of f32 whose rows follow each other, without a copy; none where they would have to be changed to
    /// be numbers here.
    pub fn shared_floats(&self, name: &str) -> Option<Bytes> {
        let (file, entry) = self.entries.get(name)?;
        let plain =
            entry.kind == Kind::F32 && entry.strides.is_none() && cfg!(target_endian = "little");
        let bytes = self.files[*file].share(entry.bytes.clone())?;
        let aligned = bytes.as_ptr().align_offset(align_of::<f32>()) == 0;
        (plain && aligned).then_some(bytes)
    }

    /// A tensor as i64, its rows following each other; none where it is missing or holds floats.
    pub fn integers(&self, name: &str) -> Option<Vec<i64>> {
        let entry = self.entry(name)?;
        Some(in_order(entry, entry.kind.integers(self.bytes(name)?)?))
    }
}

/// Numbers that lie apart, put in the order of the shape.
fn in_order<T: Copy>(entry: &Entry, numbers: Vec<T>) -> Vec<T> {
    let Some(strides) = &entry.strides else {
        return numbers;
    };
    let mut places = vec![0usize];
    for (size, stride) in entry.shape.iter().zip(strides) {
        places = places
            .iter()
            .flat_map(|place| (0..*size).map(move |index| place + index * stride))
            .collect();
    }
    places.into_iter().map(|place| numbers[place]).collect()
}
