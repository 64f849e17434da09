//! Recurrent encoder-decoders against PyTorch's GRU and LSTM (`reference/models/recurrent.py`): values, gradients, greedy
//! decoding, padding. Their folders are in `recurrent_folders.rs`.

use attentive_model::checkpoint;
use attentive_model::recurrent::{CellState, Decoded, Greedy, RecurrentExtras, Sequences};
use attentive_model::{AttentionSite, Observer, Purpose, Randomness, Recorder, Recurrent, Role};
use attentive_tensor::cross_entropy;
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::support::{Golden, gradients, numbers};

/// The folders of `fixtures/models`.
pub const NAMES: [&str; 3] = ["bahdanau-gru", "bahdanau-lstm", "bahdanau-plain"];

/// A golden and the model of its folder.
pub fn open(name: &str, device: &Device) -> (Golden, Recurrent) {
    let golden = Golden::open(name);
    let (model, _) = checkpoint::load_recurrent(&golden.folder, device).unwrap();
    (golden, model)
}

/// The ids of a case, padded where it has a mask.
fn sequences(golden: &Golden, prefix: &str, side: &str, device: &Device) -> Sequences {
    let ids = golden.ids(&format!("{prefix}{side}_ids"), device);
    let padded = !prefix.is_empty();
    let real = padded.then(|| golden.real(&format!("{prefix}{side}_mask")));
    Sequences { ids, real }
}

fn observed(model: &Recurrent, source: &Sequences, target: &Sequences) -> (Decoded, Recorder) {
    let mut recorder = Recorder {
        keep_weights: true,
        ..Recorder::default()
    };
    let extras = RecurrentExtras {
        observer: Some(&mut recorder),
        randomness: None,
    };
    (model.forward(source, target, extras), recorder)
}

fn check_states(golden: &Golden, key: &str, states: Vec<CellState>) {
    assert_eq!(golden.count(key), states.len());
    for (layer, state) in states.into_iter().enumerate() {
        golden.check(&format!("{key}.{layer}"), state.hidden);
        if let Some(memory) = state.memory {
            golden.check(&format!("{key}_memory.{layer}"), memory);
        }
    }
}

#[test]
fn scores_states_and_weights_are_those_of_pytorch() {
    let device = Device::flex();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        for prefix in ["", "padded."] {
            let source = sequences(&golden, prefix, "source", &device);
            let target = sequences(&golden, prefix, "target", &device);
            let key = |key: &str| format!("{prefix}{key}");
            let encoded = model.encode(&source, RecurrentExtras::default());
            golden.check(&key("states"), encoded.states);
            check_states(&golden, &key("first"), encoded.first);
            let (decoded, recorder) = observed(&model, &source, &target);
            golden.check(&key("hidden"), decoded.hidden);
            golden.check(&key("words"), decoded.words);
            golden.check(&key("weights"), decoded.weights.unwrap());
            check_states(&golden, &key("last"), decoded.state);
            let site = AttentionSite {
                layer: 0,
                role: Role::Cross,
            };
            assert!(recorder.weights.iter().all(|(at, _)| *at == site));
            let steps = recorder.weights.into_iter().map(|(_, weights)| weights);
            golden.check(&key("weights"), Tensor::cat(steps.collect(), 2));
        }
    }
}

#[test]
fn losses_and_gradients_are_those_of_pytorch() {
    let device = Device::flex().autodiff();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        let source = sequences(&golden, "loss.", "source", &device);
        let target = sequences(&golden, "loss.", "target", &device);
        let decoded = model.forward(&source, &target, RecurrentExtras::default());
        let [batch, length, vocabulary] = decoded.words.dims();
        let labels = golden.integers("loss.labels");
        let labels = TensorData::new(labels, [batch * length]);
        let words = decoded.words.reshape([batch * length, vocabulary]);
        let loss = cross_entropy(words, Tensor::<1, Int>::from_data(labels, &device), 0.0);
        golden.check("loss.value", loss.clone());
        golden.check_gradients(gradients(&model, &loss));
    }
}

#[test]
fn the_likeliest_tokens_are_those_of_pytorch() {
    let device = Device::flex();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        let ids: Vec<u32> = (golden.integers("greedy_ids").iter())
            .map(|id| *id as u32)
            .collect();
        let source = golden.ids("prompt_ids", &device);
        let length = source.dims()[1];
        let settings = Greedy {
            start: ids[0],
            end: Some(2),
            most_tokens: 32,
        };
        let alone = Sequences::new(source.clone());
        assert_eq!(
            model.greedy(&alone, settings),
            [ids[1..].to_vec()],
            "{name}"
        );
        // Beside another row, padded on the left, and with an end that comes early in both.
        let other = golden.ids("source_ids", &device).narrow(0, 0, 1);
        let rows = Tensor::cat(
            vec![
                Tensor::cat(vec![other.clone(), source], 1),
                Tensor::cat(vec![other.clone(), other], 1),
            ],
            0,
        );
        let both = Sequences {
            ids: rows,
            real: Some(vec![length..2 * length, 0..2 * length]),
        };
        let early = Greedy {
            end: Some(ids[5]),
            ..settings
        };
        let made = model.greedy(&both, early);
        let end = ids[1..].iter().position(|id| *id == ids[5]).unwrap();
        assert_eq!(made[0], ids[1..=end + 1], "{name}");
        assert!(made[1].iter().rev().skip(1).all(|id| *id != ids[5]));
    }
}

