//! Properties of all models built from parts: causality, KV caches, padding, norm placement, dropout, observers.

use attentive_model::feed_forward::FeedForwardConfig;
use attentive_model::positions::PositionsConfig;
use attentive_model::{
    Cache, ForwardOptions, Input, Model, ModelConfig, Observer, Purpose, Randomness, Recorder,
    Site, parameters, replace_parameters,
};
use attentive_testing::{Scale, assert_close, assert_differs, difference, ulps_of_sum};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The tolerance of logits that are computed from another number of rows. One after another, a block sums 16 terms (norm), 16
/// (projections), 4 (scores), 9 (positions), 16 (output), 16 (norm), 16 (hidden layer) and 24 (down projection); after two blocks
/// come 16 (norm) and 16 (head). Both computations round.
fn models() -> f64 {
    ulps_of_sum(2 * (2 * 117 + 32))
}

fn config(placement: &str, norm: &str, positions: &str, feed_forward: &str) -> ModelConfig {
    let json = format!(
        r#"{{ "vocabulary": 23, "length": 12, "width": 16, "init_std": 0.3,
            "positions": {{ "kind": "{positions}" }},
            "blocks": [{{ "repeat": 2, "placement": "{placement}", "dropout": 0.2, "norm": {{ "kind": "{norm}" }},
                "attention": {{ "kind": "full", "heads": 4, "key_value_heads": 2, "dropout": 0.2 }},
                "feed_forward": {feed_forward} }}] }}"#
    );
    serde_json::from_str(&json).unwrap()
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

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

fn logits(model: &Model, ids: [[i32; 6]; 1]) -> Tensor<3> {
    let ids = Tensor::<2, Int>::from_ints(ids, &Device::flex());
    model
        .forward(Input::new(ids), ForwardOptions::default())
        .into_logits()
}

#[test]
fn a_later_token_never_changes_an_earlier_output() {
    for config in every_config() {
        let model = Model::new(&config, 3, &Device::flex()).unwrap();
        let one = logits(&model, [[1, 2, 3, 4, 5, 6]]);
        let other = logits(&model, [[1, 2, 3, 4, 17, 9]]);
        let [before, after] = [(0, 4), (4, 2)].map(|(start, count)| {
            [&one, &other].map(|logits| values(logits.clone().narrow(1, start, count)))
        });
        let what = format!("{config:?}");
        match config.stack.blocks[0].feed_forward {
            // Another token may send more or fewer rows through an expert, and a product of other sizes may round differently: in
            // each of two blocks sums of 16 and 8 terms. The head sums 16 terms of what is left of the difference.
            FeedForwardConfig::Experts(_) => {
                let bound = ulps_of_sum(2 * (16 + 8) + 16);
                assert_close(&what, &before[1], &before[0], Scale::Largest, bound);
            }
            FeedForwardConfig::Plain(_) | FeedForwardConfig::Gated(_) => {
                assert_eq!(before[1], before[0], "{what}");
            }
        }
        assert_differs(&what, &after[1], &after[0], Scale::One, 1e-3);
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
        let options = ForwardOptions {
            observer: Some(&mut recorder),
            ..ForwardOptions::default()
        };
        model.hidden_states(Input::new(ids), options);
        let (site, hidden) = recorder.hidden[2].clone();
        assert_eq!(site, Site::Block { layer: 1 });
        let squares = values(hidden.clone().square().mean_dim(2));
        let means = values(hidden.mean_dim(2));
        let off = difference(&squares, &[1f32; 4], Scale::One);
        let off = off.max(difference(&means, &[0f32; 4], Scale::One));
        assert!(off.is_finite(), "{placement}: {off}");
        assert_eq!(off < 1e-3, normalized, "{placement}: {off}");
    }
}

