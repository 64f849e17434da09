//! The specification of linear attention: whole matrices, one number at a time, sums in f64.

use super::{Heads, Options, Order, Shape, Strides};
use crate::attention::naive::Terms;

/// What the naive forward pass gives.
#[derive(Clone, Debug)]
pub struct Forward {
    /// `[batch, heads, queries, value_width]`
    pub context: Vec<f64>,
    /// `Σ φq·φk` of each row, `[batch, heads, queries]`
    pub denominators: Vec<f64>,
    /// `[batch, key_value_heads, features, value_width]`
    pub sums: Vec<f64>,
    /// `[batch, key_value_heads, features]`
    pub totals: Vec<f64>,
}

/// Linear attention by its definition.
pub fn forward(shape: &Shape, operands: [Heads; 3], options: &Options) -> Forward {
    forward_of(shape, operands, options, Terms::Signed)
}

/// The context is the sum of the terms; nothing else depends on which.
fn forward_of(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    options: &Options,
    terms: Terms,
) -> Forward {
    let (features, width) = (shape.head_width, shape.value_width);
    let mut out = Forward {
        context: Vec::new(),
        denominators: Vec::new(),
        sums: Vec::new(),
        totals: Vec::new(),
    };
    for_each_row(shape, |batch, head, place| {
        let shared = shared(shape, head);
        let q = row(query, [batch, head, place], features);
        let (mut context, mut denominator) = (vec![0.0; width], 0.0);
        if let Some(start) = options.start {
            let index = batch * shape.key_value_heads + shared;
            for (q, at) in q.iter().zip(index * features..) {
                denominator += q * f64::from(start.totals[at]);
                for (column, sum) in context.iter_mut().enumerate() {
                    *sum += terms.of(q * f64::from(start.sums[at * width + column]));
                }
            }
        }
        for other in (0..shape.keys).filter(|other| sees(shape, options, batch, place, *other)) {
            let weight = dot(&q, &row(key, [batch, shared, other], features));
            let v = row(value, [batch, shared, other], width);
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
                let start = |data: &[f32], at: usize| f64::from(data[at]);
                let mut total = options.start.map_or(0.0, |it| start(it.totals, at));
                let mut sums: Vec<f64> = (at * width..(at + 1) * width)
                    .map(|at| options.start.map_or(0.0, |it| start(it.sums, at)))
                    .collect();
                for other in (0..shape.keys).filter(|other| is_real(options, batch, *other)) {
                    let k = row(key, [batch, head, other], features)[feature];
                    total += k;
                    for (sum, v) in sums.iter_mut().zip(row(value, [batch, head, other], width)) {
                        *sum += k * v;
                    }
                }
                out.totals.push(total);
                out.sums.extend(sums);
            }
        }
    }
    out
}

/// Gradients by the definition, `[batch, heads, length, width]` each.
#[derive(Clone, Debug)]
pub struct Backward {
    /// Of the queries' features.
    pub query: Vec<f64>,
    /// Of the keys' features.
    pub key: Vec<f64>,
    /// Of the values.
    pub value: Vec<f64>,
}

/// The gradients of the sum of `context · upstream`, with `upstream` `[batch, heads, queries, value_width]`. Sizes of terms
/// take the denominators for exact, as those of features that are not negative nearly are.
pub fn backward(
    shape: &Shape,
    [query, key, value]: [Heads; 3],
    upstream: &[f32],
    options: &Options,
    terms: Terms,
) -> Backward {
    let (features, width) = (shape.head_width, shape.value_width);
    let passed = forward_of(shape, [query, key, value], options, terms);
    let shared_rows = shape.batch * shape.key_value_heads * shape.keys;
    let mut out = Backward {
        query: Vec::new(),
        key: vec![0.0; shared_rows * features],
        value: vec![0.0; shared_rows * width],
    };
    let mut number = 0;
    for_each_row(shape, |batch, head, place| {
        let shared = shared(shape, head);
        let q = row(query, [batch, head, place], features);
        let line = number * width..(number + 1) * width;
        let denominator = passed.denominators[number];
        number += 1;
        let inverse = if denominator == 0.0 {
            0.0
        } else {
            1.0 / denominator
        };
        // The slopes of the sum above the line, and of the one below.
        let above: Vec<f64> = upstream[line.clone()]
            .iter()
            .map(|it| terms.of(f64::from(*it) * inverse))
            .collect();
        let below = terms.of(-dot(&above, &passed.context[line]));
        let mut slopes = vec![0.0; features];
        if let Some(start) = options.start {
            let index = batch * shape.key_value_heads + shared;
            for (feature, slope) in slopes.iter_mut().enumerate() {
                let at = index * features + feature;
                *slope += terms.of(below * f64::from(start.totals[at]));
                for (column, above) in above.iter().enumerate() {
                    *slope += terms.of(above * f64::from(start.sums[at * width + column]));
                }
            }
        }
        for other in (0..shape.keys).filter(|other| sees(shape, options, batch, place, *other)) {
            let k = row(key, [batch, shared, other], features);
            let v = row(value, [batch, shared, other], width);
            let products = above.iter().zip(&v).map(|(a, v)| terms.of(a * v));
            let (weight, slope) = (dot(&q, &k), products.sum::<f64>() + below);
            let at = (batch * shape.key_value_heads + shared) * shape.keys + other;
            for feature in 0..features {
                slopes[feature] += terms.of(slope * k[feature]);
                out.key[at * features + feature] += terms.of(slope * q[feature]);
            }
            for (column, above) in above.iter().enumerate() {
                out.value[at * width + column] += terms.of(weight * above);
            }
        }
        out.query.extend(slopes);
    });
    out
}

fn sees(shape: &Shape, options: &Options, batch: usize, query: usize, key: usize) -> bool {
    let earlier = key + shape.queries <= query + shape.keys;
    is_real(options, batch, key) && (options.order == Order::Any || earlier)
}

fn is_real(options: &Options, batch: usize, key: usize) -> bool {
    options.keys.is_none_or(|keys| keys[batch].contains(&key))
}

fn shared(shape: &Shape, head: usize) -> usize {
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
        batch: by_batch,
        head: by_head,
        row: by_row,
    } = heads.strides;
    let start = batch * by_batch + head * by_head + row * by_row;
    let numbers = heads.data[start..start + width].iter();
    numbers.map(|number| f64::from(*number)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
