//! Kinds of positions: parity with transformers and the papers' code (`fixtures/parts`), their effect on scores, and
//! invalid settings.

use crate::golden::Golden;
use attentive_model::positions::{
    RelativePositionBias, RotaryConfig, T5BucketsConfig, alibi_slopes,
};
use attentive_model::{ForwardOptions, Input, Mask, Model, ModelConfig};
use attentive_tensor::{ScoreBias, Scores, attention_weights, rotary};
use attentive_testing::{Scale, VALUES, assert_close, assert_differs, assert_near, ulps};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};

#[test]
fn scaled_rotary_positions_are_those_of_transformers() {
    let golden = Golden::open(Device::flex().autodiff());
    for case in golden.cases("rotary") {
        let config: RotaryConfig = serde_json::from_value(case.settings.clone()).unwrap();
        let length = *case.integers("positions").iter().max().unwrap() as usize + 1;
        let ours = config.frequencies(16, length);
        let (name, factor) = (&case.name, case.values("attention_factor")[0]);
        let ours_factor = ours.attention_factor;
        assert_near(name, ours_factor, factor, Scale::Largest, ulps(1));
        let theirs = wide(&case.values("frequencies"));
        let each = Scale::Terms(&theirs);
        assert_close(name, &ours.frequencies, &theirs, each, 1e-6);
        let angles = config.angles(case.positions("positions"), 16);
        for part in ["query", "key"] {
            let x = case.tensor::<4>(part).require_grad();
            let y = rotary(x.clone(), &angles);
            // An angle of 150 radians has rounding errors of 1e-5 in f32, in theirs and in ours.
            case.compare(&format!("rotated_{part}"), y.clone(), VALUES);
            let loss = (y * case.tensor(&format!("upstream_{part}"))).sum();
            let gradient = x.grad(&loss.backward()).unwrap();
            case.compare(&format!("gradient_{part}"), gradient, VALUES);
        }
    }
}

#[test]
fn alibi_slopes_are_those_of_the_papers_code() {
    let golden = Golden::open(Device::flex());
    for case in golden.cases("alibi") {
        let heads = case.settings.as_u64().unwrap() as usize;
        let (ours, theirs) = (alibi_slopes(heads), wide(&case.values("slopes")));
        assert_eq!(ours.len(), heads);
        assert_close(heads, &ours, &theirs, Scale::Terms(&theirs), 1e-6);
    }
}

#[test]
fn t5_buckets_biases_and_gradients_are_those_of_transformers() {
    let golden = Golden::open(Device::flex().autodiff());
    for case in golden.cases("t5_buckets") {
        let config: T5BucketsConfig = serde_json::from_value(case.settings.clone()).unwrap();
        let distances = case.integers("distances").into_iter();
        let ours: Vec<i64> = distances.map(|it| config.bucket(it) as i64).collect();
        assert_eq!(ours, case.integers("buckets"), "{}", case.name);
        let table = case.tensor::<2>("table").require_grad();
        let bias = pairs(
            &RelativePositionBias::t5_buckets(&config, table.clone()),
            5,
            9,
        );
        case.compare("bias", bias.clone(), 0.0);
        let loss = (bias * case.tensor("upstream")).sum();
        let gradient = table.grad(&loss.backward()).unwrap();
        case.compare("gradient", gradient, 1e-6);
    }
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec::<f32>().unwrap()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|it| f64::from(*it)).collect()
}

/// The bias of each pair, `[1, heads, queries, keys]`.
fn pairs(bias: &RelativePositionBias, queries: usize, keys: usize) -> Tensor<4> {
    let distances = bias.distances(queries, keys);
    let [heads, _] = distances.dims();
    let entries: Vec<i64> = (0..queries)
        .flat_map(|i| (0..keys).map(move |j| (j + queries - 1 - i) as i64))
        .collect();
    let entries = TensorData::new(entries, [queries * keys]);
    let entries = Tensor::<1, Int>::from_data(entries, &distances.device());
    distances
        .select(1, entries)
        .reshape([1, heads, queries, keys])
}

#[test]
fn pairs_take_their_distance() {
    let device = Device::flex();
    let bias = RelativePositionBias::alibi(3, &device);
    for (queries, keys) in [(1, 1), (1, 7), (4, 4), (3, 5), (5, 2)] {
        let distances = values(bias.distances(queries, keys));
        let of_pairs = values(pairs(&bias, queries, keys));
        let entries = queries + keys - 1;
        assert_eq!(distances.len(), 3 * entries);
        for (head, slope) in alibi_slopes(3).iter().enumerate() {
            for i in 0..queries {
                for j in 0..keys {
                    let position = (keys + i) as f32 - queries as f32;
                    let expected = -slope * (position - j as f32).abs();
                    let entry = distances[head * entries + j + queries - 1 - i];
                    let pair = of_pairs[(head * queries + i) * keys + j];
                    assert_eq!((entry, pair), (expected, expected));
                }
            }
        }
    }
}

