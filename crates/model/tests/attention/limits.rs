//! Where two kinds must agree: at the end of its range, a sparse or projected attention is the full one.

use std::collections::HashMap;

use attentive_model::{AttentionConfig, Role, parameters, replace_parameters};
use burn::tensor::{Device, TensorData};

use crate::setting::{BATCH, LENGTH, Setting, WIDTH, gap, noise, numbers};

const FULL: &str = r#"{ "kind": "full", "heads": 4, "bias": true, "output_bias": true }"#;
/// The longest sequence of the settings under test.
const LONGEST: usize = 24;

/// How far the outputs of full attention and another kind differ, with the same numbers in parameters of the same name.
fn from_full(config: &str, role: Role, length: usize, others: &[(&str, TensorData)]) -> f32 {
    let device = Device::flex();
    let build = |config: &str| {
        let config: AttentionConfig = serde_json::from_str(config).unwrap();
        Setting::new(&config, role, &device).unwrap()
    };
    let (full, other) = (build(FULL), build(config));
    let mut values: HashMap<String, TensorData> = HashMap::new();
    for (seed, parameter) in parameters(&full.layer).into_iter().enumerate() {
        let count = parameter.shape.iter().product();
        let drawn = noise([count], 40 + seed as u64, &device) * 0.4;
        values.insert(
            parameter.name,
            TensorData::new(numbers(drawn), parameter.shape),
        );
    }
    let extra = others
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let x = noise([BATCH, length, WIDTH], 1, &device);
    let output = |setting: Setting, values| {
        let layer = replace_parameters(setting.layer, values);
        let setting = Setting { layer, ..setting };
        setting.output(x.clone())
    };
    let all = values.clone().into_iter().chain(extra).collect();
    let (expected, found) = (output(full, values), output(other, all));
    let gap = gap(expected, found);
    println!("{config} {role:?}: {gap:.1e}");
    gap
}

fn check(config: &str, role: Role, length: usize, others: &[(&str, TensorData)]) {
    let gap = from_full(config, role, length, others);
    assert!(
        gap < 1e-5,
        "{config} {role:?} differs from full attention by {gap}"
    );
}

#[test]
fn a_window_as_long_as_the_sequence_is_full_attention() {
    for role in [Role::Bidirectional, Role::Causal] {
        let settings = r#""heads": 4, "bias": true, "output_bias": true"#;
        let sliding = format!(r#"{{ "kind": "sliding_window", "window": {LENGTH}, {settings} }}"#);
        check(&sliding, role, LENGTH, &[]);
        let window = 2 * LENGTH;
        let longformer = format!(r#"{{ "kind": "longformer", "window": {window}, {settings} }}"#);
        check(&longformer, role, LENGTH, &[]);
    }
}

#[test]
fn short_of_its_limit_a_kind_is_not_full_attention() {
    for (settings, role) in [
        (r#""kind": "sliding_window", "window": 10"#, Role::Causal),
        (r#""kind": "longformer", "window": 18"#, Role::Causal),
        (
            r#""kind": "longformer", "window": 22, "dilation": 2"#,
            Role::Bidirectional,
        ),
        (
            r#""kind": "big_bird", "block": 2, "random_blocks": 0"#,
            Role::Bidirectional,
        ),
    ] {
        let config = format!(r#"{{ {settings}, "heads": 4, "bias": true, "output_bias": true }}"#);
        assert!(from_full(&config, role, LENGTH, &[]) > 1e-3, "{config}");
    }
}

#[test]
fn blocks_that_cover_all_are_full_attention() {
    let settings = r#""heads": 4, "bias": true, "output_bias": true"#;
    // Eleven positions are four blocks of three, six of two, eleven of one, and one of sixteen.
    for (block, random_blocks) in [(3, 0), (2, 2), (2, 9), (1, 7), (16, 1)] {
        let config = format!(
            r#"{{ "kind": "big_bird", "block": {block}, "random_blocks": {random_blocks}, {settings} }}"#
        );
        check(&config, Role::Bidirectional, LENGTH, &[]);
    }
}

#[test]
fn maps_along_the_length_that_change_nothing_are_full_attention() {
    let mut identity = vec![0.0f32; LONGEST * LONGEST];
    for slot in 0..LONGEST {
        identity[slot * LONGEST + slot] = 1.0;
    }
    let identity = TensorData::new(identity, [LONGEST, LONGEST]);
    let config = format!(
        r#"{{ "kind": "linformer", "projected_length": {LONGEST}, "heads": 4, "bias": true, "output_bias": true }}"#
    );
    let maps = ["pattern.key_map", "pattern.value_map"].map(|name| (name, identity.clone()));
    check(&config, Role::Bidirectional, LONGEST, &maps);
}
