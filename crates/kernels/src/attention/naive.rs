//! The specification of attention: whole matrices, one element at a time, sums in f64.

use super::{BiasLayout, Heads, Options, Shape};

/// The results of the naive forward pass; rows are `[batch, heads, queries]`.
#[derive(Clone, Debug)]
pub struct NaiveForward {
    /// `[batch, heads, queries, value_width]`
    pub context: Vec<f64>,
    /// The log-sum-exp of each row; minus infinity where it is fully masked.
    pub log_sum_exp: Vec<f64>,
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
) -> NaiveForward {
    let rows = shape.batch * shape.heads * shape.queries;
    let mut context = vec![0.0; rows * shape.value_width];
    let mut log_sum_exp = vec![f64::NEG_INFINITY; rows];
    let mut weights = vec![0.0; rows * shape.keys];
    for_each_row(shape, |batch, head, query_index, row| {
        let range = options.mask.visible_keys(shape, batch, query_index);
        let is_listed = |key: usize| {
            let blocks = options.mask.blocks;
            blocks.is_none_or(|blocks| blocks.is_visible(head, query_index, key))
        };
        let key_value_head = shape.key_value_head(head);
        let q = query.row(batch, head, query_index, shape.head_width);
        let weights = &mut weights[row * shape.keys..(row + 1) * shape.keys];
        for key_index in range.clone() {
            let k = key.row(batch, key_value_head, key_index, shape.head_width);
            let mut score = dot(q, k) * f64::from(options.scale);
            if let Some(bias) = options.bias {
                let at = batch * bias.batch_stride + head * bias.head_stride;
                score += f64::from(
                    bias.data[at + bias_index(shape, bias.layout, query_index, key_index)],
                );
            }
            weights[key_index] = if is_listed(key_index) {
                score
            } else {
                f64::NEG_INFINITY
            };
        }
        let max = weights[range.clone()]
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        if max == f64::NEG_INFINITY {
            weights.fill(0.0);
            return;
        }
        let mut sum = 0.0;
        for weight in &mut weights[range.clone()] {
            *weight = (*weight - max).exp();
            sum += *weight;
        }
        log_sum_exp[row] = max + sum.ln();
        for key_index in range {
            weights[key_index] /= sum;
            let weight =
                weights[key_index] * f64::from(dropout_factor(options, shape, row, key_index));
            let v = value.row(batch, key_value_head, key_index, shape.value_width);
            let out = &mut context[row * shape.value_width..(row + 1) * shape.value_width];
            for (out, v) in out.iter_mut().zip(v) {
                *out += weight * f64::from(*v);
            }
        }
    });
    NaiveForward {
        context,
        log_sum_exp,
        weights,
    }
}

/// Gradients by the definition, `[batch, heads, length, width]` each.
#[derive(Clone, Debug)]
pub struct NaiveGradients {
    /// The gradient of the queries.
    pub query: Vec<f64>,
    /// The gradient of the keys.
    pub key: Vec<f64>,
    /// The gradient of the values.
    pub value: Vec<f64>,
    /// The gradient of the bias of each sequence and head; without a bias, of the scaled scores
    /// `[batch, heads, queries, keys]`.
    pub bias: Vec<f64>,
}

/// Which terms the gradients sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// The terms themselves.
    Signed,
    /// Their magnitudes: the rounding error of a sum is relative to these, however small the sum is.
    Magnitudes,
}

impl Terms {
    pub(crate) fn of(self, term: f64) -> f64 {
        match self {
            Self::Signed => term,
            Self::Magnitudes => term.abs(),
        }
    }
}

/// The gradients of the sum of `context · output_gradients`, both `[batch, heads, queries, value_width]`.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    output_gradients: &[f32],
    log_sum_exp_gradients: Option<&[f32]>,
    options: &Options,
    terms: Terms,
) -> NaiveGradients {
    let NaiveForward { weights, .. } = forward(shape, query, key, value, options);
    let dv = shape.value_width;
    let mut out = NaiveGradients::zeros(shape, options);
    for_each_row(shape, |batch, head, query_index, row| {
        let key_value_head = shape.key_value_head(head);
        let output_gradients = &output_gradients[row * dv..(row + 1) * dv];
        let weights = &weights[row * shape.keys..(row + 1) * shape.keys];
        let mut weight_gradients = vec![0.0; shape.keys];
        for key_index in 0..shape.keys {
            let factor = f64::from(dropout_factor(options, shape, row, key_index));
            let v = value.row(batch, key_value_head, key_index, dv);
            let products = products(output_gradients, v).map(|it| terms.of(it));
            weight_gradients[key_index] = products.sum::<f64>() * factor;
            let at =
                ((batch * shape.key_value_heads + key_value_head) * shape.keys + key_index) * dv;
            for (i, gradient) in output_gradients.iter().enumerate() {
                out.value[at + i] += weights[key_index] * factor * terms.of(f64::from(*gradient));
            }
        }
        let log_sum_exp_gradient =
            log_sum_exp_gradients.map_or(0.0, |gradients| f64::from(gradients[row]));
        let score_gradients =
            score_gradients(weights, &weight_gradients, log_sum_exp_gradient, terms);
        let at = [batch, head, query_index];
        out.add(shape, options, [query, key], at, &score_gradients, terms);
    });
    out
}

