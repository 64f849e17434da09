//! Decoding with models of which a layer can have no cache.

use attentive_generation::Session;
use attentive_model::{Extras, Input, Model, ModelConfig};
use burn::tensor::{Device, Tensor, TensorData};

const LENGTH: usize = 12;

/// A block that hashes, between two that could have a cache.
fn model() -> Model {
    let block = |attention: &str| {
        format!(
            r#"{{ "norm": {{ "kind": "layer" }}, "attention": {attention},
                "feed_forward": {{ "kind": "plain", "hidden_width": 24 }} }}"#
        )
    };
    let full = block(r#"{ "kind": "full", "heads": 2 }"#);
    let hashing =
        block(r#"{ "kind": "reformer", "heads": 2, "buckets": 4, "rounds": 2, "chunk": 3 }"#);
    let words = format!(
        r#"{{ "vocabulary": 23, "length": {LENGTH}, "width": 16, "initial_deviation": 0.3,
            "positions": {{ "kind": "learned" }}, "blocks": [{full}, {hashing}, {full}] }}"#
    );
    let config: ModelConfig = serde_json::from_str(&words).unwrap();
    assert!(!config.cacheable());
    Model::new(&config, 3, &Device::flex()).unwrap()
}

/// The scores after `ids`, from one pass.
fn scores(model: &Model, ids: &[u32]) -> Vec<f32> {
    let numbers: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    let data = TensorData::new(numbers, [1, ids.len()]);
    let input = Input::new(Tensor::from_data(data, &Device::flex()));
    let logits = model.forward(input, Extras::default()).into_words();
    let last = logits.narrow(1, ids.len() - 1, 1);
    last.into_data().try_to_vec::<f32>().unwrap()
}

#[test]
fn each_token_is_scored_by_a_pass_over_the_whole_sequence() {
    let model = model();
    let ids: Vec<u32> = (0..30).map(|i| i * i % 23).collect();
    let mut session = Session::new(&model);
    // The model's length is reached at the 13th token, and with its newer half of 6 again at the 20th, and at the 27th.
    let mut start = 0;
    for (read, count) in [(0, 5), (5, 1), (6, 1), (7, 3), (10, 2)]
        .into_iter()
        .chain((12..30).map(|read| (read, 1)))
    {
        let end = read + count;
        if end - start > LENGTH {
            start = end - LENGTH / 2;
        }
        let ours = session.read(&ids[read..end]);
        let whole = scores(&model, &ids[start..end]);
        let gaps = ours.iter().zip(&whole).map(|(a, b)| (a - b).abs());
        let apart = gaps.fold(0.0, f32::max);
        assert!(apart < 1e-5, "after {end} tokens, {apart} apart");
    }
    assert_eq!(session.ids(), ids);
}

#[test]
fn what_was_read_has_an_effect_on_what_follows() {
    let model = model();
    let after = |ids: &[u32]| {
        let mut session = Session::new(&model);
        let (last, before) = ids.split_last().unwrap();
        for id in before {
            session.read(&[*id]);
        }
        session.read(&[*last])
    };
    assert_ne!(after(&[1, 2, 3, 4, 5]), after(&[9, 2, 3, 4, 5]));
}
