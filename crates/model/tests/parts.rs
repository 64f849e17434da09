//! Properties of models built from parts, whatever the parts: causality, caches, padding, where the norms stand, what dropout
//! does.

use attentive_model::{
    Cache, Extras, FeedForwardConfig, Input, Model, ModelConfig, Observer, PositionsConfig,
    Purpose, Randomness, Recorder, Site, parameters, replace_parameters,
};
use burn::tensor::{Device, Int, Tensor, TensorData};

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
    let experts = r#"{ "kind": "experts", "experts": 3, "active": 2, "hidden_width": 8 }"#;
    for placement in ["before", "after", "both"] {
        for norm in ["layer", "rms"] {
            for positions in ["learned", "rotary"] {
                for feed_forward in [plain, gated, experts] {
                    all.push(config(placement, norm, positions, feed_forward));
                }
            }
        }
    }
    for positions in ["sinusoidal", "alibi", "t5_buckets", "none"] {
        all.push(config("before", "rms", positions, gated));
    }
    all
}

fn logits(model: &Model, ids: [[i32; 6]; 1]) -> Tensor<3> {
    let ids = Tensor::<2, Int>::from_ints(ids, &Device::flex());
    model
        .forward(Input::new(ids), Extras::default())
        .into_words()
}

#[test]
fn a_later_token_never_changes_an_earlier_output() {
    for config in every_config() {
        let model = Model::new(&config, 3, &Device::flex()).unwrap();
        let one = logits(&model, [[1, 2, 3, 4, 5, 6]]);
        let other = logits(&model, [[1, 2, 3, 4, 17, 9]]);
        let gap = (one - other).abs();
        let before = gap.clone().narrow(1, 0, 4).max().into_scalar::<f32>();
        let after = gap.narrow(1, 4, 2).max().into_scalar::<f32>();
        // A product of more rows may round otherwise, and another token may send more or fewer rows through an expert.
        let feed_forward = &config.blocks[0].feed_forward;
        let rounding = match feed_forward {
            FeedForwardConfig::Experts(_) => 1e-5,
            FeedForwardConfig::Plain(_) | FeedForwardConfig::Gated(_) => 0.0,
        };
        assert!(
            before <= rounding && after > 1e-3,
            "{before} {after} in {config:?}"
        );
    }
}

