//! What is specific to Transformer-XL: its memory, and what it refuses.

use attentive_model::attention::{AttentionInput, Role};
use attentive_model::{Cache, ForwardContext};
use attentive_testing::{Scale, assert_differs};
use burn::tensor::{Device, Tensor};

use crate::refusals::refusal;
use crate::test_layer::{BATCH, LENGTH, TestLayer, WIDTH, assert_same, noise, values};

fn layer(memory: usize, device: &Device) -> TestLayer {
    let config = format!(r#"{{ "kind": "transformer_xl", "heads": 4, "memory": {memory} }}"#);
    TestLayer::from_json(&config, Role::Causal, device)
}

#[test]
fn memory_is_the_last_inputs_and_no_more() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let layer = layer(3, &device);
    let with_cache = layer.output_with_cache(x.clone(), &[1; LENGTH], 0);
    for position in 0..LENGTH {
        let start = position.saturating_sub(3);
        let seen = position + 1 - start;
        let whole = layer.output(x.clone().narrow(1, start, seen));
        let found = with_cache.clone().narrow(1, position, 1);
        let expected = whole.narrow(1, seen - 1, 1);
        assert_same(format!("position {position}"), found, expected);
    }
}

#[test]
fn padding_is_counted_from_the_first_processed_position() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let layer = layer(4, &device);
    let mut cache = Cache::new();
    let mut last = None;
    // The last segment is 8..11 and its memory 4..8; positions before 6 and 1 are padding.
    for (start, length) in [(0, 4), (4, 4), (8, 3)] {
        let mut pass = ForwardContext {
            non_padding: Some(vec![6..LENGTH, 1..LENGTH]),
            cache: Some(&mut cache),
            ..ForwardContext::default()
        };
        let input = AttentionInput::self_attention(x.clone().narrow(1, start, length), 0);
        last = Some(layer.layer.forward(input, &mut pass));
        cache.advance(length);
    }
    let whole = layer.output_with_padding(x.narrow(1, 4, 7), None, vec![2..7, 0..7]);
    assert_same("the last segment", last.unwrap(), whole.narrow(1, 4, 3));
}

#[test]
fn no_gradient_flows_into_the_memory_and_weights_learn_from_it() {
    let device = Device::flex().autodiff();
    let layer = layer(8, &device);
    let mut cache = Cache::new();
    let mut run = |x: Tensor<3>| {
        let mut pass = ForwardContext {
            cache: Some(&mut cache),
            ..ForwardContext::default()
        };
        layer.run(x, None, &mut pass)
    };
    let first = noise([BATCH, 5, WIDTH], 1, &device).require_grad();
    let second = noise([BATCH, 5, WIDTH], 2, &device).require_grad();
    let before = run(first.clone());
    let after = run(second.clone());
    let without = values(layer.output(second.clone()));
    assert_differs("memory", &values(after.clone()), &without, Scale::One, 1e-2);
    let gradients = after.sum().backward();
    assert!(first.grad(&gradients).is_none());
    let gradients = values(second.grad(&gradients).unwrap());
    let zeros = vec![0f32; gradients.len()];
    assert_differs("gradient", &gradients, &zeros, Scale::One, 1e-3);
    // The first segment has gradients of its own.
    assert!(first.grad(&before.sum().backward()).is_some());
}

#[test]
#[should_panic(
    expected = "segment: new positions [3, 2, 16] do not match those cached, [2, 5, 16]"
)]
fn another_batch_does_not_fit_the_memory() {
    let device = Device::flex();
    let layer = layer(8, &device);
    let mut cache = Cache::new();
    for shape in [[2, 5, WIDTH], [3, 2, WIDTH]] {
        let mut pass = ForwardContext {
            cache: Some(&mut cache),
            ..ForwardContext::default()
        };
        layer.run(noise(shape, 1, &device), None, &mut pass);
    }
}

#[test]
fn invalid_settings_are_refused_in_a_sentence() {
    let check = |fields: &str, role, expected: &str| {
        let config = format!(r#"{{ "kind": "transformer_xl", {fields} }}"#);
        assert_eq!(refusal(&config, role, WIDTH), expected);
    };
    check(
        r#""heads": 4, "memory": 0"#,
        Role::Causal,
        "attention.memory: 0 is out of range; use 1 to 268435456",
    );
    check(
        r#""heads": 4, "memory": 5, "key_value_heads": 2"#,
        Role::Causal,
        "attention.key_value_heads: 2 differs from heads, and Transformer-XL attention has no grouped queries; use 4, or leave it out",
    );
    for (role, name) in [
        (Role::Bidirectional, "bidirectional"),
        (Role::Cross, "cross"),
    ] {
        check(
            r#""heads": 4, "memory": 5"#,
            role,
            &format!("attention.kind: Transformer-XL attention cannot be {name}; it can be causal"),
        );
    }
    assert_eq!(
        refusal(
            r#"{ "kind": "transformer_xl", "heads": 3, "memory": 5 }"#,
            Role::Causal,
            15
        ),
        "attention.kind: Transformer-XL attention needs as many sines as cosines; use an even width, not 15"
    );
}
