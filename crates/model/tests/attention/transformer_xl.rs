//! What is particular to Transformer-XL: its memory, and what it refuses.

use attentive_model::{AttentionConfig, AttentionInput, Cache, Pass, Role};
use burn::tensor::{Device, Tensor};

use crate::refused::refusal;
use crate::setting::{BATCH, LENGTH, Setting, WIDTH, gap, noise, numbers};

fn layer(memory: usize, device: &Device) -> Setting {
    let words = format!(r#"{{ "kind": "transformer_xl", "heads": 4, "memory": {memory} }}"#);
    let config: AttentionConfig = serde_json::from_str(&words).unwrap();
    Setting::new(&config, Role::Causal, device).unwrap()
}

#[test]
fn memory_reaches_back_so_many_inputs_and_no_further() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let layer = layer(3, &device);
    let in_pieces = layer.output_in_pieces(x.clone(), &[1; LENGTH], 0);
    for position in 0..LENGTH {
        let start = position.saturating_sub(3);
        let seen = position + 1 - start;
        let whole = layer.output(x.clone().narrow(1, start, seen));
        let apart = gap(
            whole.narrow(1, seen - 1, 1),
            in_pieces.clone().narrow(1, position, 1),
        );
        assert!(apart < 1e-5, "position {position}: {apart} apart");
    }
}

#[test]
fn padding_is_counted_from_the_first_position_that_ever_was() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let layer = layer(4, &device);
    let mut cache = Cache::new();
    let mut last = None;
    // The last piece stands at 8..11 and remembers 4..8; positions before 6 and 1 are padding.
    for (start, length) in [(0, 4), (4, 4), (8, 3)] {
        let mut pass = Pass {
            real: Some(vec![6..LENGTH, 1..LENGTH]),
            cache: Some(&mut cache),
            ..Pass::default()
        };
        let piece = AttentionInput::own(x.clone().narrow(1, start, length), 0);
        last = Some(layer.layer.forward(piece, &mut pass).output);
        cache.advance(length);
    }
    let whole = layer.output_of_real(x.narrow(1, 4, 7), None, vec![2..7, 0..7]);
    let apart = gap(whole.narrow(1, 4, 3), last.unwrap());
    assert!(apart < 1e-5, "{apart} apart");
}

#[test]
fn no_gradient_flows_into_the_memory_and_weights_learn_from_it() {
    let device = Device::flex().autodiff();
    let layer = layer(8, &device);
    let mut cache = Cache::new();
    let mut run = |x: Tensor<3>| {
        let mut pass = Pass {
            cache: Some(&mut cache),
            ..Pass::default()
        };
        layer.run(x, None, &mut pass).output
    };
    let first = noise([BATCH, 5, WIDTH], 1, &device).require_grad();
    let second = noise([BATCH, 5, WIDTH], 2, &device).require_grad();
    let before = run(first.clone());
    let after = run(second.clone());
    assert!(gap(after.clone(), layer.output(second.clone())) > 1e-2);
    let gradients = after.sum().backward();
    assert!(first.grad(&gradients).is_none());
    let slopes = numbers(second.grad(&gradients).unwrap());
    assert!(slopes.iter().any(|it| it.abs() > 1e-3));
    // The first segment has gradients of its own.
    assert!(first.grad(&before.sum().backward()).is_some());
}

#[test]
#[should_panic(expected = "segment: new positions [3, 2, 16] do not fit those held, [2, 5, 16]")]
fn another_batch_does_not_fit_the_memory() {
    let device = Device::flex();
    let layer = layer(8, &device);
    let mut cache = Cache::new();
    for shape in [[2, 5, WIDTH], [3, 2, WIDTH]] {
        let mut pass = Pass {
            cache: Some(&mut cache),
            ..Pass::default()
        };
        layer.run(noise(shape, 1, &device), None, &mut pass);
    }
}

#[test]
fn what_cannot_work_is_told_in_a_sentence() {
    let check = |fields: &str, role, expected: &str| {
        let words = format!(r#"{{ "kind": "transformer_xl", {fields} }}"#);
        assert_eq!(refusal(&words, role, WIDTH), expected);
    };
    check(
        r#""heads": 4, "memory": 0"#,
        Role::Causal,
        "attention.memory: 0 is out of range; use 1 to 268435456",
    );
    check(
        r#""heads": 4, "memory": 5, "key_value_heads": 2"#,
        Role::Causal,
        "attention.key_value_heads: 2 differs from heads; Transformer-XL attention shares no keys among heads: use 4, or leave it out",
    );
    for (role, word) in [
        (Role::Bidirectional, "bidirectional"),
        (Role::Cross, "cross"),
    ] {
        check(
            r#""heads": 4, "memory": 5"#,
            role,
            &format!("attention.kind: Transformer-XL attention cannot be {word}; it can be causal"),
        );
    }
    assert_eq!(
        refusal(
            r#"{ "kind": "transformer_xl", "heads": 3, "memory": 5 }"#,
            Role::Causal,
            15
        ),
        "attention.kind: Transformer-XL attention has as many sines as cosines; use an even width, not 15"
    );
}
