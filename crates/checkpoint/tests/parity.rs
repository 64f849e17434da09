//! Parity with PyTorch and transformers: values and gradients against the golden data of `fixtures/`, which
//! `reference/goldens.py` makes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attentive_checkpoint::{self as checkpoint, TensorFile};
use attentive_model::{ForwardOptions, Input, Model, Recorder, parameters, replace_parameters};
use attentive_tensor::cross_entropy;
use attentive_testing::{GRADIENTS, Scale, VALUES, assert_close, assert_near};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

const MODELS: [&str; 3] = ["gpt2", "llama", "llama-tied"];

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

/// Relative to the largest reference value, or absolute for zeros.
const SCALE: Scale = Scale::LargestOr(1e-6);

struct Golden {
    name: String,
    file: TensorFile,
    model: Model,
    device: Device,
}

impl Golden {
    fn open(name: &str, device: Device) -> Self {
        let folder = fixture(name);
        let (model, _) = checkpoint::load(&folder, &device).unwrap();
        let file = TensorFile::open(&folder.join("golden.safetensors")).unwrap();
        Self {
            name: name.to_owned(),
            file,
            model,
            device,
        }
    }

    fn ids(&self, name: &str) -> Tensor<2, Int> {
        let shape = self.file.shape(name).unwrap().to_vec();
        let data = TensorData::new(self.file.integers(name).unwrap(), shape);
        Tensor::from_data(data, &self.device)
    }

    /// Fails unless `ours` is the golden tensor.
    fn check<const D: usize>(&self, key: &str, ours: Tensor<D>) {
        let what = format!("{}: {key}", self.name);
        let shape = self.file.shape(key).unwrap();
        assert_eq!(ours.dims().as_slice(), shape, "{what}");
        let theirs = self.file.floats(key).unwrap();
        assert_close(what, &values(ours.into_data()), &theirs, SCALE, VALUES);
    }
}

fn values(data: TensorData) -> Vec<f32> {
    data.try_to_vec::<f32>().unwrap()
}

#[test]
fn logits_hidden_states_and_attentions_match_transformers() {
    for name in MODELS {
        let golden = Golden::open(name, Device::flex());
        let mut recorder = Recorder {
            record_weights: true,
            ..Recorder::default()
        };
        let options = ForwardOptions {
            observer: Some(&mut recorder),
            ..ForwardOptions::default()
        };
        let output = golden
            .model
            .forward(Input::new(golden.ids("input_ids")), options);
        golden.check("logits", output.clone().into_logits());
        golden.check("last_hidden_state", output.hidden);
        // In transformers the last hidden state, after the final norm, replaces the last block's output.
        let layers = golden.model.config().stack.layers();
        recorder.hidden.remove(layers);
        for (i, (_, hidden)) in recorder.hidden.into_iter().enumerate() {
            golden.check(&format!("hidden_states.{i}"), hidden);
        }
        assert_eq!(recorder.weights.len(), layers);
        for (i, (_, weights)) in recorder.weights.into_iter().enumerate() {
            golden.check(&format!("attentions.{i}"), weights);
        }
    }
}

#[test]
fn padding_on_either_side_has_no_effect_on_real_positions() {
    for name in MODELS {
        let golden = Golden::open(name, Device::flex());
        let mask = golden.file.integers("padded.attention_mask").unwrap();
        let [rows, length] = golden.ids("padded.input_ids").dims();
        let keys = mask
            .chunks(length)
            .map(|row| {
                let start = row.iter().position(|it| *it == 1).unwrap();
                start..start + row.iter().filter(|it| **it == 1).count()
            })
            .collect();
        let input = Input {
            non_padding: Some(keys),
            ..Input::new(golden.ids("padded.input_ids"))
        };
        let logits = values(
            golden
                .model
                .forward(input, ForwardOptions::default())
                .into_logits()
                .into_data(),
        );
        let theirs = golden.file.floats("padded.logits").unwrap();
        let vocabulary = golden.model.config().stack.vocabulary;
        for position in (0..rows * length).filter(|i| mask[*i] == 1) {
            let at = position * vocabulary..(position + 1) * vocabulary;
            let what = format!("{name}: position {position}");
            assert_close(what, &logits[at.clone()], &theirs[at], SCALE, VALUES);
        }
    }
}