/// The gradients of the sum of `weights · weight_gradients`, both `[batch, heads, queries, keys]`; there are no values.
pub fn weights_backward(
    shape: &Shape,
    [query, key]: [Heads; 2],
    weights: &[f64],
    weight_gradients: &[f32],
    options: &Options,
    terms: Terms,
) -> NaiveGradients {
    let mut out = NaiveGradients::zeros(shape, options);
    for_each_row(shape, |batch, head, query_index, row| {
        let row = row * shape.keys..(row + 1) * shape.keys;
        let weight_gradients: Vec<f64> = weight_gradients[row.clone()]
            .iter()
            .map(|it| terms.of(f64::from(*it)))
            .collect();
        let score_gradients = score_gradients(&weights[row], &weight_gradients, 0.0, terms);
        let at = [batch, head, query_index];
        out.add(shape, options, [query, key], at, &score_gradients, terms);
    });
    out
}

/// The gradients of a row's scores, from those of its weights and of its log-sum-exp.
fn score_gradients(
    weights: &[f64],
    weight_gradients: &[f64],
    log_sum_exp_gradient: f64,
    terms: Terms,
) -> Vec<f64> {
    let delta: f64 = weight_gradients
        .iter()
        .zip(weights)
        .map(|(g, w)| g * w)
        .sum();
    let shift = terms.of(-delta) + terms.of(log_sum_exp_gradient);
    let pairs = weights.iter().zip(weight_gradients);
    pairs.map(|(w, g)| w * (g + shift)).collect()
}

impl NaiveGradients {
    fn zeros(shape: &Shape, options: &Options) -> Self {
        let layout = options.bias.map_or(BiasLayout::PerPair, |bias| bias.layout);
        let key_rows = shape.batch * shape.key_value_heads * shape.keys;
        let heads = shape.batch * shape.heads;
        Self {
            query: vec![0.0; heads * shape.queries * shape.head_width],
            key: vec![0.0; key_rows * shape.head_width],
            value: vec![0.0; key_rows * shape.value_width],
            bias: vec![0.0; heads * layout.head_len(shape)],
        }
    }

    /// Accumulates the gradients of the query, the keys and the bias from those of a row's scores.
    fn add(
        &mut self,
        shape: &Shape,
        options: &Options,
        [query, key]: [Heads; 2],
        [batch, head, query_index]: [usize; 3],
        score_gradients: &[f64],
        terms: Terms,
    ) {
        let layout = options.bias.map_or(BiasLayout::PerPair, |bias| bias.layout);
        let (d, key_value_head) = (shape.head_width, shape.key_value_head(head));
        let row = shape.row_index(batch, head, query_index);
        let q = query.row(batch, head, query_index, d);
        for (key_index, gradient) in score_gradients.iter().enumerate() {
            let head = (batch * shape.heads + head) * layout.head_len(shape);
            self.bias[head + bias_index(shape, layout, query_index, key_index)] += gradient;
            let gradient = gradient * f64::from(options.scale);
            let k = key.row(batch, key_value_head, key_index, d);
            let at =
                ((batch * shape.key_value_heads + key_value_head) * shape.keys + key_index) * d;
            for i in 0..d {
                self.query[row * d + i] += terms.of(gradient * f64::from(k[i]));
                self.key[at + i] += terms.of(gradient * f64::from(q[i]));
            }
        }
    }
}

fn for_each_row(shape: &Shape, mut work: impl FnMut(usize, usize, usize, usize)) {
    for batch in 0..shape.batch {
        for head in 0..shape.heads {
            for query in 0..shape.queries {
                work(batch, head, query, shape.row_index(batch, head, query));
            }
        }
    }
}

/// Index of the bias of a query and a key in their head.
fn bias_index(shape: &Shape, layout: BiasLayout, query: usize, key: usize) -> usize {
    match layout {
        BiasLayout::PerPair => query * shape.keys + key,
        BiasLayout::PerKey => key,
        BiasLayout::PerDistance => key + shape.queries - 1 - query,
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    products(a, b).sum()
}

fn products(a: &[f32], b: &[f32]) -> impl Iterator<Item = f64> {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| f64::from(*a) * f64::from(*b))
}

/// The dropout factor of the weight of a row and a key.
fn dropout_factor(options: &Options, shape: &Shape, row: usize, key: usize) -> f32 {
    options.dropout.map_or(1.0, |it| {
        let index = row as u64 * shape.keys as u64 + key as u64;
        it.dropout.factor(it.key, index)
    })
}
