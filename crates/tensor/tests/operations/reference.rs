//! The f64 reference of every operation: its definition, element by element. Most are the naive versions in
//! `attentive_kernels`; linear layers and attention, whose naive versions there read f32, are written out.

use attentive_kernels as kernels;
use attentive_tensor::{Activation, FeatureMap, IGNORE_INDEX, NormKind, Stabilizer};
use kernels::rotary::{Direction, Layout, RotaryShape};

use crate::case::{
    Array, Arrays, Attention, Blocks, Case, LinearAttention, Norm, Operation, randomness,
};

/// The outputs of a case's operation for the given inputs instead of its own.
pub fn outputs(case: &Case, inputs: &Arrays) -> Vec<Vec<f64>> {
    let input = |name: &str| &inputs[name];
    let affine = |weight: &str, bias: &str| affine(input("x"), input(weight), inputs.get(bias));
    let output = match &case.operation {
        Operation::Linear => affine("weight", "bias"),
        Operation::ActivatedLinear { activation } => {
            activate(*activation, &affine("weight", "bias"))
        }
        Operation::FeedForward { activation } => {
            let up = affine("up", "up_bias");
            let hidden = match inputs.contains_key("gate") {
                true => products(&activate(*activation, &affine("gate", "gate_bias")), &up),
                false => activate(*activation, &up),
            };
            let down = input("down");
            let rows = input("x").rows().count();
            let hidden = Array {
                shape: vec![rows, down.width()],
                values: hidden,
            };
            self::affine(&hidden, down, inputs.get("down_bias"))
        }
        Operation::LinearQkv => {
            let projections = [0, 1, 2].map(|i| affine(&format!("weight{i}"), &format!("bias{i}")));
            return projections.to_vec();
        }
        Operation::Add => sums(&input("x").values, &input("y").values),
        Operation::Norm(settings) => norm(*settings, &input("x").values, inputs),
        Operation::NormWithInput(settings) => {
            let x = &input("x").values;
            return vec![x.clone(), norm(*settings, x, inputs)];
        }
        Operation::AddNormWithSum(settings) => {
            let sum = sums(&input("x").values, &input("branch").values);
            let norm = norm(*settings, &sum, inputs);
            return vec![sum, norm];
        }
        Operation::AddNorm(settings) => {
            let sum = sums(&input("x").values, &input("branch").values);
            norm(*settings, &sum, inputs)
        }
        Operation::Activate { activation } => activate(*activation, &input("x").values),
        Operation::Gated { activation } => {
            let gate = activate(*activation, &input("gate").values);
            products(&gate, &input("up").values)
        }
        Operation::Softmax => {
            let x = input("x");
            kernels::softmax::naive::softmax(&x.values, x.width())
        }
        Operation::Dropout { probability } => {
            let key = randomness().next_key();
            kernels::dropout::naive::dropout(&input("x").values, *probability as f32, key)
        }
        Operation::Rotary { theta, positions } => rotary(input("x"), *theta, positions),
        Operation::Embedding { ids } => {
            let table = input("table");
            kernels::embedding::naive::gather(&table.values, table.width(), &ids.concat())
        }
        Operation::CrossEntropy {
            targets,
            label_smoothing,
        } => vec![mean_cross_entropy(
            input("logits"),
            targets,
            *label_smoothing,
        )],
        Operation::Attention(settings) => {
            let mut weights = weights(settings, inputs);
            drop_weights(settings, &mut weights.values);
            apply_weights(&weights, input("value"))
        }
        Operation::AttentionWithLogSumExp(settings) => {
            let log_sum_exp = scores(settings, inputs)
                .rows()
                .map(row_log_sum_exp)
                .collect();
            let mut weights = weights(settings, inputs);
            drop_weights(settings, &mut weights.values);
            return vec![apply_weights(&weights, input("value")), log_sum_exp];
        }
        Operation::MergePartialAttention => return merge_partial_attention(inputs),
        Operation::AttentionWeights(settings) => weights(settings, inputs).values,
        Operation::ApplyWeights => apply_weights(input("weights"), input("value")),
        Operation::MaskedSoftmax(settings) => {
            masked_softmax(settings, input("scores").clone()).values
        }
        Operation::LinearAttention(settings) => return linear_attention(settings, inputs),
        Operation::PositiveFeatures { map } => {
            let map = match map {
                FeatureMap::EluPlusOne => kernels::feature_maps::FeatureMap::EluPlusOne,
                FeatureMap::Relu => kernels::feature_maps::FeatureMap::Relu,
                FeatureMap::Exp => kernels::feature_maps::FeatureMap::Exp,
                FeatureMap::Softplus => kernels::feature_maps::FeatureMap::Softplus,
            };
            let value = |x: &f64| kernels::feature_maps::naive::value(map, *x);
            input("x").values.iter().map(value).collect()
        }
        Operation::RandomFeatures { stabilizer } => {
            random_features(*stabilizer, input("x"), input("projection"))
        }
    };
    vec![output]
}

