//! The specification of linear attention: whole matrices, one element at a time, sums in f64.

use super::{Heads, Options, Order, Shape, Strides};
use crate::attention::naive::Terms;

/// The results of the naive forward pass.
#[derive(Clone, Debug)]
pub struct NaiveLinearForward {
    /// `[batch, heads, queries, value_width]`
    pub context: Vec<f64>,
    /// `Σ φq·φk` of each row, `[batch, heads, queries]`
    pub denominators: Vec<f64>,
    /// `[batch, key_value_heads, features, value_width]`
    pub kv_sums: Vec<f64>,
    /// `[batch, key_value_heads, features]`
    pub key_sums: Vec<f64>,
}

/// Linear attention by its definition.
pub fn forward(shape: &Shape, operands: [Heads; 3], options: &Options) -> NaiveLinearForward {
    forward_terms(shape, operands, options, Terms::Signed)
}

/// The context sums these terms; the other results do not depend on them.
fn forward_terms(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    options: &Options,
    terms: Terms,
) -> NaiveLinearForward {
    let (features, width) = (shape.head_width, shape.value_width);
    let mut out = NaiveLinearForward {
        context: Vec::new(),
        denominators: Vec::new(),
        kv_sums: Vec::new(),
        key_sums: Vec::new(),
    };
    for_each_row(shape, |batch, head, query_index| {
        let key_value_head = key_value_head(shape, head);
        let q = row(query, [batch, head, query_index], features);
        let (mut context, mut denominator) = (vec![0.0; width], 0.0);
        if let Some(state) = options.initial_state {
            let index = batch * shape.key_value_heads + key_value_head;
            for (q, at) in q.iter().zip(index * features..) {
                denominator += q * f64::from(state.key_sums[at]);
                for (column, sum) in context.iter_mut().enumerate() {
                    *sum += terms.of(q * f64::from(state.kv_sums[at * width + column]));
                }
            }
        }
        for key_index in visible_keys(shape, options, batch, query_index) {
            let weight = dot(&q, &row(key, [batch, key_value_head, key_index], features));
            let v = row(value, [batch, key_value_head, key_index], width);
            denominator += weight;
            for (sum, v) in context.iter_mut().zip(v) {
                *sum += terms.of(weight * v);
            }
        }
        let inverse = if denominator == 0.0 {
            0.0
        } else {
            1.0 / denominator
        };
        out.context.extend(context.iter().map(|sum| sum * inverse));
        out.denominators.push(denominator);
    });
    for batch in 0..shape.batch {
        for head in 0..shape.key_value_heads {
            let index = batch * shape.key_value_heads + head;
            for feature in 0..features {
                let at = index * features + feature;
                let initial = |data: &[f32], at: usize| f64::from(data[at]);
                let mut key_sum = options
                    .initial_state
                    .map_or(0.0, |it| initial(it.key_sums, at));
                let mut kv_sums: Vec<f64> = (at * width..(at + 1) * width)
                    .map(|at| {
                        options
                            .initial_state
                            .map_or(0.0, |it| initial(it.kv_sums, at))
                    })
                    .collect();
                for key_index in
                    (0..shape.keys).filter(|key_index| is_unpadded(options, batch, *key_index))
                {
                    let k = row(key, [batch, head, key_index], features)[feature];
                    key_sum += k;
                    for (sum, v) in
                        kv_sums
                            .iter_mut()
                            .zip(row(value, [batch, head, key_index], width))
                    {
                        *sum += k * v;
                    }
                }
                out.key_sums.push(key_sum);
                out.kv_sums.extend(kv_sums);
            }
        }
    }
    out
}

/// Gradients by the definition, `[batch, heads, length, width]` each.
#[derive(Clone, Debug)]
pub struct NaiveLinearGradients {
    /// The gradient of the queries' features.
    pub query: Vec<f64>,
    /// The gradient of the keys' features.
    pub key: Vec<f64>,
    /// The gradient of the values.
    pub value: Vec<f64>,
}

