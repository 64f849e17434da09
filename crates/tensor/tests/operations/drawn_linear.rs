//! Drawn cases of linear attention and of feature maps: sizes around the chunks, states, and axes of no length.

use attentive_tensor::{FeatureMap, Stabilizer};

use super::{draw, empty_case, number};
use crate::case::{Case, LinearAttention, Operation, Start};

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
    let padded_both_ways = LinearAttention {
        causal: false,
        ..padded.clone()
    };
    let mut cases = vec![
        attend_linearly("47 by 47", &causal, [1, 1, 1, 47, 47, 3, 5]),
        attend_linearly("48 by 48", &causal, [1, 2, 1, 48, 48, 6, 2]),
        attend_linearly("49 by 49", &causal, [1, 2, 2, 49, 49, 7, 16]),
        attend_linearly("131 grouped", &causal, [2, 4, 2, 131, 131, 5, 3]),
        attend_linearly("more keys", &causal, [1, 1, 1, 50, 250, 3, 2]),
        attend_linearly("few keys", &causal, [1, 2, 1, 70, 60, 2, 3]),
        attend_linearly("both ways", &plain, [1, 2, 1, 49, 193, 3, 2]),
        attend_linearly("wide heads", &causal, [1, 1, 1, 7, 7, 67, 33]),
        attend_linearly("padded", &padded, [2, 1, 1, 130, 130, 2, 3]),
        attend_linearly(
            "padded both ways",
            &padded_both_ways,
            [2, 1, 1, 49, 130, 2, 3],
        ),
    ];
    for (name, settings, length) in [
        ("one more", &causal, 1),
        ("a chunk more", &causal, 49),
        ("more both ways", &plain, 5),
    ] {
        let sizes = [2, 4, 2, length, length, 5, 3];
        let count = 2 * 2 * 5u64;
        let start = Start {
            sums: (0..count * 3).map(number).collect(),
            totals: (0..count).map(|i| positive(number(i))).collect(),
        };
        let settings = LinearAttention {
            start: Some(start),
            ..settings.clone()
        };
        cases.push(attend_linearly(name, &settings, sizes));
    }
    cases
}

fn attend_linearly(name: &str, settings: &LinearAttention, sizes: Sizes) -> Case {
    let [batch, heads, shared, queries, keys, features, width] = sizes;
    let inputs: [(&str, &[usize]); 3] = [
        ("query", &[batch, heads, queries, features]),
        ("key", &[batch, shared, keys, features]),
        ("value", &[batch, shared, keys, width]),
    ];
    let operation = Operation::LinearAttention(settings.clone());
    let mut case = draw(&format!("linear attention, {name}"), operation, &inputs);
    for name in ["query", "key"] {
        let input = case.inputs.get_mut(name).expect("the case has it");
        for number in &mut input.numbers {
            *number = positive(*number);
        }
    }
    // A state carries no gradient.
    for upstream in &mut case.upstream[1..] {
        upstream.fill(0.0);
    }
    case
}

/// A feature that f32 holds.
fn positive(number: f64) -> f64 {
    f64::from(number.abs() as f32 + 0.1)
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
        cases.push(draw(&name, operation, &[("x", &[2, 3, 5, 67])]));
    }
    // The maxima are taken as constants, which finite differences do not.
    let stabilizer = Stabilizer::Constant;
    for (x, features) in [([2, 3, 7, 5], 9), ([1, 2, 70, 16], 33), ([1, 1, 3, 8], 257)] {
        let name = format!("random features, {x:?} to {features}");
        let inputs: [(&str, &[usize]); 2] = [("x", &x), ("projection", &[features, x[3]])];
        let operation = Operation::RandomFeatures { stabilizer };
        cases.push(draw(&name, operation, &inputs));
    }
    cases
}

/// Each axis in turn of no length, and the sizes of the last output.
pub fn empty() -> Vec<(Case, Vec<usize>)> {
    let mut cases = Vec::new();
    for place in [0, 1, 3, 4, 5, 6] {
        let mut sizes: Sizes = [2, 4, 2, 3, 5, 6, 7];
        sizes[place] = 0;
        let [batch, _, shared, _, keys, features, _] = sizes;
        for (causal, is_padded) in [(false, false), (true, false), (false, true)] {
            let settings = LinearAttention {
                causal,
                keys: is_padded.then(|| vec![[0, keys]; batch]),
                start: None,
            };
            let name = format!("{sizes:?}, {settings:?}");
            let totals = vec![batch, shared, features];
            cases.push((attend_linearly(&name, &settings, sizes), totals));
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