#[test]
fn positions_can_be_given() {
    for name in MODELS {
        let golden = Golden::open(name, Device::flex());
        let input = Input {
            positions: Some(golden.ids("positioned.position_ids")),
            ..Input::new(golden.ids("positioned.input_ids"))
        };
        let output = golden.model.forward(input, ForwardOptions::default());
        golden.check("positioned.logits", output.into_logits());
    }
}

#[test]
fn the_loss_and_every_gradient_match_pytorch() {
    for name in MODELS {
        let golden = Golden::open(name, Device::flex().autodiff());
        let loss = |smoothing: f64| {
            let ids = golden.ids("loss.input_ids");
            let count = ids.shape().num_elements();
            let logits = golden
                .model
                .forward(Input::new(ids), ForwardOptions::default())
                .into_logits();
            let [_, _, vocabulary] = logits.dims();
            let targets = golden.ids("loss.targets").reshape([count]);
            cross_entropy(logits.reshape([count, vocabulary]), targets, smoothing)
        };
        let value = loss(0.0);
        golden.check("loss.value", value.clone());
        golden.check("smoothed.value", loss(0.1));

        let gradients = gradients(&golden.model, &value);
        assert_eq!(gradients.len(), parameters(&golden.model).len());
        // Saved as weights are: under the names and in the layout of the golden gradients.
        let gradients = gradients.into_iter().collect();
        let folder = tempfile::tempdir().unwrap();
        let saved = replace_parameters(golden.model.clone(), gradients);
        checkpoint::save_weights(folder.path(), &saved).unwrap();
        let saved = TensorFile::from_folder(folder.path()).unwrap();
        for saved_name in saved.names() {
            let theirs = golden
                .file
                .floats(&format!("gradient.{saved_name}"))
                .unwrap();
            let ours = saved.floats(&saved_name).unwrap();
            assert_eq!(ours.len(), theirs.len(), "{name}: {saved_name}");
            let norm = |it: &[f32]| it.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            let difference: Vec<f32> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
            let what = format!("{name}: gradient of {saved_name}, norm of the difference");
            let size = norm(&theirs);
            assert!(size > 0.0, "{what}: it is zero");
            assert_near(what, norm(&difference), 0.0, Scale::Of(size), GRADIENTS);
        }
    }
}

/// The gradient of each parameter, by name.
fn gradients(model: &Model, loss: &Tensor<1>) -> BTreeMap<String, TensorData> {
    struct Collector(burn::tensor::Gradients, Vec<TensorData>);
    impl ModuleVisitor for Collector {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(param.val().grad(&self.0).unwrap().into_data());
        }
    }
    let mut collector = Collector(loss.backward(), Vec::new());
    model.visit(&mut collector);
    let names = parameters(model).into_iter().map(|it| it.name);
    names.zip(collector.1).collect()
}

#[test]
fn half_precision_files_load() {
    for (kind, end, name) in [
        ("float16", "safetensors", "model.safetensors"),
        ("bfloat16", "safetensors", "model.safetensors"),
        ("float16", "bin", "pytorch_model.bin"),
        ("bfloat16", "bin", "pytorch_model.bin"),
    ] {
        let source = fixture("gpt2-dtypes");
        let folder = tempfile::tempdir().unwrap();
        let copy = |from: String, to: &str| {
            std::fs::copy(source.join(from), folder.path().join(to)).unwrap();
        };
        copy("config.json".to_owned(), "config.json");
        copy(format!("{kind}.{end}"), name);
        copy("golden.safetensors".to_owned(), "golden.safetensors");
        let (model, _) = checkpoint::load(folder.path(), &Device::flex()).unwrap();
        let file = TensorFile::open(&folder.path().join("golden.safetensors")).unwrap();
        let ids = TensorData::new(file.integers("input_ids").unwrap(), [2, 24]);
        let ids = Tensor::from_data(ids, &Device::flex());
        let logits = model
            .forward(Input::new(ids), ForwardOptions::default())
            .into_logits();
        let theirs = file.floats(&format!("{kind}.logits")).unwrap();
        let what = format!("{kind}.{end}: logits");
        assert_close(what, &values(logits.into_data()), &theirs, SCALE, VALUES);
    }
}