/// By definition: softmax of `q · k · scale - slope · distance`.
#[test]
fn alibi_lowers_scores_by_the_distance() {
    let device = Device::flex();
    device.seed(5);
    let random = |length| Tensor::<4>::random([1, 2, length, 4], Distribution::Default, &device);
    let (query, key) = (random(3), random(5));
    let scores = Scores {
        bias: Some(ScoreBias::Pairs(pairs(
            &RelativePositionBias::alibi(2, &device),
            3,
            5,
        ))),
        ..Scores::new(Mask::causal(), 0.5)
    };
    let weights = values(attention_weights(query.clone(), key.clone(), &scores));
    let (query, key) = (values(query), values(key));
    let mut expected = Vec::new();
    for (head, slope) in alibi_slopes(2).into_iter().enumerate() {
        for i in 0..3 {
            let score = |j: usize| -> f32 {
                let dot: f32 = (0..4)
                    .map(|w| query[(head * 3 + i) * 4 + w] * key[(head * 5 + j) * 4 + w])
                    .sum();
                (dot * 0.5 - slope * (i + 2 - j) as f32).exp()
            };
            let sum: f32 = (0..i + 3).map(score).sum();
            expected.extend((0..5).map(|j| if j < i + 3 { score(j) / sum } else { 0.0 }));
        }
    }
    assert_close("weights", &weights, &expected, Scale::One, 1e-6);
}

fn config(change: &str) -> ModelConfig {
    let change: serde_json::Value = serde_json::from_str(change).unwrap();
    let mut config = serde_json::json!({
        "vocabulary": 11, "length": 16, "width": 12, "init_std": 0.3,
        "positions": { "kind": "none" },
        "blocks": [{ "repeat": 2, "norm": { "kind": "rms" },
            "attention": { "kind": "full", "heads": 3 },
            "feed_forward": { "kind": "gated", "hidden_width": 8 } }],
    });
    for (key, value) in change.as_object().unwrap() {
        config[key] = value.clone();
    }
    serde_json::from_value(config).unwrap()
}

const KINDS: [&str; 11] = [
    r#"{ "kind": "learned" }"#,
    r#"{ "kind": "axial", "shape": [4, 4], "widths": [5, 7] }"#,
    r#"{ "kind": "sinusoidal" }"#,
    r#"{ "kind": "rotary" }"#,
    r#"{ "kind": "rotary", "scaling": { "kind": "linear", "factor": 2.0 } }"#,
    r#"{ "kind": "rotary", "scaling": { "kind": "ntk", "factor": 2.0, "original_length": 3 } }"#,
    r#"{ "kind": "rotary", "scaling": { "kind": "yarn", "factor": 2.0, "original_length": 4 } }"#,
    r#"{ "kind": "rotary", "scaling": { "kind": "llama3", "factor": 2.0, "original_length": 32 } }"#,
    r#"{ "kind": "alibi" }"#,
    r#"{ "kind": "t5_buckets", "buckets": 6, "max_distance": 9 }"#,
    r#"{ "kind": "none" }"#,
];

