//! Kinds that a program registers, over which the whole suite runs too: the attention of `examples/own_attention.rs`, and score and
//! mask modifiers. And what they must compute.

use std::collections::HashMap;
use std::sync::Once;

use attentive_model::attention::{
    self, AttendContext, Attention, CustomPattern, PatternCache, PatternInput, PatternOutput,
    PatternParameter, Qkv, Role, ScoreModifier,
};
use attentive_model::{AttentionSite, ForwardContext, replace_parameters};
use attentive_tensor::Scores;
use attentive_testing::{Scale, VALUES, assert_close};
use burn::tensor::{Device, Tensor, TensorData};

use crate::differential;
use crate::test_layer::{BATCH, LENGTH, TestLayer, WIDTH, assert_same, noise, values};

/// Registers the kinds of the examples, once.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let near = || ScoreModifier::new().mask(|pair| pair.query.abs_diff(pair.key) < 3);
        let all = [
            differential::register(),
            learned_distances().register("learned_distances"),
            ScoreModifier::new()
                .mask(|pair| pair.key == 0 || pair.query % 2 == pair.key % 2)
                .register("even_distances"),
            near().register("near"),
            near().score(|pairs| pairs.scores).register("near_scores"),
            attention::register("recent", |_| Ok(Recent)),
        ];
        for registered in all {
            registered.unwrap();
        }
    });
}

/// Scores decrease with the distance, by a learned slope of each head; odd heads do not see pairs two positions apart.
fn learned_distances() -> ScoreModifier {
    ScoreModifier::new()
        .with_parameters(|spec| vec![PatternParameter::normal("slopes", [spec.heads], 0.3)])
        .score(|pairs| {
            let slopes = pairs.parameters.get::<1>("slopes");
            let heads = slopes.dims()[0];
            let slopes = slopes.reshape([1, heads, 1, 1]);
            pairs.scores.clone() - pairs.distances().abs() * slopes
        })
        .mask(|pair| pair.head.is_multiple_of(2) || pair.query.abs_diff(pair.key) != 2)
}

/// Softmax attention in a window of three, whose cache has no other keys.
#[derive(Debug)]
struct Recent;

impl CustomPattern for Recent {
    fn attend(&self, input: PatternInput) -> PatternOutput {
        let PatternInput {
            qkv,
            mask,
            bias,
            mut context,
            ..
        } = input;
        let scale = qkv.scale();
        context.attend(qkv, &Scores { mask, scale, bias })
    }

    fn cache(&self) -> PatternCache {
        PatternCache::Window(3)
    }
}

