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
        let listed = |key: usize| {
            let blocks = options.mask.blocks;
            blocks.is_none_or(|blocks| blocks.sees(head, position, key))
        };
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
            weights[other] = if listed(other) {
                score
            } else {
                f64::NEG_INFINITY
            };
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
    /// Of the bias of each sequence and head; where there is none, of the scaled scores `[batch, heads, queries, keys]`.
    pub bias: Vec<f64>,
}

/// Which terms the gradients sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// The terms themselves.
    Signed,
    /// Their sizes: what a sum loses to rounding is a share of these, however small the sum is.
    Sizes,
}

impl Terms {
    pub(crate) fn of(self, term: f64) -> f64 {
        match self {
            Self::Signed => term,
            Self::Sizes => term.abs(),
        }
    }
}

/// The gradients of the sum of `context · upstream`, with `upstream` `[batch, heads, queries, value_width]`.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    upstream: &[f32],
    log_sums_upstream: Option<&[f32]>,
    options: &Options,
    terms: Terms,
) -> Backward {
    let Forward { weights, .. } = forward(shape, query, key, value, options);
    let dv = shape.value_width;
    let mut out = Backward::zeros(shape, options);
    for_each_row(shape, |batch, head, position, row| {
        let shared = shape.key_value_head(head);
        let upstream = &upstream[row * dv..(row + 1) * dv];
        let weights = &weights[row * shape.keys..(row + 1) * shape.keys];
        let mut slopes = vec![0.0; shape.keys];
        for other in 0..shape.keys {
            let factor = f64::from(dropout_factor(options, shape, row, other));
            let v = value.row(batch, shared, other, dv);
            let products = products(upstream, v).map(|it| terms.of(it));
            slopes[other] = products.sum::<f64>() * factor;
            let at = ((batch * shape.key_value_heads + shared) * shape.keys + other) * dv;
            for (i, up) in upstream.iter().enumerate() {
                out.value[at + i] += weights[other] * factor * terms.of(f64::from(*up));
            }
        }
        let of_log_sum = log_sums_upstream.map_or(0.0, |slopes| f64::from(slopes[row]));
        let slopes = slopes_of_scores(weights, &slopes, of_log_sum, terms);
        let at = [batch, head, position];
        out.add(shape, options, [query, key], at, &slopes, terms);
    });
    out
}

/// The gradients of the sum of `weights · upstream`, both `[batch, heads, queries, keys]`; there are no values.
pub fn weights_backward(
    shape: &Shape,
    [query, key]: [Heads; 2],
    weights: &[f64],
    upstream: &[f32],
    options: &Options,
    terms: Terms,
) -> Backward {
    let mut out = Backward::zeros(shape, options);
    for_each_row(shape, |batch, head, position, row| {
        let row = row * shape.keys..(row + 1) * shape.keys;
        let upstream: Vec<f64> = upstream[row.clone()]
            .iter()
            .map(|it| terms.of(f64::from(*it)))
            .collect();
        let slopes = slopes_of_scores(&weights[row], &upstream, 0.0, terms);
        let at = [batch, head, position];
        out.add(shape, options, [query, key], at, &slopes, terms);
    });
    out
}

/// The slopes of a row's scores, of those of its weights and of its log-sum.
fn slopes_of_scores(weights: &[f64], slopes: &[f64], of_log_sum: f64, terms: Terms) -> Vec<f64> {
    let mean: f64 = slopes.iter().zip(weights).map(|(s, w)| s * w).sum();
    let shift = terms.of(-mean) + terms.of(of_log_sum);
    let pairs = weights.iter().zip(slopes);
    pairs.map(|(w, s)| w * (s + shift)).collect()
}

impl Backward {
    fn zeros(shape: &Shape, options: &Options) -> Self {
        let of = options.bias.map_or(BiasOf::Pairs, |bias| bias.of);
        let shared_rows = shape.batch * shape.key_value_heads * shape.keys;
        let heads = shape.batch * shape.heads;
        Self {
            query: vec![0.0; heads * shape.queries * shape.head_width],
            key: vec![0.0; shared_rows * shape.head_width],
            value: vec![0.0; shared_rows * shape.value_width],
            bias: vec![0.0; heads * of.size(shape)],
        }
    }

    /// Adds what the slopes of a row's scores send back to its query, the keys and the bias.
    fn add(
        &mut self,
        shape: &Shape,
        options: &Options,
        [query, key]: [Heads; 2],
        [batch, head, position]: [usize; 3],
        slopes: &[f64],
        terms: Terms,
    ) {
        let of = options.bias.map_or(BiasOf::Pairs, |bias| bias.of);
        let (d, shared) = (shape.head_width, shape.key_value_head(head));
        let row = shape.row(batch, head, position);
        let q = query.row(batch, head, position, d);
        for (other, slope) in slopes.iter().enumerate() {
            let head = (batch * shape.heads + head) * of.size(shape);
            self.bias[head + bias_index(shape, of, position, other)] += slope;
            let slope = slope * f64::from(options.scale);
            let k = key.row(batch, shared, other, d);
            let at = ((batch * shape.key_value_heads + shared) * shape.keys + other) * d;
            for i in 0..d {
                self.query[row * d + i] += terms.of(slope * f64::from(k[i]));
                self.key[at + i] += terms.of(slope * f64::from(q[i]));
            }
        }
    }
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
    products(a, b).sum()
}

fn products(a: &[f32], b: &[f32]) -> impl Iterator<Item = f64> {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| f64::from(*a) * f64::from(*b))
}

/// What dropout multiplies the weight of a row and a key with.
fn dropout_factor(options: &Options, shape: &Shape, row: usize, key: usize) -> f32 {
    options.dropout.map_or(1.0, |it| {
        let index = row as u64 * shape.keys as u64 + key as u64;
        it.dropout.factor(it.key, index)
    })
}
