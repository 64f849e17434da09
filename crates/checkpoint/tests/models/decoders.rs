//! Decoder-only models: Mistral, Qwen2, Qwen3, Mixtral.

use std::path::Path;

use attentive_checkpoint::{self as checkpoint, TensorFile, model_tensors};
use attentive_model::{Cache, ForwardOptions, Input, Model, Recorder};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Tensor, TensorData};

use crate::support::{Golden, saved_gradients, values};

const MODELS: [&str; 4] = ["mistral", "qwen2", "qwen3", "mixtral"];

fn open(name: &str, device: &Device) -> (Golden, Model) {
    let golden = Golden::open(name);
    let (model, description) = checkpoint::load(&golden.folder, device).unwrap();
    assert_eq!(description.model_type, name);
    (golden, model)
}

#[test]
fn logits_hidden_states_and_attentions_match_transformers() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let mut recorder = Recorder {
            record_weights: true,
            ..Recorder::default()
        };
        let options = ForwardOptions {
            observer: Some(&mut recorder),
            ..ForwardOptions::default()
        };
        let output = model.forward(Input::new(golden.ids("input_ids", &device)), options);
        golden.check("logits", output.clone().into_logits());
        golden.check("last_hidden_state", output.hidden);
        // In transformers the last hidden state, after the final norm, replaces the last block's output.
        let layers = model.config().stack.layers();
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

/// Without an observer a different attention kernel runs.
#[test]
fn logits_match_transformers_without_an_observer() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let input = Input::new(golden.ids("input_ids", &device));
        golden.check(
            "logits",
            model
                .forward(input, ForwardOptions::default())
                .into_logits(),
        );
    }
}

#[test]
fn padding_on_either_side_has_no_effect_on_real_positions() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let input = Input {
            non_padding: Some(golden.non_padding("padded.attention_mask")),
            ..Input::new(golden.ids("padded.input_ids", &device))
        };
        let logits = model
            .forward(input, ForwardOptions::default())
            .into_logits();
        golden.check_where("padded.attention_mask", "padded.logits", logits);
    }
}

#[test]
fn the_loss_and_every_gradient_match_pytorch() {
    let device = Device::flex().autodiff();
    for name in ["mistral", "mixtral"] {
        let (golden, model) = open(name, &device);
        let input = Input::new(golden.ids("loss.input_ids", &device));
        let logits = model
            .forward(input, ForwardOptions::default())
            .into_logits();
        let [batch, length, vocabulary] = logits.dims();
        let targets = golden.ids("loss.targets", &device);
        let loss = cross_entropy(
            logits.reshape([batch * length, vocabulary]),
            targets.reshape([batch * length]),
            0.0,
        );
        golden.check("loss.value", loss.clone());
        golden.check_gradients(saved_gradients(&model, &loss));
    }
}

/// Token by token, through a KV cache that a sliding window evicts from.
#[test]
fn greedy_tokens_match_transformers() {
    let device = Device::flex();
    for name in MODELS {
        let (golden, model) = open(name, &device);
        let expected = golden.integers("greedy_ids");
        let mut ids = golden.integers("prompt_ids");
        assert_eq!(expected.len(), ids.len() + 32, "{name}");
        let (mut cache, mut new) = (Cache::new(), ids.clone());
        while ids.len() < expected.len() {
            let input = TensorData::new(new.clone(), [1, new.len()]);
            let options = ForwardOptions {
                cache: Some(&mut cache),
                ..ForwardOptions::default()
            };
            let output = model.forward(Input::new(Tensor::from_data(input, &device)), options);
            let last = output.into_logits().narrow(1, new.len() - 1, 1);
            let logits = values(last);
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
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
