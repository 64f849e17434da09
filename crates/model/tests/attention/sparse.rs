//! What only sparse kinds do: globals of a pass, gaps in windows with padding and cache, rotary positions of a layer that makes
//! its own heads, and lengths whose matrix of pairs no memory holds.

use attentive_model::{AttentionConfig, AttentionOutput, Cache, Pass, RelativePositions, Role};
use attentive_tensor::RotaryAngles;
use burn::tensor::{Device, Int, Tensor};

use crate::refused::{refusal, refusal_with_positions};
use crate::setting::{Asker, BATCH, LENGTH, Setting, WIDTH, gap, noise, numbers};

fn setting(config: &str, role: Role, device: &Device) -> Setting {
    let config: AttentionConfig = serde_json::from_str(config).unwrap();
    Setting::new(&config, role, device).unwrap()
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
        let setting = setting(&config, Role::Bidirectional, &device);
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

/// A cache that drops what is out of reach, padding before the first token, and gaps between the keys of a window.
#[test]
fn longformer_decodes_padded_sequences_with_gaps_as_it_reads_them() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for dilation in 1..=4 {
        let config = format!(
            r#"{{ "kind": "longformer", "heads": 4, "window": 4, "dilation": {dilation} }}"#
        );
        let setting = setting(&config, Role::Causal, &device);
        let real = || Some(vec![3..LENGTH, 0..LENGTH]);
        let mut whole = Pass {
            real: real(),
            ..Pass::default()
        };
        let whole = setting.run(x.clone(), None, &mut whole).output;
        for pieces in [vec![1; LENGTH], vec![4, 1, 1, 5], vec![2, 3, 6]] {
            let (mut cache, mut start) = (Cache::new(), 0);
            for piece in pieces {
                let mut pass = Pass {
                    real: real(),
                    cache: Some(&mut cache),
                    ..Pass::default()
                };
                let part = x.clone().narrow(1, start, piece);
                let part = setting.run(part, None, &mut pass).output;
                let gap = gap(whole.clone().narrow(1, start, piece), part);
                assert!(
                    gap < 1e-5,
                    "dilation {dilation}: position {start} differs by {gap}"
                );
                cache.advance(piece);
                start += piece;
            }
        }
    }
}

#[test]
fn longformer_rotates_queries_and_keys_as_full_attention_does() {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let rotated = |config: &str, role: Role, globals: Option<Vec<Vec<usize>>>| {
        let positions = Tensor::<1, Int>::arange(0..LENGTH as i64, &device);
        let mut pass = Pass {
            rotary: Some(RotaryAngles::new(positions.unsqueeze(), 4, 100.0)),
            globals,
            ..Pass::default()
        };
        let AttentionOutput { output, .. } =
            setting(config, role, &device).run(x.clone(), None, &mut pass);
        output
    };
    let longformer = r#"{ "kind": "longformer", "heads": 4, "window": 22 }"#;
    for role in [Role::Bidirectional, Role::Causal] {
        // Both draw the same parameters, for they make them in the same order.
        let full = rotated(r#"{ "kind": "full", "heads": 4 }"#, role, None);
        assert!(gap(full.clone(), rotated(longformer, role, None)) < 1e-5);
        let plain = setting(longformer, role, &device).output(x.clone());
        assert!(gap(full, plain) > 1e-3, "rotary positions have no effect");
    }
    let globals = || Some(vec![(0..LENGTH).collect(); BATCH]);
    let global = rotated(longformer, Role::Bidirectional, globals());
    let layer = setting(longformer, Role::Bidirectional, &device);
    let mut pass = Pass {
        globals: globals(),
        ..Pass::default()
    };
    let plain = layer.run(x.clone(), None, &mut pass).output;
    assert!(
        gap(global, plain) > 1e-3,
        "global queries and keys are not rotated"
    );
}

/// Their pairs would fill 64 GiB for each head.
#[test]
fn long_sequences_make_no_matrix_of_pairs() {
    let length = 1 << 17;
    let device = Device::flex().autodiff();
    for config in [
        r#"{ "kind": "longformer", "heads": 2, "window": 8, "dilation": 3, "globals": 2 }"#,
        r#"{ "kind": "big_bird", "heads": 2, "block": 64, "random_blocks": 1 }"#,
    ] {
        let x = noise([1, length, WIDTH], 1, &device).require_grad();
        let output = setting(config, Role::Bidirectional, &device).output(x.clone());
        let gradients = output.powf_scalar(2.0).sum().backward();
        let slopes = numbers(x.grad(&gradients).unwrap());
        assert!(slopes.iter().all(|it| it.is_finite()), "{config}");
    }
}

#[test]
fn what_sparse_kinds_cannot_do_is_refused_in_a_sentence() {
    let longformer = |settings: &str, role| {
        let config = format!(r#"{{ "kind": "longformer", "heads": 4, {settings} }}"#);
        refusal(&config, role, WIDTH)
    };
    assert_eq!(
        longformer(r#""window": 5"#, Role::Bidirectional),
        "attention.window: 5 is odd; both sides of a query see half of it: use an even number"
    );
    assert_eq!(
        longformer(r#""window": 4, "globals": 1"#, Role::Causal),
        "attention.globals: 1 is more than a causal layer can have, since they see later positions; use 0"
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
        "attention.kind: longformer attention has no use for a bias by distance; choose learned, sinusoidal, rotary or no positions"
    );
    let big_bird = r#"{ "kind": "big_bird", "heads": 4, "block": 3, "random_blocks": 1 }"#;
    assert_eq!(
        refusal(big_bird, Role::Causal, WIDTH),
        "attention.kind: BigBird attention cannot be causal; it can be bidirectional"
    );
}