#[test]
fn norms_after_the_sublayers_leave_a_normalized_stream_and_norms_before_do_not() {
    for (placement, normalized) in [("after", true), ("before", false), ("both", false)] {
        let plain = r#"{ "kind": "plain", "hidden_width": 24 }"#;
        let config = config(placement, "layer", "learned", plain);
        let model = Model::new(&config, 3, &Device::flex()).unwrap();
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

/// With norms on both sides, what a sublayer adds to the stream is normalized itself.
#[test]
fn norms_on_both_sides_normalize_what_is_added() {
    let plain = r#"{ "kind": "plain", "hidden_width": 24 }"#;
    let config = config("both", "rms", "none", plain);
    let model = Model::new(&config, 3, &Device::flex()).unwrap();
    let names: Vec<String> = parameters(&model).into_iter().map(|it| it.name).collect();
    for part in ["attention", "feed_forward"] {
        for norm in ["norm_before", "norm_of_branch"] {
            assert!(names.contains(&format!("stack.blocks.1.{part}.{norm}.weight")));
        }
    }
    // Without its weights, the norm of what attention adds is zero, and so is that of the feed-forward layer: the stream
    // stays what it was.
    let zeros = names
        .iter()
        .filter(|name| name.contains("norm_of_branch"))
        .map(|name| (name.clone(), TensorData::new(vec![0f32; 16], [16])));
    let model = replace_parameters(model, zeros.collect());
    let mut recorder = Recorder::default();
    let ids = Tensor::<2, Int>::from_ints([[1, 2, 3, 4]], &Device::flex());
    let extras = Extras {
        observer: Some(&mut recorder),
        ..Extras::default()
    };
    model.hidden(Input::new(ids), extras);
    let stream = |i: usize| recorder.hidden[i].1.to_data();
    assert_eq!(stream(0), stream(1));
    assert_eq!(stream(0), stream(2));
}

/// Forgets what the first block gave.
struct Forgetful;

impl Observer for Forgetful {
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        match site {
            Site::Block { layer: 0 } => value.zeros_like(),
            _ => value,
        }
    }
}

#[test]
fn who_looks_changes_nothing_and_who_replaces_the_stream_all_that_follows() {
    for placement in ["before", "after", "both"] {
        let plain = r#"{ "kind": "plain", "hidden_width": 24 }"#;
        let model = config(placement, "layer", "learned", plain);
        let model = Model::new(&model, 3, &Device::flex()).unwrap();
        let states = |ids: [i32; 4], observer: Option<&mut dyn Observer>| {
            let ids = Tensor::<2, Int>::from_ints([ids], &Device::flex());
            let extras = Extras {
                observer,
                ..Extras::default()
            };
            model.hidden(Input::new(ids), extras).states.to_data()
        };
        let (one, other) = ([1, 2, 3, 4], [5, 6, 7, 8]);
        let seen = states(one, Some(&mut Recorder::default()));
        assert_eq!(states(one, None), seen, "{placement}");
        assert_ne!(states(other, None), seen, "{placement}");
        let forgotten = states(one, Some(&mut Forgetful));
        assert_ne!(forgotten, seen, "{placement}");
        assert_eq!(
            states(other, Some(&mut Forgetful)),
            forgotten,
            "{placement}"
        );
    }
}

#[test]
fn a_cache_changes_nothing() {
    for config in every_config() {
        let model = Model::new(&config, 3, &Device::flex()).unwrap();
        let whole = logits(&model, [[1, 2, 3, 4, 5, 6]]);
        let mut cache = Cache::new();
        for (start, ids) in [(0, vec![1, 2, 3]), (3, vec![4]), (4, vec![5, 6])] {
            let count = ids.len();
            let ids = TensorData::new(ids, [1, count]);
            let ids = Tensor::<2, Int>::from_data(ids, &Device::flex());
            let extras = Extras {
                cache: Some(&mut cache),
                ..Extras::default()
            };
            let part = model.forward(Input::new(ids), extras).into_words();
            let expected = whole.clone().narrow(1, start, count);
            let apart = (part - expected).abs().max().into_scalar::<f32>();
            assert!(apart < 1e-4, "{apart} at {start} in {config:?}");
        }
    }
}

#[test]
fn padding_changes_nothing() {
    for config in every_config() {
        // Positions that are counted from the row's first place see where the text begins.
        if matches!(
            config.positions,
            PositionsConfig::Learned(_) | PositionsConfig::Sinusoidal(_)
        ) {
            continue;
        }
        let model = Model::new(&config, 3, &Device::flex()).unwrap();
        let whole = logits(&model, [[1, 2, 3, 4, 5, 6]]);
        let ids = [[9, 9, 1, 2, 3, 4, 5, 6, 9], [1, 2, 3, 4, 5, 6, 8, 8, 8]];
        let input = Input {
            keys: Some(vec![2..8, 0..6]),
            ..Input::new(Tensor::from_ints(ids, &Device::flex()))
        };
        let padded = model.forward(input, Extras::default()).into_words();
        for (row, start) in [(0, 2), (1, 0)] {
            let part = padded.clone().narrow(0, row, 1).narrow(1, start, 6);
            let apart = (part - whole.clone()).abs().max().into_scalar::<f32>();
            assert!(apart < 1e-4, "{apart} in row {row} of {config:?}");
        }
    }
}

#[test]
fn dropout_needs_randomness_and_is_a_function_of_it() {
    let config = every_config().remove(0);
    let model = Model::new(&config, 3, &Device::flex()).unwrap();
    let run = |randomness: Option<(u64, u64)>| {
        let ids = Tensor::<2, Int>::from_ints([[1, 2, 3, 4, 5, 6]], &Device::flex());
        let mut randomness =
            randomness.map(|(seed, step)| Randomness::new(Purpose::Dropout, seed, step));
        let extras = Extras {
            randomness: randomness.as_mut(),
            ..Extras::default()
        };
        model
            .forward(Input::new(ids), extras)
            .into_words()
            .into_data()
    };
    assert_eq!(run(None), run(None));
    assert_eq!(run(Some((1, 2))), run(Some((1, 2))));
    assert_ne!(run(Some((1, 2))), run(None));
    assert_ne!(run(Some((1, 2))), run(Some((1, 3))));
}
