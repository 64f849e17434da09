//! Recurrent encoder-decoders against PyTorch's GRU and LSTM (`reference/models/recurrent.py`): values, gradients, greedy
//! decoding, padding. Their folders are in `recurrent_folders.rs`.

use attentive_checkpoint as checkpoint;
use attentive_model::attention::Role;
use attentive_model::{AttentionSite, Observer, Purpose, Randomness, Recorder};
use attentive_recurrent::Recurrent;
use attentive_recurrent::{CellState, Decoded, Greedy, RecurrentOptions, Sequences};
use attentive_tensor::cross_entropy;
use attentive_testing::{CLEAR_MARGIN, Scale, VALUES, assert_close, margin};
use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::support::{Golden, gradients, values};

/// The folders of `fixtures/models`.
pub const NAMES: [&str; 3] = ["bahdanau-gru", "bahdanau-lstm", "bahdanau-plain"];

/// A golden and the model of its folder.
pub fn open(name: &str, device: &Device) -> (Golden, Recurrent) {
    let golden = Golden::open(name);
    let (model, _) = checkpoint::load_recurrent(&golden.folder, device).unwrap();
    (golden, model)
}

/// The ids of a case, with padding where it has a mask.
fn sequences(golden: &Golden, prefix: &str, side: &str, device: &Device) -> Sequences {
    let ids = golden.ids(&format!("{prefix}{side}_ids"), device);
    let padded = !prefix.is_empty();
    let non_padding = padded.then(|| golden.non_padding(&format!("{prefix}{side}_mask")));
    Sequences { ids, non_padding }
}

fn observed(model: &Recurrent, source: &Sequences, target: &Sequences) -> (Decoded, Recorder) {
    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let options = RecurrentOptions {
        observer: Some(&mut recorder),
        randomness: None,
    };
    (model.forward(source, target, options), recorder)
}

fn check_states(golden: &Golden, key: &str, states: Vec<CellState>) {
    assert_eq!(golden.count(key), states.len());
    for (layer, state) in states.into_iter().enumerate() {
        golden.check(&format!("{key}.{layer}"), state.hidden);
        if let Some(cell) = state.cell {
            golden.check(&format!("{key}_cell.{layer}"), cell);
        }
    }
}

#[test]
fn logits_states_and_weights_match_pytorch() {
    let device = Device::flex();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        for prefix in ["", "padded."] {
            let source = sequences(&golden, prefix, "source", &device);
            let target = sequences(&golden, prefix, "target", &device);
            let key = |key: &str| format!("{prefix}{key}");
            let encoded = model.encode(&source, RecurrentOptions::default());
            golden.check(&key("states"), encoded.states);
            check_states(&golden, &key("initial_state"), encoded.initial_state);
            let (decoded, recorder) = observed(&model, &source, &target);
            golden.check(&key("hidden"), decoded.hidden);
            golden.check(&key("logits"), decoded.logits);
            golden.check(&key("weights"), decoded.weights.unwrap());
            check_states(&golden, &key("final_state"), decoded.state);
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
fn losses_and_gradients_match_pytorch() {
    let device = Device::flex().autodiff();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        let source = sequences(&golden, "loss.", "source", &device);
        let target = sequences(&golden, "loss.", "target", &device);
        let decoded = model.forward(&source, &target, RecurrentOptions::default());
        let [batch, length, vocabulary] = decoded.logits.dims();
        let labels = golden.integers("loss.labels");
        let labels = TensorData::new(labels, [batch * length]);
        let logits = decoded.logits.reshape([batch * length, vocabulary]);
        let loss = cross_entropy(logits, Tensor::<1, Int>::from_data(labels, &device), 0.0);
        golden.check("loss.value", loss.clone());
        golden.check_gradients(gradients(&model, &loss));
    }
}

#[test]
fn greedy_tokens_match_pytorch() {
    let device = Device::flex();
    for name in NAMES {
        let (golden, model) = open(name, &device);
        let ids: Vec<u32> = (golden.integers("greedy_ids").iter())
            .map(|id| *id as u32)
            .collect();
        let source = golden.ids("prompt_ids", &device);
        let length = source.dims()[1];
        let settings = Greedy {
            decoder_start: ids[0],
            eos: Some(2),
            max_new_tokens: 32,
        };
        let alone = Sequences::new(source.clone());
        assert_eq!(
            model.greedy(&alone, settings),
            [ids[1..].to_vec()],
            "{name}"
        );
        // Teacher forcing: at each step the best token wins by a clear margin.
        let given = golden.ids("greedy_ids", &device);
        let given = given.narrow(1, 0, ids.len() - 1);
        let forced = model.forward(&alone, &Sequences::new(given), RecurrentOptions::default());
        let vocabulary = forced.logits.dims()[2];
        for scores in values(forced.logits).chunks(vocabulary) {
            assert!(margin(scores) >= CLEAR_MARGIN, "{name}");
        }
        // In a batch with another row, padded on the left, and with an eos that comes early in both.
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
            non_padding: Some(vec![length..2 * length, 0..2 * length]),
        };
        let early = Greedy {
            eos: Some(ids[5]),
            ..settings
        };
        let generated = model.greedy(&both, early);
        let end = ids[1..].iter().position(|id| *id == ids[5]).unwrap();
        assert_eq!(generated[0], ids[1..=end + 1], "{name}");
        assert!(generated[1].iter().rev().skip(1).all(|id| *id != ids[5]));
    }
}

