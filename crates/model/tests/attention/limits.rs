//! Where two kinds must agree: at the end of its range, a sparse or projected attention is the full one. And what only some
//! kinds do: globals of a pass.

use std::collections::HashMap;

use attentive_model::{AttentionConfig, Pass, Role, parameters, replace_parameters};
use burn::tensor::{Device, TensorData};

use crate::setting::{Asker, BATCH, LENGTH, Setting, WIDTH, gap, noise, numbers};

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

/// Globals of a pass, padding on both sides, gaps in the window: what is gathered without a matrix of pairs is what the
/// weights that an observer sees gather.
#[test]
fn longformer_gathers_by_the_weights_that_it_shows() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for (window, dilation, globals) in [(2, 1, 0), (4, 2, 1), (2, 3, 0), (6, 4, 3), (30, 5, 2)] {
        let config = format!(
            r#"{{ "kind": "longformer", "heads": 4, "window": {window}, "dilation": {dilation}, "globals": {globals} }}"#
        );
        let config: AttentionConfig = serde_json::from_str(&config).unwrap();
        let setting = Setting::new(&config, Role::Bidirectional, &device).unwrap();
        // Position 9 of row 1 is padding, which cannot be global.
        let pass = || Pass {
            globals: Some(vec![vec![0, 5, 10], vec![4, 9]]),
            real: Some(vec![0..LENGTH, 2..8]),
            ..Pass::default()
        };
        let gathered = setting.run(x.clone(), None, &mut pass()).output;
        let mut looking = Asker;
        let mut observed = Pass {
            observer: Some(&mut looking),
            ..pass()
        };
        let observed = setting.run(x.clone(), None, &mut observed);
        let difference = gap(gathered.clone(), observed.output);
        println!("longformer {window} {dilation} {globals}: {difference:.1e}");
        assert!(
            difference < 1e-5,
            "window {window}, dilation {dilation}, globals {globals}: the ways differ by {difference}"
        );
        let weights = observed.weights.unwrap();
        let expected = |query: usize, key: usize| {
            let is_global = |it: usize| (2..2 + globals).contains(&it) || it == 4;
            let distance = query.abs_diff(key);
            let near = distance.is_multiple_of(dilation) && distance / dilation <= window / 2;
            let real = (2..8).contains(&query) && (2..8).contains(&key);
            real && (near || is_global(query) || is_global(key))
        };
        let row = numbers(weights.narrow(0, 1, 1).narrow(1, 0, 1));
        for (pair, weight) in row.into_iter().enumerate() {
            let (query, key) = (pair / LENGTH, pair % LENGTH);
            assert_eq!(weight > 0.0, expected(query, key), "{query} sees {key}");
        }
        let padded = gathered.narrow(0, 1, 1).narrow(1, 8, 3);
        let most: f32 = padded.abs().max().into_scalar();
        assert_eq!(most, 0.0, "padding gathers nothing");
    }
}