/// With norms on both sides, the output of a sublayer is normalized before it is added.
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
    // With weights of zero, the norms of both outputs are zero, and the stream does not change.
    let zeros = names
        .iter()
        .filter(|name| name.contains("norm_of_branch"))
        .map(|name| (name.clone(), TensorData::new(vec![0f32; 16], [16])));
    let model = replace_parameters(model, zeros.collect());
    let mut recorder = Recorder::default();
    let ids = Tensor::<2, Int>::from_ints([[1, 2, 3, 4]], &Device::flex());
    let options = ForwardOptions {
        observer: Some(&mut recorder),
        ..ForwardOptions::default()
    };
    model.hidden_states(Input::new(ids), options);
    let stream = |i: usize| recorder.hidden[i].1.to_data();
    assert_eq!(stream(0), stream(1));
    assert_eq!(stream(0), stream(2));
}

/// Replaces the output of the first block by zeros.
struct ZeroFirstBlock;

impl Observer for ZeroFirstBlock {
    fn hidden(&mut self, site: Site, value: Tensor<3>) -> Tensor<3> {
        match site {
            Site::Block { layer: 0 } => value.zeros_like(),
            _ => value,
        }
    }
}

#[test]
fn an_observer_changes_nothing_unless_it_replaces_the_stream() {
    for placement in ["before", "after", "both"] {
        let plain = r#"{ "kind": "plain", "hidden_width": 24 }"#;
        let model = config(placement, "layer", "learned", plain);
        let model = Model::new(&model, 3, &Device::flex()).unwrap();
        let states = |ids: [i32; 4], observer: Option<&mut dyn Observer>| {
            let ids = Tensor::<2, Int>::from_ints([ids], &Device::flex());
            let options = ForwardOptions {
                observer,
                ..ForwardOptions::default()
            };
            values(model.hidden_states(Input::new(ids), options).states)
        };
        let (one, other) = ([1, 2, 3, 4], [5, 6, 7, 8]);
        let expected = states(one, Some(&mut Recorder::default()));
        assert_eq!(states(one, None), expected, "{placement}");
        let differs = |found: &[f32]| {
            assert_differs(placement, found, &expected, Scale::One, 1e-3);
        };
        differs(&states(other, None));
        let ablated = states(one, Some(&mut ZeroFirstBlock));
        differs(&ablated);
        assert_eq!(
            states(other, Some(&mut ZeroFirstBlock)),
            ablated,
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
            let options = ForwardOptions {
                cache: Some(&mut cache),
                ..ForwardOptions::default()
            };
            let chunk = model.forward(Input::new(ids), options).into_logits();
            let expected = values(whole.clone().narrow(1, start, count));
            let what = format!("at {start} in {config:?}");
            assert_close(what, &values(chunk), &expected, Scale::Largest, models());
        }
    }
}

#[test]
fn padding_changes_nothing() {
    for config in every_config() {
        // Absolute positions are counted from the start of the row and depend on padding on the left.
        if matches!(
            config.stack.positions,
            PositionsConfig::Learned(_) | PositionsConfig::Sinusoidal(_)
        ) {
            continue;
        }
        let model = Model::new(&config, 3, &Device::flex()).unwrap();
        let whole = values(logits(&model, [[1, 2, 3, 4, 5, 6]]));
        let ids = [[9, 9, 1, 2, 3, 4, 5, 6, 9], [1, 2, 3, 4, 5, 6, 8, 8, 8]];
        let input = Input {
            non_padding: Some(vec![2..8, 0..6]),
            ..Input::new(Tensor::from_ints(ids, &Device::flex()))
        };
        let padded = model
            .forward(input, ForwardOptions::default())
            .into_logits();
        for (row, start) in [(0, 2), (1, 0)] {
            let part = padded.clone().narrow(0, row, 1).narrow(1, start, 6);
            let what = format!("row {row} of {config:?}");
            assert_close(what, &values(part), &whole, Scale::Largest, models());
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
        let options = ForwardOptions {
            randomness: randomness.as_mut(),
            ..ForwardOptions::default()
        };
        values(model.forward(Input::new(ids), options).into_logits())
    };
    let [plain, one, other] = [None, Some((1, 2)), Some((1, 3))].map(run);
    assert_eq!(run(None), plain);
    assert_eq!(run(Some((1, 2))), one);
    assert_differs("with dropout", &one, &plain, Scale::One, 1e-3);
    assert_differs("in another step", &one, &other, Scale::One, 1e-3);
}
