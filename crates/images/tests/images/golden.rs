//! Reads `fixtures/images`.

use std::path::PathBuf;

use attentive_images::Image;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// The expected arrays and their cases.
pub struct Golden {
    bytes: Vec<u8>,
}

impl Golden {
    pub fn load() -> Self {
        let bytes = std::fs::read(folder().join("golden.safetensors")).unwrap();
        Self { bytes }
    }

    /// The cases of a kind.
    pub fn cases(&self, kind: &str) -> Vec<Value> {
        let (_, header) = SafeTensors::read_metadata(&self.bytes).unwrap();
        let cases = &header.metadata().as_ref().unwrap()["cases"];
        let cases: Value = serde_json::from_str(cases).unwrap();
        cases[kind].as_array().unwrap().clone()
    }

    /// An array as f32, and its shape.
    pub fn array(&self, key: &str) -> (Vec<usize>, Vec<f32>) {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = tensors.tensor(key).unwrap();
        let values = match tensor.dtype() {
            Dtype::U8 => tensor.data().iter().map(|&byte| f32::from(byte)).collect(),
            Dtype::F32 => (tensor.data().chunks_exact(4))
                .map(|number| f32::from_le_bytes(number.try_into().unwrap()))
                .collect(),
            other => panic!("{key} is {other:?}"),
        };
        (tensor.shape().to_vec(), values)
    }

    /// The RGB bytes of an image.
    pub fn image(&self, key: &str) -> (Vec<usize>, Vec<u8>) {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let tensor = tensors.tensor(key).unwrap();
        assert_eq!(tensor.dtype(), Dtype::U8);
        (tensor.shape().to_vec(), tensor.data().to_vec())
    }
}

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/images")
}

/// The image files, by name.
pub fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder().join("files")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 50, "fixtures/images/files is incomplete");
    files
}

pub fn open(file: &str) -> Image {
    Image::open(&folder().join("files").join(file)).unwrap()
}