/// Sequences padded on both sides with this id.
fn padded_on_both_sides(ids: &Tensor<2, Int>, pad: i32) -> Sequences {
    let [batch, length] = ids.dims();
    let padding = |count| Tensor::<2, Int>::full([batch, count], pad, &ids.device());
    Sequences {
        ids: Tensor::cat(vec![padding(BEFORE), ids.clone(), padding(AFTER)], 1),
        non_padding: Some(vec![BEFORE..BEFORE + length; batch]),
    }
}

const BEFORE: usize = 2;
const AFTER: usize = 1;

/// The ids of padding have no effect at all. Padding itself makes sums over keys longer, which may round differently, so
/// results without padding are only close.
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
        let run = |pad: i32| {
            let [source, target] = [&source, &target].map(|ids| padded_on_both_sides(ids, pad));
            observed(&model, &source, &target).0
        };
        let (found, other) = (run(1), run(3));
        let unpadded = |x: &Tensor<3>| values(x.clone().narrow(1, BEFORE, length));
        assert_eq!(unpadded(&found.logits), unpadded(&other.logits), "{name}");
        assert_eq!(unpadded(&found.hidden), unpadded(&other.hidden), "{name}");
        let close = |what: &str, ours: Vec<f32>, theirs: Vec<f32>| {
            assert_close(
                format!("{name}: {what}"),
                &ours,
                &theirs,
                Scale::Largest,
                VALUES,
            );
        };
        close("logits", unpadded(&found.logits), values(expected.logits));
        close("hidden", unpadded(&found.hidden), values(expected.hidden));
        for padding in [0..BEFORE, BEFORE + length..BEFORE + length + AFTER] {
            let outputs = values(found.hidden.clone().slice([0..batch, padding]));
            assert!(outputs.iter().all(|it| *it == 0.0), "{name}");
        }
        let states = found.state.into_iter().zip(other.state).zip(expected.state);
        for ((ours, other), theirs) in states {
            assert_eq!(values(ours.hidden.clone()), values(other.hidden), "{name}");
            close("state", values(ours.hidden), values(theirs.hidden));
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
    let options = RecurrentOptions {
        observer: Some(&mut First),
        randomness: None,
    };
    let found = model.forward(&Sequences::new(source.clone()), &target, options);
    // The same as a source with only the first state unmasked.
    let [batch, _] = source.dims();
    let mut encoded = model.encode(&Sequences::new(source), RecurrentOptions::default());
    encoded.non_padding = Some(vec![0..1; batch]);
    let first = encoded.initial_state.clone();
    let expected = model.decode(&target, &encoded, first, RecurrentOptions::default());
    assert_eq!(values(found.logits), values(expected.logits));
    assert!(expected.weights.is_none());
}

#[test]
#[should_panic(expected = "encode: sequences of length 41 do not fit a model of lengths 1 to 40")]
fn a_source_that_is_too_long_panics_with_both_lengths() {
    let device = Device::flex();
    let (_, model) = open("bahdanau-plain", &device);
    let ids = Tensor::<2, Int>::ones([1, 41], &device);
    model.encode(&Sequences::new(ids), RecurrentOptions::default());
}

#[test]
#[should_panic(expected = "decode: 1 targets do not match 2 sources")]
fn another_number_of_targets_panics_with_both_numbers() {
    let device = Device::flex();
    let (golden, model) = open("bahdanau-plain", &device);
    let source = Sequences::new(golden.ids("source_ids", &device));
    let target = Sequences::new(Tensor::<2, Int>::ones([1, 3], &device));
    model.forward(&source, &target, RecurrentOptions::default());
}

#[test]
fn dropout_applies_only_in_training() {
    let device = Device::flex();
    let golden = Golden::open("bahdanau-gru");
    let config = open("bahdanau-gru", &device).1.config().clone();
    let config = attentive_recurrent::RecurrentConfig {
        dropout: 0.5,
        ..config
    };
    let model = Recurrent::new(&config, 7, &device).unwrap();
    let source = sequences(&golden, "", "source", &device);
    let target = sequences(&golden, "", "target", &device);
    let logits = |seed: Option<u64>| {
        let mut randomness = seed.map(|seed| Randomness::new(Purpose::Dropout, seed, 0));
        let options = RecurrentOptions {
            observer: None,
            randomness: randomness.as_mut(),
        };
        values(model.forward(&source, &target, options).logits)
    };
    assert_eq!(logits(None), logits(None));
    assert_eq!(logits(Some(1)), logits(Some(1)));
    assert_ne!(logits(Some(1)), logits(Some(2)));
    assert_ne!(logits(Some(1)), logits(None));
}
