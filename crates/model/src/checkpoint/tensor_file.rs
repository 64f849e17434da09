//! Files of tensors: reading any float as f32, writing f32.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use attentive_formats::{FileError, TensorSet, pickle, safetensors as safe};
use burn::tensor::{AllocationProperty, Bytes, DType, TensorData};
use safetensors::tensor::{Dtype, TensorView};

use super::{CheckpointError, replace_file_with};

/// The tensors of a file, or of several that belong together.
#[derive(Debug)]
pub struct TensorFile {
    /// What messages name: the file, or the index of several.
    path: PathBuf,
    tensors: TensorSet,
    metadata: BTreeMap<String, String>,
}

/// How a folder may hold its weights, in the order in which they are looked for.
type Form = (&'static str, fn(&Path) -> Result<TensorSet, FileError>);

const FORMS: [Form; 4] = [
    ("model.safetensors", |path| Ok(safe::open(path)?.0)),
    ("model.safetensors.index.json", safe::open_sharded),
    ("pytorch_model.bin", pickle::open),
    ("pytorch_model.bin.index.json", pickle::open_sharded),
];

impl TensorFile {
    /// Maps a safetensors file and checks its header.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let (tensors, metadata) = safe::open(path)?;
        Ok(Self {
            path: path.to_owned(),
            tensors,
            metadata,
        })
    }

    /// The tensors of a file that was opened as another format.
    pub(super) fn of_set(path: &Path, tensors: TensorSet) -> Self {
        Self {
            path: path.to_owned(),
            tensors,
            metadata: BTreeMap::new(),
        }
    }

    /// The weights of a model folder: one safetensors file or several, or PyTorch's older files.
    pub fn of_folder(folder: &Path) -> Result<Self, CheckpointError> {
        for (name, open) in FORMS {
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

    /// The file, or the index of several.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        self.tensors.names().map(str::to_owned).collect()
    }

    /// The free text of the header.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.shape(name)
    }

    /// What kind of numbers a tensor holds, if it is there: `F32`, `I64`.
    pub fn kind(&self, name: &str) -> Option<&'static str> {
        self.tensors.kind(name).map(|kind| kind.name())
    }

    /// A tensor of floats as f32; the error says what else it is.
    pub fn floats(&self, name: &str) -> Result<Vec<f32>, CheckpointError> {
        let floats = self.tensors.floats(name);
        floats.ok_or_else(|| self.not(name, "floats"))
    }

    /// A tensor of f32 as it lies in the file, under a shape of as many numbers: its pages are read when they are needed, and copied when they are changed. None
    /// where its numbers have to be made first.
    pub(super) fn mapped(&self, name: &str, shape: &[usize]) -> Option<TensorData> {
        let bytes = self.tensors.shared_floats(name)?;
        let bytes = Bytes::from_shared(bytes, AllocationProperty::File);
        Some(TensorData::from_bytes(bytes, shape.to_vec(), DType::F32))
    }

    /// A tensor of whole numbers.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>, CheckpointError> {
        let integers = self.tensors.integers(name);
        integers.ok_or_else(|| match self.kind(name) {
            // They are whole numbers, so one of them must be too large.
            Some("U64") => self.wrong(name, "holds a number above the largest i64".to_owned()),
            _ => self.not(name, "whole numbers"),
        })
    }

    /// That a tensor is not there, or is something else than is needed.
    fn not(&self, name: &str, needed: &str) -> CheckpointError {
        let problem = match self.kind(name) {
            Some(kind) => format!("is {kind} where {needed} are needed"),
            None => "is missing".to_owned(),
        };
        self.wrong(name, problem)
    }

    fn wrong(&self, name: &str, problem: String) -> CheckpointError {
        CheckpointError::Broken {
            path: self.path.clone(),
            problem: format!("tensor {} {problem}", name.escape_debug()),
        }
    }
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
            burn::tensor::DType::F16 => Dtype::F16,
            burn::tensor::DType::BF16 => Dtype::BF16,
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
