//! Golden data of a model: the tensors of `fixtures/models/NAME/golden.safetensors`, and comparisons with them.
//!
//! The names are those of transformers' inputs and outputs; a prefix, as in `padded.logits`, names a further case.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use attentive_checkpoint::{self as checkpoint, TensorFile};
use attentive_model::{Model, parameters, replace_parameters};
use attentive_testing::{GRADIENTS, Scale, VALUES, assert_close, assert_near};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// A folder of `fixtures/models`.
pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/models")
        .join(name)
}

/// A folder of `fixtures/models` with golden tensors.
pub struct Golden {
    /// The folder's name, for messages.
    pub name: String,
    /// The model folder.
    pub folder: PathBuf,
    pub file: TensorFile,
}

impl Golden {
    /// Opens `fixtures/models/NAME`.
    pub fn open(name: &str) -> Self {
        Self::of_file(name, folder(name), "golden.safetensors")
    }

    /// Opens a file of golden tensors in any folder.
    pub fn of_file(name: &str, folder: PathBuf, file: &str) -> Self {
        let file = TensorFile::open(&folder.join(file)).unwrap();
        Self {
            name: name.to_owned(),
            folder,
            file,
        }
    }

    /// An integer matrix.
    pub fn ids(&self, key: &str, device: &Device) -> Tensor<2, Int> {
        let data = TensorData::new(self.integers(key), self.shape(key));
        Tensor::from_data(data, device)
    }

    /// Flattened integers.
    pub fn integers(&self, key: &str) -> Vec<i64> {
        self.file.integers(key).unwrap()
    }

    /// Flattened floats.
    pub fn floats(&self, key: &str) -> Vec<f32> {
        self.file.floats(key).unwrap()
    }

    /// The shape of a tensor.
    pub fn shape(&self, key: &str) -> Vec<usize> {
        let shape = self.file.shape(key);
        shape
            .unwrap_or_else(|| panic!("{}: there is no {key}", self.name))
            .to_vec()
    }

    /// The number of tensors `KEY.0`, `KEY.1` and so on.
    pub fn count(&self, key: &str) -> usize {
        let exists = |index: &usize| self.file.shape(&format!("{key}.{index}")).is_some();
        (0..).take_while(exists).count()
    }

    /// The range of each row of a mask that is not padding.
    pub fn non_padding(&self, mask: &str) -> Vec<Range<usize>> {
        let length = self.shape(mask)[1];
        let range = |row: &[i64]| {
            let start = row.iter().position(|it| *it == 1).unwrap_or(0);
            let count = row.iter().filter(|it| **it == 1).count();
            assert!(
                row[start..start + count].iter().all(|it| *it == 1),
                "{mask} has gaps"
            );
            start..start + count
        };
        self.integers(mask).chunks(length).map(range).collect()
    }

    /// Fails unless `ours` is the golden tensor.
    pub fn check<const D: usize>(&self, key: &str, ours: Tensor<D>) {
        let shape = self.shape(key);
        assert_eq!(ours.dims().as_slice(), shape, "{}: {key}", self.name);
        self.close(key, &values(ours), &self.floats(key));
    }

    /// Fails unless the rows of `ours`, of shape `[batch, length, …]`, are those of the golden tensor wherever `mask` is one.
    pub fn check_where<const D: usize>(&self, mask: &str, key: &str, ours: Tensor<D>) {
        let shape = self.shape(key);
        assert_eq!(ours.dims().as_slice(), shape, "{}: {key}", self.name);
        let size: usize = shape[2..].iter().product();
        let (ours, theirs) = (values(ours), self.floats(key));
        let unpadded_values = |all: &[f32]| {
            let rows = all.chunks(size).zip(self.integers(mask));
            let unpadded = rows.filter(|(_, mask)| *mask == 1);
            unpadded
                .flat_map(|(row, _)| row.to_vec())
                .collect::<Vec<f32>>()
        };
        self.close(key, &unpadded_values(&ours), &unpadded_values(&theirs));
    }

