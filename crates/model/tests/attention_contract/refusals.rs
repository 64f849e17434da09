//! The error messages for invalid configs: each names the field and the allowed values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use attentive_formats::error_text::plain_serde_error;
use attentive_model::attention::{
    Attention, AttentionConfig, AttentionSpec, RelativePositions, Role, Widths,
};
use attentive_model::{Initializer, Model, ModelConfig};
use burn::tensor::Device;
use serde_json::{Value, json};

use crate::registered;
use crate::test_layer::{TestLayer, WIDTH, noise};

#[test]
fn invalid_values_are_refused_in_a_sentence() {
    let full = |rest: &str| format!(r#"{{ "kind": "full", {rest} }}"#);
    let heads = |kind: &str, rest: &str| format!(r#"{{ "kind": "{kind}", "heads": 4, {rest} }}"#);
    let reformer = |buckets: usize, hashes: usize| {
        let rest = format!(r#""buckets": {buckets}, "hashes": {hashes}, "chunk": 4"#);
        heads("reformer", &rest)
    };
    let linformer = |slots: usize| heads("linformer", &format!(r#""projected_length": {slots}"#));
    let causal = [
        full(r#""heads": 3"#),
        full(r#""heads": 0"#),
        full(r#""heads": 4, "key_value_heads": 3"#),
        full(r#""heads": 4, "head_width": 0"#),
        full(r#""heads": 4, "dropout": 1"#),
        full(r#""heads": 4, "head_norm": { "kind": "rms", "epsilon": 0 }"#),
        heads(
            "longformer",
            r#""window": 4, "head_norm": { "kind": "rms" }"#,
        ),
        heads(
            "transformer_xl",
            r#""memory": 4, "head_norm": { "kind": "rms" }"#,
        ),
        heads(
            "reformer",
            r#""buckets": 4, "hashes": 1, "chunk": 4, "head_norm": { "kind": "rms" }"#,
        ),
        heads("sliding_window", r#""window": 0"#),
        linformer(5),
        heads("longformer", r#""window": 5"#),
        heads("longformer", r#""window": 4, "dilation": 0"#),
        heads("longformer", r#""window": 4, "globals": 1"#),
        heads("big_bird", r#""block": 3, "random_blocks": 1"#),
        reformer(3, 1),
        reformer(4, 0),
        heads("linear", r#""dropout": 0.1"#),
        heads("performer", r#""features": 9, "dropout": 0.1"#),
        heads("performer", r#""features": 0"#),
        heads("performer", r#""features": 9, "resample_every": 0"#),
        heads("performer", r#""features": 9, "epsilon": 1e-4"#),
        heads("transformer_xl", r#""memory": 0"#),
        heads("cosine", r#""factor": 0"#),
        heads("cosine", r#""factor": 1e9"#),
        r#"{ "kind": "scored", "score": { "kind": "dot" }, "heads": 3 }"#.to_owned(),
        r#"{ "kind": "scored", "score": { "kind": "dot" }, "heads": 0 }"#.to_owned(),
        r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "heads": 3 }"#.to_owned(),
    ];
    let bidirectional = [
        linformer(25),
        heads("big_bird", r#""block": 0, "random_blocks": 1"#),
        heads("longformer", r#""window": 4, "globals": 25"#),
        heads("transformer_xl", r#""memory": 4"#),
    ];
    let cross = [
        heads("sliding_window", r#""window": 3"#),
        heads("longformer", r#""window": 4"#),
        reformer(4, 1),
    ];
    let messages = causal.iter().map(|it| refusal(it, Role::Causal, WIDTH));
    let messages = messages.chain(
        bidirectional
            .iter()
            .map(|it| refusal(it, Role::Bidirectional, WIDTH)),
    );
    let messages = messages.chain(cross.iter().map(|it| refusal(it, Role::Cross, WIDTH)));
    insta::assert_snapshot!(messages.collect::<Vec<_>>().join("\n"));
}

#[test]
fn positions_that_would_have_no_effect_are_refused_in_a_sentence() {
    let kinds = [
        r#"{ "kind": "linear", "heads": 4 }"#,
        r#"{ "kind": "performer", "heads": 4, "features": 9 }"#,
        r#"{ "kind": "linformer", "heads": 4, "projected_length": 5 }"#,
        r#"{ "kind": "longformer", "heads": 4, "window": 4 }"#,
        r#"{ "kind": "reformer", "heads": 4, "buckets": 4, "hashes": 1, "chunk": 4 }"#,
        r#"{ "kind": "transformer_xl", "heads": 4, "memory": 4 }"#,
        r#"{ "kind": "scored", "score": { "kind": "dot" } }"#,
        r#"{ "kind": "nadaraya_watson", "kernel": "gaussian" }"#,
        r#"{ "kind": "scored", "score": { "kind": "dot" }, "heads": 4 }"#,
        r#"{ "kind": "nadaraya_watson", "kernel": "gaussian", "heads": 4 }"#,
    ];
    let mut messages = Vec::new();
    for positions in [RelativePositions::Bias, RelativePositions::Rotary] {
        for config in kinds {
            let role = match config {
                config if config.contains("linformer") => Role::Bidirectional,
                _ => Role::Causal,
            };
            messages.extend(refused(config, &spec(role, positions)));
        }
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn invalid_models_are_refused_in_a_sentence() {
    // They are listed among the known kinds.
    registered::register();
    let full = || json!({ "kind": "full", "heads": 4 });
    let plain = || json!({ "kind": "plain", "hidden_width": 8 });
    let experts = |experts: usize, active: usize| {
        let config = json!({ "kind": "experts", "experts": experts, "active": active });
        with(config, "hidden_width", json!(8))
    };
    let messages = [
        model(full(), experts(4, 5), "none"),
        model(full(), experts(4, 0), "none"),
        model(full(), experts(0, 1), "none"),
        model(
            json!({ "kind": "scored", "score": { "kind": "dot" } }),
            plain(),
            "rotary",
        ),
        model(json!({ "kind": "linear", "heads": 4 }), plain(), "alibi"),
        model(
            with(
                json!({ "kind": "linformer", "heads": 4 }),
                "projected_length",
                json!(5),
            ),
            plain(),
            "none",
        ),
        model(json!({ "kind": "sparse", "heads": 4 }), plain(), "none"),
        model(with(full(), "window", json!(4)), plain(), "none"),
        model(full(), plain(), "relative"),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_sequence_longer_than_linformers_projections_panics_with_both_lengths() {
    let config = r#"{ "kind": "linformer", "heads": 4, "projected_length": 5 }"#;
    let layer = TestLayer::from_json(config, Role::Bidirectional, &Device::flex());
    let x = noise([1, 25, WIDTH], 1, &Device::flex());
    let panicked = catch_unwind(AssertUnwindSafe(|| layer.output(x))).unwrap_err();
    let sentence = panicked.downcast_ref::<String>().unwrap();
    assert_eq!(
        sentence,
        "linformer attention: 25 keys do not fit projections of length 24"
    );
}

/// Why a model of one such block cannot be built, or its config not parsed.
fn model(attention: Value, feed_forward: Value, positions: &str) -> String {
    let config = json!({
        "vocabulary": 8,
        "length": 24,
        "width": WIDTH,
        "positions": { "kind": positions },
        "blocks": [{
            "norm": { "kind": "layer" },
            "attention": attention,
            "feed_forward": feed_forward,
        }],
    });
    let config: Result<ModelConfig, _> = serde_path_to_error::deserialize(&config);
    match config {
        Ok(config) => {
            let built = Model::new(&config, 1, &Device::flex());
            built.expect_err("it is refused").to_string()
        }
        Err(error) => {
            let path = error.path().to_string();
            format!("{path}: {}", plain_serde_error(&error.inner().to_string()))
        }
    }
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

/// Why a layer cannot be built in this role and width.
pub fn refusal(config: &str, role: Role, width: usize) -> String {
    let refused = refused(config, &AttentionSpec::new(role, Widths::all(width), 24));
    refused.unwrap_or_else(|| panic!("{config} is built as {role:?}"))
}

/// Why a layer cannot be built in a model with these positions.
pub fn refusal_with_positions(config: &str, role: Role, positions: RelativePositions) -> String {
    refused(config, &spec(role, positions)).expect("it is refused")
}

fn spec(role: Role, positions: RelativePositions) -> AttentionSpec {
    AttentionSpec {
        positions,
        ..AttentionSpec::new(role, Widths::all(WIDTH), 24)
    }
}

/// Why a layer cannot be built, if it cannot.
pub fn refused(config: &str, spec: &AttentionSpec) -> Option<String> {
    let config: AttentionConfig = serde_json::from_str(config).unwrap();
    let initializer = &mut Initializer::new(1, &Device::flex());
    let built = Attention::new(&config, spec, initializer);
    built.err().map(|error| error.to_string())
}
