//! Sparse attention: global tokens given at run time, dilated windows with padding and cache, rotary positions in a layer with
//! its own projections, and lengths whose attention matrix does not fit into memory.

use attentive_model::attention::{AttentionInput, RelativePositions, Role};
use attentive_model::{Cache, ForwardContext};
use attentive_tensor::RotaryAngles;
use burn::tensor::{Device, Int, Tensor};

use crate::refusals::{refusal, refusal_with_positions};
use crate::test_layer::{
    BATCH, LENGTH, TestLayer, WIDTH, assert_differs, assert_same, noise, observed, values,
};

/// Global tokens given at run time, padding on both sides, dilation: the output computed without an attention matrix is that of
/// the weights that an observer sees.
#[test]
fn longformer_attends_with_the_weights_that_an_observer_sees() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for (window, dilation, globals) in [(2, 1, 0), (4, 2, 1), (2, 3, 0), (6, 4, 3), (30, 5, 2)] {
        let config = format!(
            r#"{{ "kind": "longformer", "heads": 4, "window": {window}, "dilation": {dilation}, "globals": {globals} }}"#
        );
        let layer = TestLayer::from_json(&config, Role::Bidirectional, &device);
        // Position 9 of row 1 is padding, which cannot be global.
        let given_globals = || Some(vec![vec![0, 5, 10], vec![4, 9]]);
        let non_padding = || Some(vec![0..LENGTH, 2..8]);
        let mut pass = ForwardContext {
            globals: given_globals(),
            non_padding: non_padding(),
            ..ForwardContext::default()
        };
        let output = layer.run(x.clone(), None, &mut pass);
        let input = AttentionInput::self_attention(x.clone(), 0);
        let observed = observed(&layer.layer, input, non_padding(), given_globals());
        let what = format!("window {window}, dilation {dilation}, globals {globals}");
        assert_same(what, output.clone(), observed.output);
        let weights = observed.weights.unwrap();
        let expected = |query: usize, key: usize| {
            let is_global = |it: usize| (2..2 + globals).contains(&it) || it == 4;
            let distance = query.abs_diff(key);
            let near = distance.is_multiple_of(dilation) && distance / dilation <= window / 2;
            let non_padding = (2..8).contains(&query) && (2..8).contains(&key);
            non_padding && (near || is_global(query) || is_global(key))
        };
        let row = values(weights.narrow(0, 1, 1).narrow(1, 0, 1));
        for (pair, weight) in row.into_iter().enumerate() {
            let (query, key) = (pair / LENGTH, pair % LENGTH);
            assert_eq!(
                weight > 0.0,
                expected(query, key),
                "{query} attends to {key}"
            );
        }
        let padded = values(output.narrow(0, 1, 1).narrow(1, 8, 3));
        assert_eq!(padded, [0.0; 3 * WIDTH], "the output of padding is zero");
    }
}

/// A cache that evicts what is outside of the window, padding on the left, and dilation.
#[test]
fn longformer_decodes_padded_sequences_with_dilation_as_it_prefills_them() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for dilation in 1..=4 {
        let config = format!(
            r#"{{ "kind": "longformer", "heads": 4, "window": 4, "dilation": {dilation} }}"#
        );
        let layer = TestLayer::from_json(&config, Role::Causal, &device);
        let non_padding = || Some(vec![3..LENGTH, 0..LENGTH]);
        let mut whole = ForwardContext {
            non_padding: non_padding(),
            ..ForwardContext::default()
        };
        let whole = layer.run(x.clone(), None, &mut whole);
        for lengths in [vec![1; LENGTH], vec![4, 1, 1, 5], vec![2, 3, 6]] {
            let (mut cache, mut start) = (Cache::new(), 0);
            for length in lengths {
                let mut pass = ForwardContext {
                    non_padding: non_padding(),
                    cache: Some(&mut cache),
                    ..ForwardContext::default()
                };
                let part = x.clone().narrow(1, start, length);
                let part = layer.run(part, None, &mut pass);
                let expected = whole.clone().narrow(1, start, length);
                let what = format!("dilation {dilation}: position {start}");
                assert_same(what, part, expected);
                cache.advance(length);
                start += length;
            }
        }
    }
}

