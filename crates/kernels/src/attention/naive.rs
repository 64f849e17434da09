//! The specification of attention: whole matrices, one number at a time, sums in f64.

use super::{BiasOf, Heads, Options, Shape};

/// What the naive forward pass gives; rows are `[batch, heads, queries]`.
#[derive(Clone, Debug)]
pub struct Forward {
    /// `[batch, heads, queries, value_width]`
    pub context: Vec<f64>,
    /// Logarithms of the rows' sums; minus infinity where nothing is seen.
    pub log_sums: Vec<f64>,
    /// `[batch, heads, queries, keys]`, before dropout
    pub weights: Vec<f64>,
}

/// Attention by its definition.
pub fn forward(
    shape: &Shape,
    query: Heads,
    key: Heads,
    value: Heads,
    options: &Options,
) -> Forward {
    let rows = shape.batch * shape.heads * shape.queries;
    let mut context = vec![0.0; rows * shape.value_width];
    let mut log_sums = vec![f64::NEG_INFINITY; rows];
    let mut weights = vec![0.0; rows * shape.keys];
    for_each_row(shape, |batch, head, position, row| {
        let range = options.mask.range(shape, batch, position);
        let shared = shape.key_value_head(head);
        let q = query.row(batch, head, position, shape.head_width);
        let weights = &mut weights[row * shape.keys..(row + 1) * shape.keys];
        for other in range.clone() {
            let k = key.row(batch, shared, other, shape.head_width);
            let mut score = dot(q, k) * f64::from(options.scale);
            if let Some(bias) = options.bias {
                let at = batch * bias.batch_stride + head * bias.head_stride;
                score += f64::from(bias.data[at + bias_index(shape, bias.of, position, other)]);
            }
            weights[other] = score;
        }
        let largest = weights[range.clone()]
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            weights.fill(0.0);
            return;
        }
        let mut sum = 0.0;
        for weight in &mut weights[range.clone()] {
            *weight = (*weight - largest).exp();
            sum += *weight;
        }
        log_sums[row] = largest + sum.ln();
        for other in range {
            weights[other] /= sum;
            let weight = weights[other] * f64::from(dropout_factor(options, shape, row, other));
            let v = value.row(batch, shared, other, shape.value_width);
            let out = &mut context[row * shape.value_width..(row + 1) * shape.value_width];
            for (out, v) in out.iter_mut().zip(v) {
                *out += weight * f64::from(*v);
            }
        }
    });
    Forward {
        context,
        log_sums,
        weights,
    }
}

/// Gradients by the definition, `[batch, heads, length, width]` each.
#[derive(Clone, Debug)]
pub struct Backward {
    /// Of the queries.
    pub query: Vec<f64>,
    /// Of the keys.
    pub key: Vec<f64>,
    /// Of the values.
    pub value: Vec<f64>,
    /// Of the scores after scaling, which is the gradient of a bias; `[batch, heads, queries, keys]`.
    pub bias: Vec<f64>,
}

/// The gradients of the sum of `context · upstream`, with `upstream` `[batch, heads, queries, value_width]`.
pub fn backward(
    shape: &Shape,
    query: Heads,
    key: Heads,
    value: Heads,
    upstream: &[f32],
    log_sums_upstream: Option<&[f32]>,
    options: &Options,
) -> Backward {
    let Forward { weights, .. } = forward(shape, query, key, value, options);
    let (d, dv) = (shape.head_width, shape.value_width);
    let of = options.bias.map_or(BiasOf::Pairs, |bias| bias.of);
    let shared_rows = shape.batch * shape.key_value_heads * shape.keys;
    let rows = shape.batch * shape.heads * shape.queries;
    let mut out = Backward {
        query: vec![0.0; rows * d],
        key: vec![0.0; shared_rows * d],
        value: vec![0.0; shared_rows * dv],
        bias: vec![0.0; shape.batch * shape.heads * of.size(shape)],
    };
    for_each_row(shape, |batch, head, position, row| {
        let shared = shape.key_value_head(head);
        let upstream = &upstream[row * dv..(row + 1) * dv];
        let weights = &weights[row * shape.keys..(row + 1) * shape.keys];
        let mut slopes = vec![0.0; shape.keys];
        for other in 0..shape.keys {
            let factor = f64::from(dropout_factor(options, shape, row, other));
            let v = value.row(batch, shared, other, dv);
            slopes[other] = dot(upstream, v) * factor;
            let at = ((batch * shape.key_value_heads + shared) * shape.keys + other) * dv;
            for (i, up) in upstream.iter().enumerate() {
                out.value[at + i] += weights[other] * factor * f64::from(*up);
            }
        }
        let mean: f64 = slopes.iter().zip(weights).map(|(s, w)| s * w).sum();
        let of_log_sum = log_sums_upstream.map_or(0.0, |slopes| f64::from(slopes[row]));
        let q = query.row(batch, head, position, d);
        for other in 0..shape.keys {
            let slope = weights[other] * (slopes[other] - mean + of_log_sum);
            let head = (batch * shape.heads + head) * of.size(shape);
            out.bias[head + bias_index(shape, of, position, other)] += slope;
            let slope = slope * f64::from(options.scale);
            let k = key.row(batch, shared, other, d);
            let at = ((batch * shape.key_value_heads + shared) * shape.keys + other) * d;
            for i in 0..d {
                out.query[row * d + i] += slope * f64::from(k[i]);
                out.key[at + i] += slope * f64::from(q[i]);
            }
        }
    });
    out
}

fn for_each_row(shape: &Shape, mut work: impl FnMut(usize, usize, usize, usize)) {
    for batch in 0..shape.batch {
        for head in 0..shape.heads {
            for query in 0..shape.queries {
                work(batch, head, query, shape.row(batch, head, query));
            }
        }
    }
}

/// Which number of its head's bias a query and a key have.
fn bias_index(shape: &Shape, of: BiasOf, query: usize, key: usize) -> usize {
    match of {
        BiasOf::Pairs => query * shape.keys + key,
        BiasOf::Keys => key,
        BiasOf::Distances => key + shape.queries - 1 - query,
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum()
}

/// What dropout multiplies the weight of a row and a key with.
fn dropout_factor(options: &Options, shape: &Shape, row: usize, key: usize) -> f32 {
    options.dropout.map_or(1.0, |it| {
        let index = row as u64 * shape.keys as u64 + key as u64;
        it.dropout.factor(it.key, index)
    })
}
