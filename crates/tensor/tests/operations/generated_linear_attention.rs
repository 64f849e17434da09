//! Generated cases of linear attention and of feature maps: sizes around the chunk size, initial states, and axes of size zero.

use attentive_tensor::{FeatureMap, Stabilizer};

use super::{empty_case, generate, sample};
use crate::case::{Case, InitialState, LinearAttention, Operation};

/// All but the empty ones.
pub fn cases() -> Vec<Case> {
    let mut cases = linear_attentions();
    cases.extend(features());
    cases
}

/// `[batch, heads, key_value_heads, queries, keys, features, value_width]`
type Sizes = [usize; 7];

/// Chunks are 48 queries, or 192 keys that all queries see.
fn linear_attentions() -> Vec<Case> {
    let plain = LinearAttention::default();
    let causal = LinearAttention {
        causal: true,
        ..LinearAttention::default()
    };
    let padded = LinearAttention {
        keys: Some(vec![[0, 97], [53, 130]]),
        ..causal.clone()
    };
    let padded_bidirectional = LinearAttention {
        causal: false,
        ..padded.clone()
    };
    let mut cases = vec![
        linear_attention("47 by 47", &causal, [1, 1, 1, 47, 47, 3, 5]),
        linear_attention("48 by 48", &causal, [1, 2, 1, 48, 48, 6, 2]),
        linear_attention("49 by 49", &causal, [1, 2, 2, 49, 49, 7, 16]),
        linear_attention("131 grouped", &causal, [2, 4, 2, 131, 131, 5, 3]),
        linear_attention("more keys", &causal, [1, 1, 1, 50, 250, 3, 2]),
        linear_attention("few keys", &causal, [1, 2, 1, 70, 60, 2, 3]),
        linear_attention("bidirectional", &plain, [1, 2, 1, 49, 193, 3, 2]),
        linear_attention("wide heads", &causal, [1, 1, 1, 7, 7, 67, 33]),
        linear_attention("padded", &padded, [2, 1, 1, 130, 130, 2, 3]),
        linear_attention(
            "padded bidirectional",
            &padded_bidirectional,
            [2, 1, 1, 49, 130, 2, 3],
        ),
    ];
    for (name, settings, length) in [
        ("one query, from a state", &causal, 1),
        ("a chunk, from a state", &causal, 49),
        ("bidirectional, from a state", &plain, 5),
    ] {
        let sizes = [2, 4, 2, length, length, 5, 3];
        let count = 2 * 2 * 5u64;
        let start = InitialState {
            kv_sums: (0..count * 3).map(sample).collect(),
            key_sums: (0..count).map(|i| positive(sample(i))).collect(),
        };
        let settings = LinearAttention {
            start: Some(start),
            ..settings.clone()
        };
        cases.push(linear_attention(name, &settings, sizes));
    }
    cases
}

fn linear_attention(name: &str, settings: &LinearAttention, sizes: Sizes) -> Case {
    let [
        batch,
        heads,
        key_value_heads,
        queries,
        keys,
        features,
        width,
    ] = sizes;
    let inputs: [(&str, &[usize]); 3] = [
        ("query", &[batch, heads, queries, features]),
        ("key", &[batch, key_value_heads, keys, features]),
        ("value", &[batch, key_value_heads, keys, width]),
    ];
    let operation = Operation::LinearAttention(settings.clone());
    let mut case = generate(&format!("linear attention, {name}"), operation, &inputs);
    for name in ["query", "key"] {
        let input = case.inputs.get_mut(name).expect("the case has it");
        for value in &mut input.values {
            *value = positive(*value);
        }
    }
    // No gradient flows through the returned states.
    for upstream in &mut case.upstream[1..] {
        upstream.fill(0.0);
    }
    case
}

/// A positive value that f32 represents.
fn positive(value: f64) -> f64 {
    f64::from(value.abs() as f32 + 0.1)
}

fn features() -> Vec<Case> {
    let mut cases = Vec::new();
    for map in [
        FeatureMap::EluPlusOne,
        FeatureMap::Relu,
        FeatureMap::Exp,
        FeatureMap::Softplus,
    ] {
        let name = format!("features, {map:?}");
        let operation = Operation::PositiveFeatures { map };
        cases.push(generate(&name, operation, &[("x", &[2, 3, 5, 67])]));
    }
    // Only the constant stabilizer: maxima are detached, which finite differences cannot check.
    let stabilizer = Stabilizer::Constant;
    for (x, features) in [([2, 3, 7, 5], 9), ([1, 2, 70, 16], 33), ([1, 1, 3, 8], 257)] {
        let name = format!("random features, {x:?} to {features}");
        let inputs: [(&str, &[usize]); 2] = [("x", &x), ("projection", &[features, x[3]])];
        let operation = Operation::RandomFeatures { stabilizer };
        cases.push(generate(&name, operation, &inputs));
    }
    cases
}

/// Each axis in turn of size zero, and the shape of the last output.
pub fn empty() -> Vec<(Case, Vec<usize>)> {
    let mut cases = Vec::new();
    for axis in [0, 1, 3, 4, 5, 6] {
        let mut sizes: Sizes = [2, 4, 2, 3, 5, 6, 7];
        sizes[axis] = 0;
        let [batch, _, key_value_heads, _, keys, features, _] = sizes;
        for (causal, is_padded) in [(false, false), (true, false), (false, true)] {
            let settings = LinearAttention {
                causal,
                keys: is_padded.then(|| vec![[0, keys]; batch]),
                start: None,
            };
            let name = format!("{sizes:?}, {settings:?}");
            let state_shape = vec![batch, key_value_heads, features];
            cases.push((linear_attention(&name, &settings, sizes), state_shape));
        }
    }
    for x in [[0, 2, 3, 4], [2, 0, 3, 4], [2, 2, 0, 4], [2, 2, 3, 0]] {
        let map = FeatureMap::EluPlusOne;
        let operation = Operation::PositiveFeatures { map };
        cases.push(empty_case(operation, &[("x", &x)], &x));
    }
    for (x, features) in [
        ([0, 2, 3, 4], 5),
        ([2, 0, 3, 4], 5),
        ([2, 2, 0, 4], 5),
        ([2, 2, 3, 4], 0),
    ] {
        for stabilizer in [
            Stabilizer::RowMaximum,
            Stabilizer::KeysMaximum,
            Stabilizer::Constant,
        ] {
            let operation = Operation::RandomFeatures { stabilizer };
            let inputs: [(&str, &[usize]); 2] = [("x", &x), ("projection", &[features, x[3]])];
            let output = [x[0], x[1], x[2], features];
            cases.push(empty_case(operation, &inputs, &output));
        }
    }
    cases
}
