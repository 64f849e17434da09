//! Properties of models built from parts, whatever the parts: causality, where the norms stand, what dropout does.

use attentive_model::{
    Extras, Input, LanguageModel, ModelConfig, Purpose, Randomness, Recorder, Site,
};
use burn::tensor::{Device, Int, Tensor};

fn config(placement: &str, norm: &str, positions: &str, feed_forward: &str) -> ModelConfig {
    let words = format!(
        r#"{{ "vocabulary": 23, "length": 12, "width": 16, "initial_deviation": 0.3,
            "positions": {{ "kind": "{positions}" }},
            "blocks": [{{ "repeat": 2, "placement": "{placement}", "dropout": 0.2, "norm": {{ "kind": "{norm}" }},
                "attention": {{ "kind": "full", "heads": 4, "key_value_heads": 2, "dropout": 0.2 }},
                "feed_forward": {feed_forward} }}] }}"#
    );
    serde_json::from_str(&words).unwrap()
}

fn every_config() -> Vec<ModelConfig> {
    let plain = r#"{ "kind": "plain", "hidden_width": 24, "activation": "relu" }"#;
    let gated = r#"{ "kind": "gated", "hidden_width": 24, "activation": "gelu" }"#;
    let mut all = Vec::new();
    for placement in ["before", "after"] {
        for norm in ["layer", "rms"] {
            for positions in ["learned", "rotary"] {
                for feed_forward in [plain, gated] {
                    all.push(config(placement, norm, positions, feed_forward));
                }
            }
        }
    }
    all
}

fn logits(model: &LanguageModel, ids: [[i32; 6]; 1]) -> Tensor<3> {
    let ids = Tensor::<2, Int>::from_ints(ids, &Device::flex());
    model.forward(Input::new(ids), Extras::default()).logits
}

#[test]
fn a_later_token_never_changes_an_earlier_output() {
    for config in every_config() {
        let model = LanguageModel::new(&config, 3, &Device::flex()).unwrap();
        let one = logits(&model, [[1, 2, 3, 4, 5, 6]]);
        let other = logits(&model, [[1, 2, 3, 4, 17, 9]]);
        let gap = (one - other).abs();
        let before = gap.clone().narrow(1, 0, 4).max().into_scalar::<f32>();
        let after = gap.narrow(1, 4, 2).max().into_scalar::<f32>();
        assert!(
            before == 0.0 && after > 1e-3,
            "{before} {after} in {config:?}"
        );
    }
}

#[test]
fn norms_after_the_sublayers_leave_a_normalized_stream_and_norms_before_do_not() {
    for (placement, normalized) in [("after", true), ("before", false)] {
        let plain = r#"{ "kind": "plain", "hidden_width": 24 }"#;
        let config = config(placement, "layer", "learned", plain);
        let model = LanguageModel::new(&config, 3, &Device::flex()).unwrap();
        let mut recorder = Recorder::default();
        let ids = Tensor::<2, Int>::from_ints([[1, 2, 3, 4]], &Device::flex());
        let extras = Extras {
            observer: Some(&mut recorder),
            ..Extras::default()
        };
        model.hidden(Input::new(ids), extras);
        let (site, hidden) = recorder.hidden[2].clone();
        assert_eq!(site, Site::Block { layer: 1 });
        let deviation = hidden.clone().square().mean_dim(2) - 1.0;
        let mean = hidden.mean_dim(2).abs().max().into_scalar::<f32>();
        let off = deviation.abs().max().into_scalar::<f32>().max(mean);
        assert_eq!(off < 1e-3, normalized, "{placement}: {off}");
    }
}

#[test]
fn dropout_needs_randomness_and_is_a_function_of_it() {
    let config = every_config().remove(0);
    let model = LanguageModel::new(&config, 3, &Device::flex()).unwrap();
    let run = |randomness: Option<(u64, u64)>| {
        let ids = Tensor::<2, Int>::from_ints([[1, 2, 3, 4, 5, 6]], &Device::flex());
        let mut randomness =
            randomness.map(|(seed, step)| Randomness::new(Purpose::Dropout, seed, step));
        let extras = Extras {
            randomness: randomness.as_mut(),
            ..Extras::default()
        };
        model.forward(Input::new(ids), extras).logits.into_data()
    };
    assert_eq!(run(None), run(None));
    assert_eq!(run(Some((1, 2))), run(Some((1, 2))));
    assert_ne!(run(Some((1, 2))), run(None));
    assert_ne!(run(Some((1, 2))), run(Some((1, 3))));
}
