//! Where two kinds must agree: at the end of its range, a sparse or projected attention is the full one.

use std::collections::HashMap;

use attentive_model::attention::Role;
use attentive_model::{parameters, replace_parameters};
use burn::tensor::{Device, Tensor, TensorData};

use crate::test_layer::{
    BATCH, LENGTH, TestLayer, WIDTH, assert_differs, assert_same, noise, values,
};

const FULL: &str = r#"{ "kind": "full", "heads": 4, "bias": true, "output_bias": true }"#;
/// The maximum length of the layers under test.
const MAX_LENGTH: usize = 24;

/// The outputs of full attention and another kind, with the same values in parameters of the same name.
fn outputs(
    config: &str,
    role: Role,
    length: usize,
    others: &[(&str, TensorData)],
) -> [Tensor<3>; 2] {
    let device = Device::flex();
    let build = |config: &str| TestLayer::from_json(config, role, &device);
    let (full, other) = (build(FULL), build(config));
    let mut shared: HashMap<String, TensorData> = HashMap::new();
    for (seed, parameter) in parameters(&full.layer).into_iter().enumerate() {
        let count = parameter.shape.iter().product();
        let sampled = noise([count], 40 + seed as u64, &device) * 0.4;
        shared.insert(
            parameter.name,
            TensorData::new(values(sampled), parameter.shape),
        );
    }
    let extra = others
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let x = noise([BATCH, length, WIDTH], 1, &device);
    let output = |layer: TestLayer, parameters| {
        let replaced = TestLayer {
            layer: replace_parameters(layer.layer, parameters),
            ..layer
        };
        replaced.output(x.clone())
    };
    let all = shared.clone().into_iter().chain(extra).collect();
    [output(full, shared), output(other, all)]
}

fn check(config: &str, role: Role, length: usize, others: &[(&str, TensorData)]) {
    let [expected, found] = outputs(config, role, length, others);
    assert_same(format!("{config} {role:?}"), found, expected);
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
        let [full, other] = outputs(&config, role, LENGTH, &[]);
        assert_differs(config, full, other);
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
fn identity_projections_along_the_length_are_full_attention() {
    let mut identity = vec![0.0f32; MAX_LENGTH * MAX_LENGTH];
    for slot in 0..MAX_LENGTH {
        identity[slot * MAX_LENGTH + slot] = 1.0;
    }
    let identity = TensorData::new(identity, [MAX_LENGTH, MAX_LENGTH]);
    let config = format!(
        r#"{{ "kind": "linformer", "projected_length": {MAX_LENGTH}, "heads": 4, "bias": true, "output_bias": true }}"#
    );
    let maps = ["pattern.key_map", "pattern.value_map"].map(|name| (name, identity.clone()));
    check(&config, Role::Bidirectional, MAX_LENGTH, &maps);
}