#[test]
fn longformer_rotates_queries_and_keys_as_full_attention_does() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let rotated = |config: &str, role: Role, globals: Option<Vec<Vec<usize>>>| {
        let positions = Tensor::<1, Int>::arange(0..LENGTH as i64, &device).unsqueeze();
        let angles = RotaryAngles::from_frequencies(positions, &[1.0, 0.1], 1.0);
        let mut pass = ForwardContext {
            rotary: Some(angles),
            globals,
            ..ForwardContext::default()
        };
        TestLayer::from_json(config, role, &device).run(x.clone(), None, &mut pass)
    };
    let longformer = r#"{ "kind": "longformer", "heads": 4, "window": 22 }"#;
    for role in [Role::Bidirectional, Role::Causal] {
        // Both have the same parameters, because they create them in the same order.
        let full = rotated(r#"{ "kind": "full", "heads": 4 }"#, role, None);
        let found = rotated(longformer, role, None);
        assert_same(format!("{role:?}"), found, full.clone());
        let plain = TestLayer::from_json(longformer, role, &device).output(x.clone());
        assert_differs("rotary positions", full, plain);
    }
    let globals = || Some(vec![(0..LENGTH).collect(); BATCH]);
    let global = rotated(longformer, Role::Bidirectional, globals());
    let layer = TestLayer::from_json(longformer, Role::Bidirectional, &device);
    let mut pass = ForwardContext {
        globals: globals(),
        ..ForwardContext::default()
    };
    let plain = layer.run(x.clone(), None, &mut pass);
    assert_differs("rotated global queries and keys", global, plain);
}

/// The attention matrix would take 64 GiB per head.
#[test]
fn long_sequences_allocate_no_attention_matrix() {
    let length = 1 << 17;
    let device = Device::flex().autodiff();
    for config in [
        r#"{ "kind": "longformer", "heads": 2, "window": 8, "dilation": 3, "globals": 2 }"#,
        r#"{ "kind": "big_bird", "heads": 2, "block": 64, "random_blocks": 1 }"#,
    ] {
        let x = noise([1, length, WIDTH], 1, &device).require_grad();
        let output = TestLayer::from_json(config, Role::Bidirectional, &device).output(x.clone());
        let gradients = output.powf_scalar(2.0).sum().backward();
        let gradients = values(x.grad(&gradients).unwrap());
        assert!(gradients.iter().all(|it| it.is_finite()), "{config}");
    }
}

#[test]
fn unsupported_settings_of_sparse_attention_are_refused_in_a_sentence() {
    let longformer = |settings: &str, role| {
        let config = format!(r#"{{ "kind": "longformer", "heads": 4, {settings} }}"#);
        refusal(&config, role, WIDTH)
    };
    assert_eq!(
        longformer(r#""window": 5"#, Role::Bidirectional),
        "attention.window: 5 is odd, and half of the window is on each side of the query; use an even number"
    );
    assert_eq!(
        longformer(r#""window": 4, "globals": 1"#, Role::Causal),
        "attention.globals: 1 is out of range; use 0 in a causal layer, since globals attend to later positions"
    );
    assert_eq!(
        longformer(r#""window": 4, "globals": 25"#, Role::Bidirectional),
        "attention.globals: 25 is out of range; use 0 to 24"
    );
    assert_eq!(
        longformer(r#""window": 4, "dilation": 0"#, Role::Bidirectional),
        "attention.dilation: 0 is out of range; use 1 to 268435456"
    );
    assert_eq!(
        longformer(r#""window": 4"#, Role::Cross),
        "attention.kind: longformer attention cannot be cross; it can be bidirectional or causal"
    );
    assert_eq!(
        refusal_with_positions(
            r#"{ "kind": "longformer", "heads": 4, "window": 4 }"#,
            Role::Causal,
            RelativePositions::Bias
        ),
        "attention.kind: longformer attention does not support a relative position bias; choose learned, sinusoidal, rotary or no positions"
    );
    let big_bird = r#"{ "kind": "big_bird", "heads": 4, "block": 3, "random_blocks": 1 }"#;
    assert_eq!(
        refusal(big_bird, Role::Causal, WIDTH),
        "attention.kind: BigBird attention cannot be causal; it can be bidirectional"
    );
}