/// The same weights with other positions give other logits: no kind is accepted and ignored.
#[test]
fn every_kind_has_an_effect() {
    let device = Device::flex();
    let logits = |positions: &str, ids: [[i32; 6]; 1]| {
        let config = config(&format!(r#"{{ "positions": {positions} }}"#));
        // A table of positions is initialized before the blocks, so its model has other weights; the others share theirs.
        let model = Model::new(&config, 7, &device).unwrap();
        let ids = Tensor::<2, Int>::from_ints(ids, &device);
        model
            .forward(Input::new(ids), ForwardOptions::default())
            .into_logits()
    };
    let last = |logits: Tensor<3>| logits.narrow(1, 5, 1);
    let differs = |kind: &str, one: &Tensor<3>, other: &Tensor<3>, least: f64| {
        let [one, other] = [one, other].map(|it| values(it.clone()));
        assert_differs(kind, &one, &other, Scale::One, least);
    };
    let mut found: Vec<Tensor<3>> = Vec::new();
    for kind in KINDS {
        let ours = logits(kind, [[1, 2, 3, 4, 5, 6]]);
        for other in &found {
            differs(kind, &ours, other, 1e-3);
        }
        // Without positions, order could not matter with one layer; with two, it does because of the causal mask.
        let swapped = logits(kind, [[2, 1, 3, 4, 5, 6]]);
        differs(kind, &last(ours.clone()), &last(swapped), 1e-6);
        found.push(ours);
    }
}

#[test]
fn every_kind_saves_and_loads() {
    use attentive_checkpoint::SpecialTokens;
    use attentive_checkpoint::{self as checkpoint};
    for kind in KINDS {
        let config = config(&format!(r#"{{ "positions": {kind} }}"#));
        let model = Model::new(&config, 7, &Device::flex()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        checkpoint::save(folder.path(), &model, &SpecialTokens::default()).unwrap();
        let (back, _) = checkpoint::load(folder.path(), &Device::flex()).unwrap();
        assert_eq!(back.config().canonical(), config.canonical());
        let ids = || Tensor::<2, Int>::from_ints([[1, 2, 3, 4, 5, 6]], &Device::flex());
        let run = |model: &Model| {
            let output = model.forward(Input::new(ids()), ForwardOptions::default());
            output.into_logits().into_data()
        };
        assert_eq!(run(&back), run(&model), "{kind}");
    }
}

#[test]
fn given_positions_are_refused_where_they_have_no_meaning() {
    for (kind, fits) in [("sinusoidal", true), ("alibi", false), ("none", false)] {
        let config = config(&format!(r#"{{ "positions": {{ "kind": "{kind}" }} }}"#));
        let run = || {
            let model = Model::new(&config, 7, &Device::flex()).unwrap();
            let ids = Tensor::<2, Int>::from_ints([[1, 2]], &Device::flex());
            let input = Input {
                positions: Some(Tensor::from_ints([[3, 4]], &Device::flex())),
                ..Input::new(ids)
            };
            model
                .forward(input, ForwardOptions::default())
                .into_logits()
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        assert_eq!(done.is_ok(), fits, "{kind}");
    }
}

#[test]
fn invalid_settings_are_refused_in_a_sentence() {
    let full = |heads: usize, head_width: usize| {
        format!(
            r#"{{ "norm": {{ "kind": "rms" }}, "attention": {{ "kind": "full", "heads": {heads}, "head_width": {head_width} }},
                "feed_forward": {{ "kind": "gated", "hidden_width": 8 }} }}"#
        )
    };
    let blocks = |positions: &str, one: (usize, usize), other: (usize, usize)| {
        let (one, other) = (full(one.0, one.1), full(other.0, other.1));
        format!(r#"{{ "positions": {positions}, "blocks": [{one}, {other}] }}"#)
    };
    let scaling = |settings: &str| {
        format!(r#"{{ "positions": {{ "kind": "rotary", "scaling": {settings} }} }}"#)
    };
    let ntk =
        r#"{ "kind": "rotary", "scaling": { "kind": "ntk", "factor": 2, "original_length": 8 } }"#;
    let yarn = r#""kind": "yarn", "factor": 2, "original_length": 8"#;
    let llama3 = r#""kind": "llama3", "factor": 2, "original_length": 8"#;
    let t5 =
        |settings: &str| format!(r#"{{ "positions": {{ "kind": "t5_buckets", {settings} }} }}"#);
    let errors: Vec<String> = [
        r#"{ "width": 13, "positions": { "kind": "sinusoidal" }, "blocks": [] }"#.to_owned(),
        blocks(r#"{ "kind": "rotary" }"#, (3, 5), (3, 5)),
        blocks(r#"{ "kind": "rotary" }"#, (3, 4), (3, 6)),
        blocks(ntk, (3, 2), (3, 2)),
        blocks(r#"{ "kind": "alibi" }"#, (3, 4), (2, 4)),
        blocks(r#"{ "kind": "t5_buckets" }"#, (3, 4), (2, 4)),
        scaling(r#"{ "kind": "linear", "factor": 0.5 }"#),
        scaling(r#"{ "kind": "ntk", "factor": 2, "original_length": 0 }"#),
        scaling(&format!(r#"{{ {yarn}, "beta_fast": 1 }}"#)),
        scaling(&format!(r#"{{ {yarn}, "beta_slow": 0 }}"#)),
        scaling(&format!(r#"{{ {yarn}, "attention_factor": -1 }}"#)),
        scaling(&format!(r#"{{ {llama3}, "high_frequency_factor": 1 }}"#)),
        format!(
            r#"{{ "positions": {{ "kind": "rotary", "theta": 1, "scaling": {{ {yarn} }} }} }}"#
        ),
        t5(r#""buckets": 1"#),
        t5(r#""buckets": 5, "direction": "bidirectional""#),
        t5(r#""max_distance": 16"#),
        t5(r#""max_distance": 0"#),
    ]
    .iter()
    .map(|change| config(change).validate().unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(errors.join("\n"));
}