#[test]
fn a_mask_of_near_pairs_is_a_sliding_window() {
    register();
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for role in [Role::Bidirectional, Role::Causal] {
        // Of the same seed, and so with the same weights.
        let output = |config: &str| TestLayer::from_json(config, role, &device).output(x.clone());
        let window = output(r#"{ "kind": "sliding_window", "heads": 4, "window": 3 }"#);
        for kind in ["near", "near_scores", "recent"] {
            let masked = output(&format!(r#"{{ "kind": "{kind}", "heads": 4 }}"#));
            assert_same(format!("{kind} {role:?}"), masked, window.clone());
        }
    }
}

const HEADS: usize = 4;
const KEY_VALUE_HEADS: usize = 2;
const HEAD_WIDTH: usize = 4;
const LAMBDA_INIT: f64 = 0.4;

#[test]
fn differential_attention_is_its_definition() {
    register();
    let device = Device::flex();
    let config = format!(
        r#"{{ "kind": "differential", "heads": {HEADS}, "key_value_heads": {KEY_VALUE_HEADS}, "lambda_init": {LAMBDA_INIT} }}"#
    );
    let names = ["query_1", "key_1", "query_2", "key_2"];
    let vectors = [11, 12, 13, 14].map(|seed| values(noise([HEAD_WIDTH], seed, &device) * 0.4));
    let norm = values(noise([2 * HEAD_WIDTH], 15, &device) + 1.0);
    let mut parameters: HashMap<String, TensorData> = HashMap::new();
    for (name, vector) in names.iter().zip(&vectors) {
        let data = TensorData::new(vector.clone(), [HEAD_WIDTH]);
        parameters.insert(format!("pattern.lambda_{name}"), data);
    }
    let data = TensorData::new(norm.clone(), [2 * HEAD_WIDTH]);
    parameters.insert("pattern.norm".to_owned(), data);
    let layer = TestLayer::from_json(&config, Role::Causal, &device).layer;
    let Attention::MultiHead(layer) = replace_parameters(layer, parameters) else {
        panic!("a registered pattern is inside of MultiHead")
    };

    let heads = |count: usize, seed: u64| noise([1, count, LENGTH, HEAD_WIDTH], seed, &device);
    let qkv = Qkv {
        query: heads(HEADS, 5),
        key: heads(KEY_VALUE_HEADS, 6),
        value: heads(KEY_VALUE_HEADS, 7),
    };
    let site = AttentionSite {
        layer: 0,
        role: Role::Causal,
    };
    let mut pass = ForwardContext::default();
    let context = AttendContext::new(site, &mut pass);
    let output = layer.pattern().attend(qkv.clone(), context).output;
    assert_eq!(output.dims(), [1, HEADS, LENGTH, HEAD_WIDTH]);

    let dot = |one: &[f32], other: &[f32]| -> f64 {
        let products = one.iter().zip(other);
        products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let [query_1, key_1, query_2, key_2] = &vectors;
    let lambda = dot(query_1, key_1).exp() - dot(query_2, key_2).exp() + LAMBDA_INIT;
    let rows = |x: Tensor<4>| {
        let x = values(x);
        move |head: usize, position: usize| {
            let start = (head * LENGTH + position) * HEAD_WIDTH;
            x[start..start + HEAD_WIDTH].to_vec()
        }
    };
    let (query, key, value) = (rows(qkv.query), rows(qkv.key), rows(qkv.value));
    let group = HEADS / KEY_VALUE_HEADS;
    // The values of a pair, weighted by the map of one of its heads.
    let context = |head: usize, position: usize| -> Vec<f64> {
        let score = |it: usize| {
            let score = dot(&query(head, position), &key(head / group, it));
            (score / (HEAD_WIDTH as f64).sqrt()).exp()
        };
        let weights: Vec<f64> = (0..=position).map(score).collect();
        let sum: f64 = weights.iter().sum();
        let pair = head / group / 2 * 2;
        let mut context = vec![0.0; 2 * HEAD_WIDTH];
        for (it, weight) in weights.iter().enumerate() {
            let values = [value(pair, it), value(pair + 1, it)].concat();
            for (total, value) in context.iter_mut().zip(values) {
                *total += weight / sum * f64::from(value);
            }
        }
        context
    };
    let mut expected = vec![0.0; HEADS * LENGTH * HEAD_WIDTH];
    for pair in 0..HEADS / 2 {
        for position in 0..LENGTH {
            let maps = context(2 * pair, position)
                .into_iter()
                .zip(context(2 * pair + 1, position));
            let difference: Vec<f64> = maps
                .map(|(first, second)| first - lambda * second)
                .collect();
            let squares: f64 = difference.iter().map(|it| it * it).sum();
            let root = (squares / difference.len() as f64 + 1e-5).sqrt();
            for (index, (value, weight)) in difference.iter().zip(&norm).enumerate() {
                let head = 2 * pair + index / HEAD_WIDTH;
                let at = (head * LENGTH + position) * HEAD_WIDTH + index % HEAD_WIDTH;
                expected[at] = (1.0 - LAMBDA_INIT) * value / root * f64::from(*weight);
            }
        }
    }
    assert_close(
        "differential attention",
        &values(output),
        &expected,
        Scale::Largest,
        VALUES,
    );
}