fn affine(x: &Array, weight: &Array, bias: Option<&Array>) -> Vec<f64> {
    let mut y = Vec::new();
    for x in x.rows() {
        for (i, weight) in weight.rows().enumerate() {
            y.push(dot(x, weight) + bias.map_or(0.0, |bias| bias.values[i]));
        }
    }
    y
}

fn norm(settings: Norm, x: &[f64], inputs: &Arrays) -> Vec<f64> {
    let weight = &inputs["weight"].values;
    let bias = inputs.get("bias").map(|bias| bias.values.as_slice());
    let normalised = match settings.kind() {
        NormKind::Layer => kernels::norms::naive::layer_norm(x, weight, bias, settings.epsilon),
        NormKind::Rms => kernels::norms::naive::rms_norm(x, weight, bias, settings.epsilon),
    };
    normalised.y
}

fn activate(kind: Activation, x: &[f64]) -> Vec<f64> {
    let kind = match kind {
        Activation::Relu => kernels::activation::Activation::Relu,
        Activation::Gelu => kernels::activation::Activation::Gelu,
        Activation::GeluTanh => kernels::activation::Activation::GeluTanh,
        Activation::Silu => kernels::activation::Activation::Silu,
        Activation::Sigmoid => kernels::activation::Activation::Sigmoid,
    };
    let value = |x: &f64| kernels::activation::naive::value(kind, *x);
    x.iter().map(value).collect()
}

fn rotary(x: &Array, theta: f64, positions: &[Vec<i64>]) -> Vec<f64> {
    let [batch, heads, length, head_width] = x.dims();
    let mut angles = Vec::new();
    for position in positions.concat() {
        for i in 0..head_width / 2 {
            angles.push(position as f64 * theta.powf(-2.0 * i as f64 / head_width as f64));
        }
    }
    let cosine: Vec<f64> = angles.iter().map(|it| it.cos()).collect();
    let sine: Vec<f64> = angles.iter().map(|it| it.sin()).collect();
    let sizes = RotaryShape {
        batch,
        heads,
        length,
        head_width,
        layout: Layout::HeadsFirst,
    };
    kernels::rotary::naive::rotary(&x.values, sizes, &cosine, &sine, Direction::Forward)
}

fn mean_cross_entropy(logits: &Array, targets: &[i64], smoothing: f64) -> f64 {
    let (values, vocabulary) = (&logits.values, logits.width());
    let losses =
        kernels::cross_entropy::naive::cross_entropy(values, targets, vocabulary, smoothing);
    let counted = targets.iter().filter(|it| **it != IGNORE_INDEX).count();
    losses.iter().sum::<f64>() / counted.max(1) as f64
}

/// The log-sum-exp of a row.
fn row_log_sum_exp(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match largest {
        f64::NEG_INFINITY => largest,
        _ => largest + row.iter().map(|it| (it - largest).exp()).sum::<f64>().ln(),
    }
}

/// Context and log-sum-exp of the union of all parts.
fn merge_partial_attention(inputs: &Arrays) -> Vec<Vec<f64>> {
    let parts = |name: &str| -> Vec<&Array> {
        let part = |index: usize| inputs.get(&format!("{name}{index}"));
        (0..).map_while(part).collect()
    };
    let (contexts, log_sum_exp) = (parts("context"), parts("log_sum_exp"));
    let width = contexts[0].width();
    let mut outputs = [vec![0.0; contexts[0].values.len()], Vec::new()];
    for row in 0..log_sum_exp[0].values.len() {
        let logs: Vec<f64> = log_sum_exp.iter().map(|part| part.values[row]).collect();
        let total = row_log_sum_exp(&logs);
        outputs[1].push(total);
        for (context, log) in contexts.iter().zip(logs) {
            let range = row * width..(row + 1) * width;
            let values = &context.values[range.clone()];
            for (sum, value) in outputs[0][range].iter_mut().zip(values) {
                *sum += value * (log - total).exp();
            }
        }
    }
    outputs.into()
}

