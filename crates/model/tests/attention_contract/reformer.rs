//! What is specific to Reformer: what hashing may and may not change, its cost, and what it refuses.

use attentive_model::attention::{AttentionSpec, CacheSize, RelativePositions, Role, Widths};
use attentive_model::{Cache, ForwardContext};
use burn::tensor::{Device, Tensor};

use crate::refusals::{refusal, refusal_with_positions, refused};
use crate::test_layer::{BATCH, TestLayer, WIDTH, assert_same, max_difference, noise, values};

fn layer(fields: &str, role: Role, device: &Device) -> TestLayer {
    let config = format!(r#"{{ "kind": "reformer", "heads": 2, "buckets": 6, {fields} }}"#);
    TestLayer::from_json(&config, role, device)
}

#[test]
fn a_later_token_that_keeps_its_direction_leaves_all_earlier_outputs_equal() {
    let device = Device::flex();
    let layer = layer(r#""hashes": 3, "chunk": 4"#, Role::Causal, &device);
    // 22 is not a multiple of the chunk.
    let x = noise([BATCH, 22, WIDTH], 1, &device);
    let plain = layer.output(x.clone());
    let mut changed_themselves = 0;
    for later in 1..22 {
        let scaled = x.clone().narrow(1, later, 1) * 2.0;
        let changed = x
            .clone()
            .slice_assign([0..BATCH, later..later + 1, 0..WIDTH], scaled);
        let output = layer.output(changed);
        let early = |x: &Tensor<3>| values(x.clone().narrow(1, 0, later));
        assert_eq!(early(&plain), early(&output), "token {later}");
        let own = |x: &Tensor<3>| x.clone().narrow(1, later, 1);
        let difference = max_difference(own(&plain), own(&output));
        assert!(difference.is_finite(), "token {later}");
        changed_themselves += usize::from(difference > 1e-3);
    }
    // A query with a single key takes its value, whatever the scale.
    assert!(changed_themselves > 15, "{changed_themselves} of 21");
}

#[test]
fn earlier_outputs_have_no_gradient_of_later_inputs() {
    let device = Device::flex().autodiff();
    let layer = layer(
        r#""hashes": 2, "chunk": 4, "chunks_after": 1"#,
        Role::Causal,
        &device,
    );
    for kept in [1, 7, 17] {
        let x = noise([BATCH, 18, WIDTH], 1, &device).require_grad();
        let early = layer.output(x.clone()).narrow(1, 0, kept);
        let gradients = x.grad(&early.powf_scalar(2.0).sum().backward()).unwrap();
        let later = values(gradients.clone().narrow(1, kept, 18 - kept));
        assert!(later.iter().all(|it| *it == 0.0), "{kept} kept");
        assert!(
            values(gradients.narrow(1, 0, kept))
                .iter()
                .any(|it| *it != 0.0)
        );
    }
}

#[test]
fn a_query_attends_to_itself_only_if_there_is_nothing_else() {
    let device = Device::flex();
    for hashes in [1, 3] {
        let fields = format!(r#""hashes": {hashes}, "chunk": 4"#);
        let layer = layer(&fields, Role::Causal, &device);
        let weights = layer
            .weights(noise([BATCH, 18, WIDTH], 1, &device))
            .unwrap();
        let all = values(weights);
        let rows: Vec<&[f32]> = all.chunks(18).collect();
        let mut alone = 0;
        for (index, row) in rows.iter().enumerate() {
            let position = index % 18;
            assert!(row[position + 1..].iter().all(|it| *it == 0.0));
            let others: f32 = row[..position].iter().sum();
            assert!(
                others == 0.0 || row[position] == 0.0,
                "row {index}: {row:?}"
            );
            alone += usize::from(others == 0.0);
        }
        // The first of each head and row, at least, and not all.
        assert!(
            (4..rows.len() / 2).contains(&alone),
            "{alone} of {}",
            rows.len()
        );
    }
}

#[test]
fn weights_that_an_observer_sees_give_the_output() {
    for role in [Role::Bidirectional, Role::Causal] {
        let device = Device::flex();
        let layer = layer(
            r#""hashes": 3, "chunk": 4, "chunks_after": 1"#,
            role,
            &device,
        );
        let x = noise([BATCH, 18, WIDTH], 1, &device);
        let plain = layer.output(x.clone());
        let observed = layer.observed(x).output;
        assert_same(format!("{role:?}"), observed, plain);
    }
}

#[test]
fn chunks_that_attend_to_everything_are_one_chunk() {
    let device = Device::flex();
    let x = noise([BATCH, 20, WIDTH], 1, &device);
    for role in [Role::Bidirectional, Role::Causal] {
        let one = layer(r#""hashes": 1, "chunk": 20"#, role, &device);
        // Five chunks: each attends to the four others.
        let five = layer(
            r#""hashes": 1, "chunk": 4, "chunks_before": 2, "chunks_after": 2"#,
            role,
            &device,
        );
        let (one, five) = (one.output(x.clone()), five.output(x.clone()));
        assert_same(format!("{role:?}"), five, one);
    }
}

#[test]
fn flops_grow_with_the_length_times_the_chunk() {
    let config = layer(r#""hashes": 2, "chunk": 8"#, Role::Causal, &Device::flex()).config;
    let per_token = |length| config.flops(WIDTH, length, Role::Causal).attention;
    // Two hashes, each with 16 keys and 6 buckets, and a width of 16 in all heads: 4 · 16 · 32 + 16 · 12.
    assert_eq!(per_token(1_000), 2240);
    assert_eq!(per_token(1_000_000), 2240);
    assert_eq!(per_token(8), 4 * 16 * 8);
    assert_eq!(config.cache(WIDTH), CacheSize::Impossible);
}

#[test]
#[should_panic(expected = "Reformer attention: it cannot use a cache")]
fn a_cache_is_refused() {
    let device = Device::flex();
    let layer = layer(r#""hashes": 2, "chunk": 8"#, Role::Causal, &device);
    let mut cache = Cache::new();
    let mut pass = ForwardContext {
        cache: Some(&mut cache),
        ..ForwardContext::default()
    };
    layer.run(noise([1, 3, WIDTH], 1, &device), None, &mut pass);
}

#[test]
fn invalid_settings_are_refused_in_a_sentence() {
    let config = |buckets: usize, hashes: usize, chunk: usize, more: &str| {
        format!(
            r#"{{ "kind": "reformer", "heads": 4, "buckets": {buckets}, "hashes": {hashes}, "chunk": {chunk}{more} }}"#
        )
    };
    let check = |config: String, expected: &str| {
        assert_eq!(
            refusal(&config, Role::Causal, WIDTH),
            format!("attention.{expected}")
        );
    };
    let range = "is out of range; use 1 to";
    check(config(0, 1, 4, ""), &format!("buckets: 0 {range} 65536"));
    check(
        config(5, 1, 4, ""),
        "buckets: 5 is odd, and a rotation gives two buckets; use an even number",
    );
    check(config(4, 0, 4, ""), &format!("hashes: 0 {range} 64"));
    check(config(4, 1, 0, ""), &format!("chunk: 0 {range} 268435456"));
    check(
        config(4, 1, 4, r#", "chunks_before": 1023"#),
        "chunks_before: 1023 chunks before and after are more than there are; a length of 24 has 6",
    );
    // A sequence that fits into one chunk has no neighbours.
    let neighbours = r#", "chunks_before": 1, "chunks_after": 1"#;
    let spec = AttentionSpec::new(Role::Causal, Widths::all(WIDTH), 24);
    assert_eq!(refused(&config(4, 1, 24, neighbours), &spec), None);
    check(
        config(4, 1, 4, r#", "key_value_heads": 2"#),
        "key_value_heads: 2 differs from heads, and Reformer attention has no grouped queries; use 4, or leave it out",
    );
    assert_eq!(
        refusal(&config(4, 1, 4, ""), Role::Cross, WIDTH),
        "attention.kind: Reformer attention cannot be cross; it can be bidirectional or causal"
    );
    assert_eq!(
        refusal_with_positions(
            &config(4, 1, 4, ""),
            Role::Causal,
            RelativePositions::Rotary
        ),
        "attention.kind: Reformer attention does not support rotary positions; choose learned, sinusoidal or no positions"
    );
}
