//! The tensors of one file or of all shards of a checkpoint.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::error_text::excerpt;
use crate::{DType, FileError, MappedFile, TensorInfo};

/// Tensors by name, in memory-mapped files.
#[derive(Debug, Default)]
pub struct TensorSet {
    files: Vec<MappedFile>,
    /// By name, with the index of the file.
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

impl TensorSet {
    /// Adds the tensors of a file; the error names a duplicate.
    pub fn add(
        &mut self,
        file: MappedFile,
        tensors: impl IntoIterator<Item = (String, TensorInfo)>,
    ) -> Result<(), FileError> {
        let file_index = self.files.len();
        for (name, info) in tensors {
            if self.tensors.contains_key(&name) {
                return Err(file.broken(format!("tensor {} is duplicated", excerpt(&name))));
            }
            self.tensors.insert(name, (file_index, info));
        }
        self.files.push(file);
        Ok(())
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Dtype, shape and location of a tensor, if it exists.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|(_, info)| info)
    }

    /// The shape of a tensor, if it exists.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.info(name).map(|info| info.shape.as_slice())
    }

    /// The dtype of a tensor, if it exists.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.info(name).map(|info| info.dtype)
    }

    /// The raw bytes of a tensor.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let (file, info) = self.tensors.get(name)?;
        self.files[*file].get(info.bytes.clone())
    }

    /// A float tensor as contiguous f32; `None` if it is missing or of an integer type.
    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        let (file, info) = self.tensors.get(name)?;
        let floats = gather(info, info.dtype.floats(self.bytes(name)?)?);
        // A model is read once, tensor by tensor, so the pages need not stay in memory beside the converted values.
        self.files[*file].evict(info.bytes.clone());
        Some(floats)
    }

    /// The bytes of a contiguous f32 tensor without a copy; `None` if it needs conversion, gathering or alignment.
    pub fn shared_floats(&self, name: &str) -> Option<Bytes> {
        let (file, info) = self.tensors.get(name)?;
        let native =
            info.dtype == DType::F32 && info.strides.is_none() && cfg!(target_endian = "little");
        let bytes = self.files[*file].share(info.bytes.clone())?;
        let aligned = bytes.as_ptr().align_offset(align_of::<f32>()) == 0;
        (native && aligned).then_some(bytes)
    }

    /// An integer tensor as contiguous i64; `None` if it is missing or of a float type.
    pub fn integers(&self, name: &str) -> Option<Vec<i64>> {
        let info = self.info(name)?;
        Some(gather(info, info.dtype.integers(self.bytes(name)?)?))
    }
}

/// Gathers a strided tensor into contiguous order.
fn gather<T: Copy>(info: &TensorInfo, elements: Vec<T>) -> Vec<T> {
    let Some(strides) = &info.strides else {
        return elements;
    };
    let mut offsets = vec![0usize];
    for (size, stride) in info.shape.iter().zip(strides) {
        offsets = offsets
            .iter()
            .flat_map(|offset| (0..*size).map(move |index| offset + index * stride))
            .collect();
    }
    offsets.into_iter().map(|offset| elements[offset]).collect()
}
