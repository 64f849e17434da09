//! Reads `fixtures/parts/golden.safetensors`, which `reference/parts.py` makes, and compares with it.

use std::path::Path;

use attentive_model::checkpoint::TensorFile;
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde_json::Value;

pub struct Golden {
    file: TensorFile,
    device: Device,
}

/// One case: its name, and its settings in our words.
pub struct Case<'g> {
    golden: &'g Golden,
    pub name: String,
    pub settings: Value,
}

impl Golden {
    pub fn open(device: Device) -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/parts/golden.safetensors");
        Self {
            file: TensorFile::open(&path).unwrap(),
            device,
        }
    }

    /// The cases that have such settings.
    pub fn cases(&self, kind: &str) -> Vec<Case<'_>> {
        let all: Vec<Value> = serde_json::from_str(&self.file.metadata()["cases"]).unwrap();
        let cases: Vec<Case> = all
            .into_iter()
            .filter(|case| !case[kind].is_null())
            .map(|case| Case {
                golden: self,
                name: case["name"].as_str().unwrap().to_owned(),
                settings: case[kind].clone(),
            })
            .collect();
        assert!(!cases.is_empty(), "{kind}");
        cases
    }
}

impl Case<'_> {
    pub fn numbers(&self, part: &str) -> Vec<f32> {
        self.golden.file.floats(&self.path(part)).unwrap()
    }

    pub fn integers(&self, part: &str) -> Vec<i64> {
        self.golden.file.integers(&self.path(part)).unwrap()
    }

    pub fn tensor<const D: usize>(&self, part: &str) -> Tensor<D> {
        let shape = self.golden.file.shape(&self.path(part)).unwrap().to_vec();
        Tensor::from_data(
            TensorData::new(self.numbers(part), shape),
            &self.golden.device,
        )
    }

    pub fn positions(&self, part: &str) -> Tensor<2, Int> {
        let shape = self.golden.file.shape(&self.path(part)).unwrap().to_vec();
        Tensor::from_data(
            TensorData::new(self.integers(part), shape),
            &self.golden.device,
        )
    }

    /// Panics where ours differs from theirs by more than `tolerance` of their largest number.
    pub fn compare<const D: usize>(&self, part: &str, ours: Tensor<D>, tolerance: f32) {
        assert_eq!(
            ours.dims().as_slice(),
            self.golden.file.shape(&self.path(part)).unwrap(),
            "{}: {part}",
            self.name
        );
        let ours = ours.into_data().try_to_vec::<f32>().unwrap();
        let theirs = self.numbers(part);
        // Where all numbers are smaller than a thousandth, they are what rounding leaves of zero.
        let largest = theirs.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
        let pairs = ours.iter().zip(&theirs);
        let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
        assert!(
            apart <= tolerance,
            "{}: {part} differs by {apart}",
            self.name
        );
        println!("{}: {part} differs by {apart:.1e}", self.name);
    }

    fn path(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }
}
