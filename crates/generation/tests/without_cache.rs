//! Decoding with models that have a layer without KV cache support.

mod support;

use attentive_generation::Session;
use attentive_model::{ForwardOptions, Input, Model, ModelConfig, ids_tensor};
use attentive_testing::{Scale, assert_close, assert_differs, ulps_of_sum};
use burn::tensor::Device;

use support::uncached;

const LENGTH: usize = 12;

/// A block with LSH attention, between two that support a cache.
fn model() -> Model {
    let block = |attention: &str| {
        format!(
            r#"{{ "norm": {{ "kind": "layer" }}, "attention": {attention},
                "feed_forward": {{ "kind": "plain", "hidden_width": 24 }} }}"#
        )
    };
    let full = block(r#"{ "kind": "full", "heads": 2 }"#);
    let reformer =
        block(r#"{ "kind": "reformer", "heads": 2, "buckets": 4, "hashes": 2, "chunk": 3 }"#);
    let json = format!(
        r#"{{ "vocabulary": 23, "length": {LENGTH}, "width": 16, "init_std": 0.3,
            "positions": {{ "kind": "learned" }}, "blocks": [{full}, {reformer}, {full}] }}"#
    );
    let config: ModelConfig = serde_json::from_str(&json).unwrap();
    assert!(!config.stack.cacheable());
    Model::new(&config, 3, &Device::flex()).unwrap()
}

/// The logits after `ids`, where the head runs on the last position alone, as in a session.
fn last_logits(model: &Model, ids: &[u32]) -> Vec<f32> {
    let input = Input::new(ids_tensor(&[ids], &Device::flex()));
    let states = model.hidden_states(input, ForwardOptions::default()).states;
    let last = states.narrow(1, ids.len() - 1, 1);
    model.logits(last).into_data().try_to_vec::<f32>().unwrap()
}

#[test]
fn each_step_recomputes_the_whole_sequence() {
    let model = model();
    let ids: Vec<u32> = (0..30).map(|i| i * i % 23).collect();
    let mut session = Session::new(&model);
    // The 13th token exceeds the model's length; the newer 6 tokens are kept, so the 20th and the 27th exceed it again.
    let mut start = 0;
    for (read, count) in [(0, 5), (5, 1), (6, 1), (7, 3), (10, 2)]
        .into_iter()
        .chain((12..30).map(|read| (read, 1)))
    {
        let end = read + count;
        if end - start > LENGTH {
            start = end - LENGTH / 2;
        }
        let ours = session.prefill(&ids[read..end]);
        let what = format!("after {end} tokens");
        assert_eq!(ours, last_logits(&model, &ids[start..end]), "{what}");
        // The head on all positions is a product of another shape: two sums of 16 terms.
        let expected = uncached(&model, &ids[start..end]);
        assert_close(what, &ours, &expected, Scale::Largest, ulps_of_sum(2 * 16));
    }
    assert_eq!(session.ids(), ids);
}

#[test]
fn earlier_tokens_have_an_effect_on_later_ones() {
    let model = model();
    let after = |ids: &[u32]| {
        let mut session = Session::new(&model);
        let (last, before) = ids.split_last().unwrap();
        for id in before {
            session.step(*id);
        }
        session.step(*last)
    };
    let (one, other) = (after(&[1, 2, 3, 4, 5]), after(&[9, 2, 3, 4, 5]));
    assert_differs("another first token", &one, &other, Scale::One, 1e-3);
}