/// The attention weights, `[batch, heads, queries, keys]`, before dropout.
fn weights(settings: &Attention, inputs: &Arrays) -> Array {
    let mut weights = scores(settings, inputs);
    weights.values = kernels::softmax::naive::softmax(&weights.values, weights.width());
    weights
}

/// The scores, minus infinity where masked.
fn scores(settings: &Attention, inputs: &Arrays) -> Array {
    let (query, key) = (&inputs["query"], &inputs["key"]);
    let [batch, heads, queries, width] = query.dims();
    let [_, key_value_heads, keys, _] = key.dims();
    let mut scores = Vec::new();
    for (row, q) in query.rows().enumerate() {
        let (sequence, head, query_index) =
            (row / queries / heads, row / queries % heads, row % queries);
        let shared = sequence * key_value_heads + head / (heads / key_value_heads);
        for other in 0..keys {
            let at = (shared * keys + other) * width;
            let mut score = settings.scale * dot(q, &key.values[at..at + width]);
            if let Some(bias) = inputs.get("bias") {
                // The rank of a bias determines whether it is per pair, per key or per distance.
                score += match bias.shape[..] {
                    [sequences, bias_heads, ..] if bias.shape.len() > 2 => {
                        let matrix = sequence % sequences * bias_heads + head % bias_heads;
                        let row = if bias.shape.len() == 4 {
                            matrix * queries + query_index
                        } else {
                            matrix
                        };
                        bias.values[row * keys + other]
                    }
                    [bias_heads, distances] => {
                        let row = head % bias_heads * distances;
                        bias.values[row + other + queries - 1 - query_index]
                    }
                    _ => panic!("a bias of {:?}", bias.shape),
                };
            }
            let listed = settings
                .blocks
                .as_ref()
                .is_none_or(|Blocks { block, rows }| {
                    rows[head % rows.len()][query_index / block].contains(&(other / block))
                });
            let sees = listed
                && sees(
                    settings,
                    sequence,
                    query_index + keys,
                    other + queries,
                    other,
                );
            scores.push(if sees { score } else { f64::NEG_INFINITY });
        }
    }
    Array {
        shape: vec![batch, heads, queries, keys],
        values: scores,
    }
}

/// The softmax of scores `[batch, heads, queries, keys]` over what the mask allows.
fn masked_softmax(settings: &Attention, mut scores: Array) -> Array {
    let [_, heads, queries, keys] = scores.dims();
    for (i, score) in scores.values.iter_mut().enumerate() {
        let (row, other) = (i / keys, i % keys);
        let (sequence, query_index) = (row / queries / heads, row % queries);
        if !sees(
            settings,
            sequence,
            query_index + keys,
            other + queries,
            other,
        ) {
            *score = f64::NEG_INFINITY;
        }
    }
    scores.values = kernels::softmax::naive::softmax(&scores.values, keys);
    scores
}

/// Whether a query sees a key. Queries are the last of the keys' positions, so a query is at `query_index + keys - queries`;
/// both positions have `queries` added, so that they are not negative.
fn sees(settings: &Attention, sequence: usize, query: usize, key: usize, index: usize) -> bool {
    (!settings.causal || key <= query)
        && settings
            .window
            .is_none_or(|size| query.abs_diff(key) < size)
        && settings.keys.as_ref().is_none_or(|keys| {
            let [start, end] = keys[sequence];
            (start..end).contains(&index)
        })
}

/// Drops weights as the kernel does, by the index of the pair.
fn drop_weights(settings: &Attention, weights: &mut [f64]) {
    if settings.dropout > 0.0 {
        let key = randomness().next_key();
        let dropped = kernels::dropout::naive::dropout(weights, settings.dropout as f32, key);
        weights.copy_from_slice(&dropped);
    }
}

