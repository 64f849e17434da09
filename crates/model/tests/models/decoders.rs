//! Decoder-only models: Mistral, Qwen2, Qwen3, Mixtral.

use std::path::Path;

use attentive_model::checkpoint::{self, TensorFile, model_tensors, saved_tensors};
use attentive_model::{Cache, Extras, Input, Model, Recorder};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Tensor, TensorData};

use crate::support::{Golden, gradients, numbers};

const MODELS: [&str; 4] = ["mistral", "qwen2", "qwen3", "mixtral"];

fn open(name: &str, device: &Device) -> (Golden, Model) {
    let golden = Golden::open(name);
    let (model, description) = checkpoint::load(&golden.folder, device).unwrap();
    assert_eq!(description.model_type, name);
    (golden, model)
}

#[test]
fn logits_hidden_states_and_attentions_are_those_of_transformers() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let mut recorder = Recorder {
            keep_weights: true,
            ..Recorder::default()
        };
        let extras = Extras {
            observer: Some(&mut recorder),
            ..Extras::default()
        };
        let output = model.forward(Input::new(golden.ids("input_ids", &device)), extras);
        golden.check("logits", output.clone().into_words());
        golden.check("last_hidden_state", output.hidden);
        // Transformers gives the last hidden state after the final norm, in the place of the last block's output.
        let layers = model.config().layers();
        recorder.hidden.remove(layers);
        assert_eq!(recorder.hidden.len(), golden.count("hidden_states"));
        for (i, (_, hidden)) in recorder.hidden.into_iter().enumerate() {
            golden.check(&format!("hidden_states.{i}"), hidden);
        }
        assert_eq!(recorder.weights.len(), golden.count("attentions"));
        for (i, (_, weights)) in recorder.weights.into_iter().enumerate() {
            golden.check(&format!("attentions.{i}"), weights);
        }
    }
}

/// Without an observer another kernel computes the attention.
#[test]
fn logits_are_those_of_transformers_when_nobody_looks_on() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let input = Input::new(golden.ids("input_ids", &device));
        golden.check(
            "logits",
            model.forward(input, Extras::default()).into_words(),
        );
    }
}

#[test]
fn padding_on_either_side_has_no_effect_on_real_positions() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let input = Input {
            keys: Some(golden.real("padded.attention_mask")),
            ..Input::new(golden.ids("padded.input_ids", &device))
        };
        let logits = model.forward(input, Extras::default()).into_words();
        golden.check_where("padded.attention_mask", "padded.logits", logits);
    }
}

#[test]
fn the_loss_and_every_gradient_are_those_of_pytorch() {
    let device = Device::flex().autodiff();
    for name in ["mistral", "mixtral"] {
        let (golden, model) = open(name, &device);
        let input = Input::new(golden.ids("loss.input_ids", &device));
        let logits = model.forward(input, Extras::default()).into_words();
        let [batch, length, vocabulary] = logits.dims();
        let targets = golden.ids("loss.targets", &device);
        let loss = cross_entropy(
            logits.reshape([batch * length, vocabulary]),
            targets.reshape([batch * length]),
            0.0,
        );
        golden.check("loss.value", loss.clone());
        golden.check_gradients(saved_tensors(model.config(), gradients(&model, &loss)));
    }
}

/// Token by token, through a cache of which a window forgets the oldest.
#[test]
fn greedy_tokens_are_those_of_transformers() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let expected = golden.integers("greedy_ids");
        let mut ids = golden.integers("prompt_ids");
        assert_eq!(expected.len(), ids.len() + 32, "{name}");
        let (mut cache, mut new) = (Cache::new(), ids.clone());
        while ids.len() < expected.len() {
            let input = TensorData::new(new.clone(), [1, new.len()]);
            let extras = Extras {
                cache: Some(&mut cache),
                ..Extras::default()
            };
            let output = model.forward(Input::new(Tensor::from_data(input, &device)), extras);
            let last = output.into_words().narrow(1, new.len() - 1, 1);
            let scores = numbers(last);
            let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            new = vec![best.unwrap() as i64];
            ids.extend(&new);
        }
        assert_eq!(ids, expected, "{name}");
    }
}

#[test]
fn saving_a_loaded_model_gives_the_tensors_and_settings_that_were_loaded() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let described = checkpoint::describe(&golden.folder).unwrap();
        let folder = tempfile::tempdir().unwrap();
        checkpoint::save(folder.path(), &model, &described.special).unwrap();
        let tensors = |folder: &Path| TensorFile::open(&folder.join("model.safetensors")).unwrap();
        let (theirs, ours) = (tensors(&golden.folder), tensors(folder.path()));
        assert_eq!(ours.names(), theirs.names(), "{name}");
        for tensor in ours.names() {
            assert_eq!(ours.shape(&tensor), theirs.shape(&tensor), "{tensor}");
            let floats = |file: &TensorFile| file.floats(&tensor).unwrap();
            assert_eq!(floats(&ours), floats(&theirs), "{tensor}");
        }
        let (back, again) = checkpoint::load(folder.path(), &device).unwrap();
        assert_eq!(again.model_type, name);
        assert_eq!(again.special, described.special);
        assert_eq!(again.config.canonical(), described.config.canonical());
        assert_eq!(model_tensors(&back), model_tensors(&model));
    }
}
