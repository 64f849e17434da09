//! safetensors files: reading any float type as f32, writing f32.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView};

use super::{CheckpointError, replace_file_with};

/// A safetensors file in memory.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
    header: Metadata,
    /// Where the tensors' bytes start.
    start: usize,
}

impl TensorFile {
    /// Reads a file and checks its header.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let bytes = std::fs::read(path).map_err(|source| CheckpointError::Io {
            path: path.to_owned(),
            source,
        })?;
        let broken = |problem: safetensors::SafeTensorError| CheckpointError::Broken {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        // Reading the header alone does not check that the bytes it promises are there; this does.
        SafeTensors::deserialize(&bytes).map_err(broken)?;
        let (header_size, header) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
            header,
            start: header_size + 8,
        })
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.header.tensors().into_keys().collect();
        names.sort();
        names
    }

    /// The free text of the header.
    pub fn metadata(&self) -> HashMap<String, String> {
        self.header.metadata().clone().unwrap_or_default()
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.info(name).map(|info| info.shape.as_slice())
    }

    /// What kind of numbers a tensor holds, if it is there: `F32`, `I64`.
    pub fn kind(&self, name: &str) -> Option<String> {
        self.header
            .info(name)
            .map(|info| format!("{:?}", info.dtype))
    }

    /// A tensor of floats as f32; the error says what else it is.
    pub fn floats(&self, name: &str) -> Result<Vec<f32>, CheckpointError> {
        let (kind, bytes) = self.raw(name)?;
        match kind {
            Dtype::F32 => Ok(convert(bytes, f32::from_le_bytes)),
            Dtype::F64 => Ok(convert(bytes, |b| f64::from_le_bytes(b) as f32)),
            Dtype::F16 => Ok(convert(bytes, |b| f16::from_le_bytes(b).to_f32())),
            Dtype::BF16 => Ok(convert(bytes, |b| bf16::from_le_bytes(b).to_f32())),
            other => Err(self.wrong(name, format!("is {other:?} where floats are needed"))),
        }
    }

    /// A tensor of whole numbers.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>, CheckpointError> {
        let (kind, bytes) = self.raw(name)?;
        match kind {
            Dtype::I64 => Ok(convert(bytes, i64::from_le_bytes)),
            Dtype::I32 => Ok(convert(bytes, |b| i32::from_le_bytes(b).into())),
            Dtype::U32 => Ok(convert(bytes, |b| u32::from_le_bytes(b).into())),
            Dtype::I16 => Ok(convert(bytes, |b| i16::from_le_bytes(b).into())),
            Dtype::U16 => Ok(convert(bytes, |b| u16::from_le_bytes(b).into())),
            Dtype::I8 => Ok(convert(bytes, |b| i8::from_le_bytes(b).into())),
            Dtype::U8 | Dtype::BOOL => Ok(convert(bytes, |b| u8::from_le_bytes(b).into())),
            Dtype::U64 => convert(bytes, u64::from_le_bytes)
                .into_iter()
                .map(i64::try_from)
                .collect::<Result<_, _>>()
                .map_err(|_| self.wrong(name, "holds a number above the largest i64".to_owned())),
            other => Err(self.wrong(name, format!("is {other:?} where whole numbers are needed"))),
        }
    }

    fn raw(&self, name: &str) -> Result<(Dtype, &[u8]), CheckpointError> {
        let info = self
            .header
            .info(name)
            .ok_or_else(|| self.wrong(name, "is missing".to_owned()))?;
        let (from, to) = info.data_offsets;
        Ok((info.dtype, &self.bytes[self.start + from..self.start + to]))
    }

    fn wrong(&self, name: &str, problem: String) -> CheckpointError {
        CheckpointError::Broken {
            path: self.path.clone(),
            problem: format!("tensor {} {problem}", name.escape_debug()),
        }
    }
}

fn convert<const N: usize, T>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    let chunks = bytes.chunks_exact(N);
    chunks
        .map(|chunk| from(chunk.try_into().expect("chunks have N bytes")))
        .collect()
}

/// Writes tensors as a safetensors file, whole or not at all. The bytes depend on nothing but the arguments.
pub fn write_tensors(
    path: &Path,
    tensors: BTreeMap<String, TensorData>,
    metadata: HashMap<String, String>,
) -> Result<(), CheckpointError> {
    let broken = |problem: String| CheckpointError::Broken {
        path: path.to_owned(),
        problem,
    };
    let mut views = Vec::with_capacity(tensors.len());
    for (name, data) in &tensors {
        let kind = match data.dtype() {
            burn::tensor::DType::F32 => Dtype::F32,
            burn::tensor::DType::I64 => Dtype::I64,
            other => return Err(broken(format!("tensor {name} is {other:?}"))),
        };
        let view = TensorView::new(kind, data.shape().to_vec(), data.as_bytes())
            .map_err(|error| broken(error.to_string()))?;
        views.push((name.as_str(), view));
    }
    // A map with several entries would be written in random order.
    let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    replace_file_with(path, |beside| {
        safetensors::serialize_to_file(views, metadata, beside).map_err(std::io::Error::other)
    })
    .map_err(|source: std::io::Error| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })
}