/// The weighted sums of the values, `[batch, heads, queries, value_width]`.
fn apply_weights(weights: &Array, value: &Array) -> Vec<f64> {
    let [_, heads, queries, keys] = weights.dims();
    let [_, key_value_heads, _, width] = value.dims();
    let mut context = Vec::new();
    for (row, weights) in weights.rows().enumerate() {
        let (sequence, head) = (row / queries / heads, row / queries % heads);
        let shared = sequence * key_value_heads + head / (heads / key_value_heads);
        let values = &value.values[shared * keys * width..(shared + 1) * keys * width];
        for column in 0..width {
            let terms = weights.iter().zip(values.chunks(width));
            context.push(terms.map(|(weight, value)| weight * value[column]).sum());
        }
    }
    context
}

/// The context, and the sums of the final state.
fn linear_attention(settings: &LinearAttention, inputs: &Arrays) -> Vec<Vec<f64>> {
    let [query, key, value] = ["query", "key", "value"].map(|it| &inputs[it]);
    let [batch, heads, queries, features] = query.dims();
    let [_, shared, keys, width] = value.dims();
    let masks = settings.as_attention();
    let initial = |pick: fn(&crate::case::InitialState) -> &Vec<f64>, count: usize| {
        let start = settings.start.as_ref();
        start.map_or(vec![0.0; count], |it| pick(it).clone())
    };
    let mut kv_sums = initial(|it| &it.kv_sums, batch * shared * features * width);
    let mut key_sums = initial(|it| &it.key_sums, batch * shared * features);
    let row = |of: &Array, row: usize| of.values[row * of.width()..(row + 1) * of.width()].to_vec();
    let mut context = Vec::new();
    for number in 0..batch * heads * queries {
        let (sequence, head) = (number / queries / heads, number / queries % heads);
        let group = sequence * shared + head / (heads / shared);
        let q = row(query, number);
        let mut denominator = dot(&q, &key_sums[group * features..(group + 1) * features]);
        let mut numerator = vec![0.0; width];
        for (column, numerator) in numerator.iter_mut().enumerate() {
            let sum = |feature: usize| kv_sums[(group * features + feature) * width + column];
            *numerator = q.iter().zip(0..).map(|(q, feature)| q * sum(feature)).sum();
        }
        for other in 0..keys {
            let query_index = number % queries;
            if !sees(&masks, sequence, query_index + keys, other + queries, other) {
                continue;
            }
            let weight = dot(&q, &row(key, group * keys + other));
            denominator += weight;
            for (numerator, v) in numerator.iter_mut().zip(row(value, group * keys + other)) {
                *numerator += weight * v;
            }
        }
        let inverse = if denominator == 0.0 {
            0.0
        } else {
            1.0 / denominator
        };
        context.extend(numerator.iter().map(|numerator| numerator * inverse));
    }
    for number in 0..batch * shared * keys {
        let (group, other) = (number / keys, number % keys);
        let ranges = settings.keys.as_ref().map(|it| it[group / shared]);
        if ranges.is_some_and(|[start, end]| !(start..end).contains(&other)) {
            continue;
        }
        for (k, feature) in row(key, number).into_iter().zip(group * features..) {
            key_sums[feature] += k;
            for (v, column) in row(value, number).into_iter().zip(feature * width..) {
                kv_sums[column] += k * v;
            }
        }
    }
    vec![context, kv_sums, key_sums]
}

fn random_features(stabilizer: Stabilizer, x: &Array, projection: &Array) -> Vec<f64> {
    let [batch, heads, length, head_width] = x.dims();
    let sizes = kernels::random_features::FeatureShape {
        heads: batch * heads,
        length,
        head_width,
        features: projection.shape[0],
        epsilon: 1e-4,
    };
    let stabilizer = match stabilizer {
        Stabilizer::RowMaximum => kernels::random_features::Stabilizer::RowMaximum,
        Stabilizer::KeysMaximum => kernels::random_features::Stabilizer::KeysMaximum,
        Stabilizer::Constant => kernels::random_features::Stabilizer::Constant,
    };
    kernels::random_features::naive::forward(sizes, &x.values, &projection.values, stabilizer)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sums(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn products(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}