#[test]
fn padding_on_either_side_changes_nothing() {
    let device = Device::flex();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        let source = golden.ids("source_ids", &device);
        let target = golden.ids("target_ids", &device);
        let [batch, length] = target.dims();
        let plain = |ids: &Tensor<2, Int>| Sequences::new(ids.clone());
        let (expected, _) = observed(&model, &plain(&source), &plain(&target));
        let (before, after) = (2, 1);
        let padded = |ids: &Tensor<2, Int>| {
            let length = ids.dims()[1];
            let filler = |count| Tensor::<2, Int>::ones([batch, count], &device);
            Sequences {
                ids: Tensor::cat(vec![filler(before), ids.clone(), filler(after)], 1),
                real: Some(vec![before..before + length; batch]),
            }
        };
        let (found, _) = observed(&model, &padded(&source), &padded(&target));
        let words = found.words.narrow(1, before, length);
        assert_eq!(numbers(words), numbers(expected.words), "{name}");
        assert_eq!(
            numbers(found.hidden.clone().narrow(1, before, length)),
            numbers(expected.hidden)
        );
        for padding in [0..before, before + length..before + length + after] {
            let outputs = numbers(found.hidden.clone().slice([0..batch, padding]));
            assert!(outputs.iter().all(|it| *it == 0.0), "{name}");
        }
        for (ours, theirs) in found.state.into_iter().zip(expected.state) {
            assert_eq!(numbers(ours.hidden), numbers(theirs.hidden), "{name}");
        }
    }
}

#[test]
fn weights_that_an_observer_returns_take_effect() {
    struct First;
    impl Observer for First {
        fn wants_weights(&self, _: AttentionSite) -> bool {
            true
        }

        fn weights(&mut self, _: AttentionSite, value: Tensor<4>) -> Tensor<4> {
            let keys = value.dims()[3];
            let first = Tensor::ones_like(&value.clone().narrow(3, 0, 1));
            Tensor::cat(vec![first, value.narrow(3, 1, keys - 1) * 0.0], 3)
        }
    }
    let device = Device::flex();
    let (golden, model) = open("bahdanau-plain", &device);
    let source = golden.ids("source_ids", &device);
    let target = Sequences::new(golden.ids("target_ids", &device));
    let extras = RecurrentExtras {
        observer: Some(&mut First),
        randomness: None,
    };
    let found = model.forward(&Sequences::new(source.clone()), &target, extras);
    // The same as a source of which only the first state can be seen.
    let [batch, _] = source.dims();
    let mut encoded = model.encode(&Sequences::new(source), RecurrentExtras::default());
    encoded.real = Some(vec![0..1; batch]);
    let first = encoded.first.clone();
    let expected = model.decode(&target, &encoded, first, RecurrentExtras::default());
    assert_eq!(numbers(found.words), numbers(expected.words));
    assert!(expected.weights.is_none());
}

#[test]
#[should_panic(expected = "encode: sequences of length 41 do not fit a model of lengths 1 to 40")]
fn a_source_that_is_too_long_panics_with_both_lengths() {
    let device = Device::flex();
    let (_, model) = open("bahdanau-plain", &device);
    let ids = Tensor::<2, Int>::ones([1, 41], &device);
    model.encode(&Sequences::new(ids), RecurrentExtras::default());
}

#[test]
#[should_panic(expected = "decode: 1 targets do not fit 2 sources")]
fn another_number_of_targets_panics_with_both_numbers() {
    let device = Device::flex();
    let (golden, model) = open("bahdanau-plain", &device);
    let source = Sequences::new(golden.ids("source_ids", &device));
    let target = Sequences::new(Tensor::<2, Int>::ones([1, 3], &device));
    model.forward(&source, &target, RecurrentExtras::default());
}

#[test]
fn dropout_acts_in_training_alone() {
    let device = Device::flex();
    let golden = Golden::open("bahdanau-gru");
    let config = open("bahdanau-gru", &device).1.config().clone();
    let config = attentive_model::RecurrentConfig {
        dropout: 0.5,
        ..config
    };
    let model = Recurrent::new(&config, 7, &device).unwrap();
    let source = sequences(&golden, "", "source", &device);
    let target = sequences(&golden, "", "target", &device);
    let words = |seed: Option<u64>| {
        let mut randomness = seed.map(|seed| Randomness::new(Purpose::Dropout, seed, 0));
        let extras = RecurrentExtras {
            observer: None,
            randomness: randomness.as_mut(),
        };
        numbers(model.forward(&source, &target, extras).words)
    };
    assert_eq!(words(None), words(None));
    assert_eq!(words(Some(1)), words(Some(1)));
    assert_ne!(words(Some(1)), words(Some(2)));
    assert_ne!(words(Some(1)), words(None));
}
