//! Files of tensors: safetensors and PyTorch's pickle files. Floats of any dtype are read as f32.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use attentive_formats::error_text::excerpt;
use attentive_formats::{FileError, TensorSet, pickle, safetensors as safe};
use burn::tensor::{AllocationProperty, Bytes, DType, TensorData};
use safetensors::tensor::{Dtype, TensorView};

use super::{CheckpointError, replace_file_with};

/// The tensors of a file or of a set of shards.
#[derive(Debug)]
pub struct TensorFile {
    /// The file, or the index of the shards; named in errors.
    path: PathBuf,
    tensors: TensorSet,
    metadata: BTreeMap<String, String>,
}

/// The name of a weight file, and how to open it.
type WeightFile = (&'static str, fn(&Path) -> Result<TensorSet, FileError>);

/// In the order of preference.
const WEIGHT_FILES: [WeightFile; 4] = [
    ("model.safetensors", |path| Ok(safe::open(path)?.0)),
    ("model.safetensors.index.json", safe::open_sharded),
    ("pytorch_model.bin", pickle::open),
    ("pytorch_model.bin.index.json", pickle::open_sharded),
];

impl TensorFile {
    /// Memory-maps a safetensors file and checks its header.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let (tensors, metadata) = safe::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            tensors,
            metadata,
        })
    }

    /// The tensors of a file that was opened in another format.
    pub(super) fn of_set(path: &Path, tensors: TensorSet) -> Self {
        Self {
            path: path.to_owned(),
            tensors,
            metadata: BTreeMap::new(),
        }
    }

    /// The weights of a model folder: safetensors or PyTorch's pickle files, sharded or not.
    pub fn from_folder(folder: &Path) -> Result<Self, CheckpointError> {
        for (name, open) in WEIGHT_FILES {
            let path = folder.join(name);
            if path.exists() {
                return Ok(Self {
                    tensors: open(&path)?,
                    path,
                    metadata: BTreeMap::new(),
                });
            }
        }
        Err(CheckpointError::NoWeights {
            folder: folder.to_owned(),
        })
    }

    /// The file, or the index of the shards.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        self.tensors.names().map(str::to_owned).collect()
    }

    /// The metadata in the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.shape(name)
    }

    /// The dtype of a tensor, if it is there: `F32`, `I64`.
    pub fn dtype(&self, name: &str) -> Option<&'static str> {
        self.tensors.dtype(name).map(|dtype| dtype.name())
    }

    /// A tensor of floats as f32; for any other tensor the error names its dtype.
    pub fn floats(&self, name: &str) -> Result<Vec<f32>, CheckpointError> {
        let floats = self.tensors.floats(name);
        floats.ok_or_else(|| self.type_error(name, "floats"))
    }

    /// A memory-mapped tensor, reshaped: pages are read when they are needed, and copied on write. None where the file does
    /// not have aligned f32.
    pub(super) fn mapped(&self, name: &str, shape: &[usize]) -> Option<TensorData> {
        let bytes = self.tensors.shared_floats(name)?;
        let bytes = Bytes::from_shared(bytes, AllocationProperty::File);
        Some(TensorData::from_bytes(bytes, shape.to_vec(), DType::F32))
    }

    /// A tensor of integers.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>, CheckpointError> {
        let integers = self.tensors.integers(name);
        integers.ok_or_else(|| match self.dtype(name) {
            // Every integer type converts to i64 except for values that are too large.
            Some("U64") => self.error(name, "holds a value above the largest i64".to_owned()),
            _ => self.type_error(name, "integers"),
        })
    }

    /// The error for a tensor that is missing or of another dtype.
    fn type_error(&self, name: &str, expected: &str) -> CheckpointError {
        let problem = match self.dtype(name) {
            Some(dtype) => format!("is {dtype} where {expected} are needed"),
            None => "is missing".to_owned(),
        };
        self.error(name, problem)
    }

    fn error(&self, name: &str, problem: String) -> CheckpointError {
        CheckpointError::Broken {
            path: self.path.clone(),
            problem: format!("tensor {} {problem}", excerpt(name)),
        }
    }
}

/// Writes tensors as a safetensors file, atomically and deterministically.
pub fn write_tensors(
    path: &Path,
    tensors: BTreeMap<String, TensorData>,
    metadata: HashMap<String, String>,
) -> Result<(), CheckpointError> {
    let unsupported = |problem: String| CheckpointError::Unsupported {
        path: path.to_owned(),
        problem,
    };
    let mut views = Vec::with_capacity(tensors.len());
    for (name, data) in &tensors {
        let dtype = match data.dtype() {
            burn::tensor::DType::F32 => Dtype::F32,
            burn::tensor::DType::F16 => Dtype::F16,
            burn::tensor::DType::BF16 => Dtype::BF16,
            burn::tensor::DType::I64 => Dtype::I64,
            other => {
                return Err(unsupported(format!(
                    "tensor {name} is {other:?}, which is not supported; supported are F32, F16, BF16 and I64"
                )));
            }
        };
        let view = TensorView::new(dtype, data.shape().to_vec(), data.as_bytes())
            .map_err(|error| unsupported(error.to_string()))?;
        views.push((name.as_str(), view));
    }
    // Several entries would be written in the random order of a HashMap; callers have at most one.
    let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
    replace_file_with(path, |temporary| {
        safetensors::serialize_to_file(views, metadata, temporary).map_err(std::io::Error::other)
    })
    .map_err(|source: std::io::Error| CheckpointError::Io {
        path: path.to_owned(),
        source,
    })
}
