//! What is particular to Reformer: what hashing may and may not change, its cost, and what it refuses.

use attentive_model::{
    AttentionConfig, Cache, CacheSize, Pass, Place, RelativePositions, Role, Widths,
};
use burn::tensor::{Device, Tensor};

use crate::refused::{refusal, refusal_with_positions, refused};
use crate::setting::{BATCH, Setting, WIDTH, gap, noise, numbers};

fn layer(fields: &str, role: Role, device: &Device) -> Setting {
    let words = format!(r#"{{ "kind": "reformer", "heads": 2, "buckets": 6, {fields} }}"#);
    let config: AttentionConfig = serde_json::from_str(&words).unwrap();
    Setting::new(&config, role, device).unwrap()
}

#[test]
fn a_later_token_that_keeps_its_direction_leaves_all_earlier_outputs_equal() {
    let device = Device::flex();
    let layer = layer(r#""rounds": 3, "chunk": 4"#, Role::Causal, &device);
    // 22 is no multiple of the chunk.
    let x = noise([BATCH, 22, WIDTH], 1, &device);
    let plain = layer.output(x.clone());
    let mut changed_themselves = 0;
    for later in 1..22 {
        let scaled = x.clone().narrow(1, later, 1) * 2.0;
        let changed = x
            .clone()
            .slice_assign([0..BATCH, later..later + 1, 0..WIDTH], scaled);
        let output = layer.output(changed);
        let early = |x: &Tensor<3>| numbers(x.clone().narrow(1, 0, later));
        assert_eq!(early(&plain), early(&output), "token {later}");
        let own = |x: &Tensor<3>| x.clone().narrow(1, later, 1);
        changed_themselves += usize::from(gap(own(&plain), own(&output)) > 1e-3);
    }
    // One that sees but a single key takes all of it, however long it is.
    assert!(changed_themselves > 15, "{changed_themselves} of 21");
}

#[test]
fn earlier_outputs_have_no_gradient_of_later_inputs() {
    let device = Device::flex().autodiff();
    let layer = layer(
        r#""rounds": 2, "chunk": 4, "chunks_after": 1"#,
        Role::Causal,
        &device,
    );
    for kept in [1, 7, 17] {
        let x = noise([BATCH, 18, WIDTH], 1, &device).require_grad();
        let early = layer.output(x.clone()).narrow(1, 0, kept);
        let slopes = x.grad(&early.powf_scalar(2.0).sum().backward()).unwrap();
        let later = numbers(slopes.clone().narrow(1, kept, 18 - kept));
        assert!(later.iter().all(|it| *it == 0.0), "{kept} kept");
        assert!(
            numbers(slopes.narrow(1, 0, kept))
                .iter()
                .any(|it| *it != 0.0)
        );
    }
}

#[test]
fn a_query_sees_itself_only_if_it_sees_nothing_else() {
    let device = Device::flex();
    for rounds in [1, 3] {
        let fields = format!(r#""rounds": {rounds}, "chunk": 4"#);
        let layer = layer(&fields, Role::Causal, &device);
        let weights = layer
            .weights(noise([BATCH, 18, WIDTH], 1, &device))
            .unwrap();
        let all = numbers(weights);
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
            r#""rounds": 3, "chunk": 4, "chunks_after": 1"#,
            role,
            &device,
        );
        let x = noise([BATCH, 18, WIDTH], 1, &device);
        let plain = layer.output(x.clone());
        let apart = gap(plain, layer.observed(x).output);
        assert!(apart < 1e-5, "{role:?}: {apart} apart");
    }
}

#[test]
fn chunks_that_see_everything_are_one_chunk() {
    let device = Device::flex();
    let x = noise([BATCH, 20, WIDTH], 1, &device);
    for role in [Role::Bidirectional, Role::Causal] {
        let one = layer(r#""rounds": 1, "chunk": 20"#, role, &device);
        // Five chunks: each sees the four others.
        let five = layer(
            r#""rounds": 1, "chunk": 4, "chunks_before": 2, "chunks_after": 2"#,
            role,
            &device,
        );
        let apart = gap(one.output(x.clone()), five.output(x.clone()));
        assert!(apart < 1e-5, "{role:?}: {apart} apart");
    }
}

#[test]
fn operations_grow_with_the_length_times_the_chunk() {
    let config = layer(r#""rounds": 2, "chunk": 8"#, Role::Causal, &Device::flex()).config;
    let per_token = |length| config.operations(WIDTH, length).attention;
    // Two rounds of 16 keys and 6 buckets, 16 numbers in all heads: 4 · 16 · 32 + 16 · 12.
    assert_eq!(per_token(1_000), 2240);
    assert_eq!(per_token(1_000_000), 2240);
    assert_eq!(per_token(8), 4 * 16 * 8);
    assert_eq!(config.cache(WIDTH), CacheSize::Impossible);
}

#[test]
#[should_panic(expected = "Reformer attention: no cache can serve it")]
fn a_cache_is_refused() {
    let device = Device::flex();
    let layer = layer(r#""rounds": 2, "chunk": 8"#, Role::Causal, &device);
    let mut cache = Cache::new();
    let mut pass = Pass {
        cache: Some(&mut cache),
        ..Pass::default()
    };
    layer.run(noise([1, 3, WIDTH], 1, &device), None, &mut pass);
}

#[test]
fn what_cannot_work_is_told_in_a_sentence() {
    let words = |buckets: usize, rounds: usize, chunk: usize, more: &str| {
        format!(
            r#"{{ "kind": "reformer", "heads": 4, "buckets": {buckets}, "rounds": {rounds}, "chunk": {chunk}{more} }}"#
        )
    };
    let check = |words: String, expected: &str| {
        assert_eq!(
            refusal(&words, Role::Causal, WIDTH),
            format!("attention.{expected}")
        );
    };
    let range = "is out of range; use 1 to";
    check(words(0, 1, 4, ""), &format!("buckets: 0 {range} 65536"));
    check(
        words(5, 1, 4, ""),
        "buckets: 5 is odd, and a rotation gives two buckets; use an even number",
    );
    check(words(4, 0, 4, ""), &format!("rounds: 0 {range} 64"));
    check(words(4, 1, 0, ""), &format!("chunk: 0 {range} 268435456"));
    check(
        words(4, 1, 4, r#", "chunks_before": 1023"#),
        "chunks_before: 1023 chunks before and after are more than there are; a length of 24 has 6",
    );
    // What fits into one chunk looks at no neighbours.
    let neighbours = r#", "chunks_before": 1, "chunks_after": 1"#;
    let place = Place::new(Role::Causal, Widths::all(WIDTH), 24);
    assert_eq!(refused(&words(4, 1, 24, neighbours), &place), None);
    check(
        words(4, 1, 4, r#", "key_value_heads": 2"#),
        "key_value_heads: 2 differs from heads; Reformer attention shares no keys among heads: use 4, or leave it out",
    );
    assert_eq!(
        refusal(&words(4, 1, 4, ""), Role::Cross, WIDTH),
        "attention.kind: Reformer attention cannot be cross; it can be bidirectional or causal"
    );
    assert_eq!(
        refusal_with_positions(&words(4, 1, 4, ""), Role::Causal, RelativePositions::Rotary),
        "attention.kind: Reformer attention has no use for rotary positions; choose learned, sinusoidal or no positions"
    );
}