    /// Fails unless `ours` is the golden tensor, at unpadded positions where the case has a mask.
    pub fn check_unpadded(&self, prefix: &str, key: &str, ours: TensorData) {
        let shape = self.file.shape(key).unwrap().to_vec();
        assert_eq!(ours.shape().to_vec(), shape, "{} {key}", self.name);
        let ours = ours.try_to_vec::<f32>().unwrap();
        let theirs = self.file.floats(key).unwrap();
        let masks = ["decoder_attention_mask", "attention_mask"];
        let masks = masks.map(|mask| format!("{prefix}{mask}"));
        let mask = masks.iter().find_map(|mask| {
            let fits = self.file.shape(mask)? == shape.get(..2)?;
            (fits && shape.len() == 3).then(|| self.file.integers(mask).unwrap())
        });
        let width = shape.last().copied().unwrap_or(1);
        let unpadded_values = |all: &[f32]| -> Vec<f32> {
            let values = all.iter().enumerate();
            let is_unpadded = |i: usize| mask.as_ref().is_none_or(|mask| mask[i / width] == 1);
            values
                .filter(|(i, _)| is_unpadded(*i))
                .map(|(_, x)| *x)
                .collect()
        };
        self.close(key, &unpadded_values(&ours), &unpadded_values(&theirs));
    }

    /// Fails unless the gradients, by the names of the model's file, are exactly the golden `gradient.NAME` tensors.
    pub fn check_gradients(&self, ours: BTreeMap<String, TensorData>) {
        let theirs = self.file.names();
        let theirs = theirs
            .iter()
            .filter_map(|name| name.strip_prefix("gradient."));
        assert!(theirs.eq(ours.keys()), "{}: names of gradients", self.name);
        let norm = |it: &[f32]| it.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let norms = ours
            .keys()
            .map(|name| norm(&self.floats(&format!("gradient.{name}"))));
        let largest = norms.fold(0.0, f64::max);
        assert!(largest > 0.0, "{}: all gradients are zero", self.name);
        for (name, data) in ours {
            let theirs = self.floats(&format!("gradient.{name}"));
            let ours = data.try_to_vec::<f32>().unwrap();
            assert_eq!(ours.len(), theirs.len(), "{}: {name}", self.name);
            let difference: Vec<f32> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
            // Gradients that are zero in exact arithmetic are stored as zeros; ours are rounding errors, small relative to
            // the other gradients.
            let scale = match norm(&theirs) {
                0.0 => largest,
                own => own,
            };
            let what = format!("{}: gradient of {name}, norm of the difference", self.name);
            assert_near(what, norm(&difference), 0.0, Scale::Of(scale), GRADIENTS);
        }
    }

    fn close(&self, key: &str, ours: &[f32], theirs: &[f32]) {
        let what = format!("{}: {key}", self.name);
        assert_close(what, ours, theirs, Scale::LargestOr(1e-6), VALUES);
    }
}

/// The flattened values of a tensor.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec::<f32>().unwrap()
}

/// The gradients of a model under the names and in the layout in which its weights are saved.
pub fn saved_gradients(model: &Model, loss: &Tensor<1>) -> BTreeMap<String, TensorData> {
    let gradients = gradients(model, loss).into_iter().collect();
    let folder = tempfile::tempdir().unwrap();
    checkpoint::save_weights(folder.path(), &replace_parameters(model.clone(), gradients)).unwrap();
    let file = TensorFile::from_folder(folder.path()).unwrap();
    let tensor = |name: String| {
        let floats = file.floats(&name).unwrap();
        let shape = file.shape(&name).unwrap().to_vec();
        (name, TensorData::new(floats, shape))
    };
    file.names().into_iter().map(tensor).collect()
}

/// The gradient of each parameter of a module, by name; zeros where the loss does not depend on it.
pub fn gradients<M: Module>(model: &M, loss: &Tensor<1>) -> BTreeMap<String, TensorData> {
    struct Collector(burn::tensor::Gradients, Vec<TensorData>);
    impl ModuleVisitor for Collector {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let gradient = value.grad(&self.0).map(|it| it.into_data());
            let zeros = || TensorData::zeros::<f32, _>(value.shape());
            self.1.push(gradient.unwrap_or_else(zeros));
        }
    }
    let mut collector = Collector(loss.backward(), Vec::new());
    model.visit(&mut collector);
    let names = parameters(model).into_iter().map(|it| it.name);
    names.zip(collector.1).collect()
}