/// The gradients of the sum of `context · context_gradients`, both `[batch, heads, queries, value_width]`. Magnitudes of terms
/// assume exact denominators, which nonnegative features nearly have.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    context_gradients: &[f32],
    options: &Options,
    terms: Terms,
) -> NaiveLinearGradients {
    let (features, width) = (shape.head_width, shape.value_width);
    let forward = forward_terms(shape, [query, key, value], options, terms);
    let key_rows = shape.batch * shape.key_value_heads * shape.keys;
    let mut out = NaiveLinearGradients {
        query: Vec::new(),
        key: vec![0.0; key_rows * features],
        value: vec![0.0; key_rows * width],
    };
    let mut row_index = 0;
    for_each_row(shape, |batch, head, query_index| {
        let key_value_head = key_value_head(shape, head);
        let q = row(query, [batch, head, query_index], features);
        let range = row_index * width..(row_index + 1) * width;
        let denominator = forward.denominators[row_index];
        row_index += 1;
        let inverse = if denominator == 0.0 {
            0.0
        } else {
            1.0 / denominator
        };
        // The gradients of the numerator and the denominator.
        let numerator_gradient: Vec<f64> = context_gradients[range.clone()]
            .iter()
            .map(|it| terms.of(f64::from(*it) * inverse))
            .collect();
        let denominator_gradient = terms.of(-dot(&numerator_gradient, &forward.context[range]));
        let mut query_gradient = vec![0.0; features];
        if let Some(state) = options.initial_state {
            let index = batch * shape.key_value_heads + key_value_head;
            for (feature, gradient) in query_gradient.iter_mut().enumerate() {
                let at = index * features + feature;
                *gradient += terms.of(denominator_gradient * f64::from(state.key_sums[at]));
                for (column, numerator_gradient) in numerator_gradient.iter().enumerate() {
                    *gradient += terms
                        .of(numerator_gradient * f64::from(state.kv_sums[at * width + column]));
                }
            }
        }
        for key_index in visible_keys(shape, options, batch, query_index) {
            let k = row(key, [batch, key_value_head, key_index], features);
            let v = row(value, [batch, key_value_head, key_index], width);
            let products = numerator_gradient
                .iter()
                .zip(&v)
                .map(|(a, v)| terms.of(a * v));
            let (weight, gradient) = (dot(&q, &k), products.sum::<f64>() + denominator_gradient);
            let at = (batch * shape.key_value_heads + key_value_head) * shape.keys + key_index;
            for feature in 0..features {
                query_gradient[feature] += terms.of(gradient * k[feature]);
                out.key[at * features + feature] += terms.of(gradient * q[feature]);
            }
            for (column, numerator_gradient) in numerator_gradient.iter().enumerate() {
                out.value[at * width + column] += terms.of(weight * numerator_gradient);
            }
        }
        out.query.extend(query_gradient);
    });
    out
}

fn visible_keys<'a>(
    shape: &'a Shape,
    options: &'a Options,
    batch: usize,
    query: usize,
) -> impl Iterator<Item = usize> + 'a {
    (0..shape.keys).filter(move |key| is_visible(shape, options, batch, query, *key))
}

fn is_visible(shape: &Shape, options: &Options, batch: usize, query: usize, key: usize) -> bool {
    let is_earlier = key + shape.queries <= query + shape.keys;
    is_unpadded(options, batch, key) && (options.order == Order::Bidirectional || is_earlier)
}

fn is_unpadded(options: &Options, batch: usize, key: usize) -> bool {
    options.keys.is_none_or(|keys| keys[batch].contains(&key))
}

fn key_value_head(shape: &Shape, head: usize) -> usize {
    head / (shape.heads / shape.key_value_heads)
}

fn for_each_row(shape: &Shape, mut work: impl FnMut(usize, usize, usize)) {
    for batch in 0..shape.batch {
        for head in 0..shape.heads {
            for query in 0..shape.queries {
                work(batch, head, query);
            }
        }
    }
}

fn row(heads: Heads, [batch, head, row]: [usize; 3], width: usize) -> Vec<f64> {
    let Strides {
        batch: batch_stride,
        head: head_stride,
        row: by_row,
    } = heads.strides;
    let start = batch * batch_stride + head * head_stride + row * by_row;
    let values = heads.data[start..start + width].iter();
    values.map(|value| f64::from(*value)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
