//! Equal bits for equal shapes: a row of a result depends on no other row, whatever that holds.

use crate::Init;
use crate::activation::Activation;
use crate::attention::{self, Heads, Masking, Options, Shape, Strides};
use crate::checks::{on_each_instruction_set, unit_values};
use crate::gemm::{Matrix, gemm};
use crate::linear::{self, LinearForward, LinearShape};
use crate::norms::NormForward;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|it| it.to_bits()).collect()
}

/// Fails unless rows of the result keep their bits when all other rows of the operand change. The result has as many rows.
fn check(what: &str, operand: &[f32], rows: usize, run: impl Fn(&[f32]) -> Vec<f32>) {
    let expected = run(operand);
    let (width, result_width) = (operand.len() / rows, expected.len() / rows);
    for kept in [0, rows / 2, rows - 1] {
        for other in [0.3, 1e30, f32::NAN] {
            let values = operand.iter().enumerate();
            let changed: Vec<f32> = values
                .map(|(i, value)| if i / width == kept { *value } else { other })
                .collect();
            let row = kept * result_width..(kept + 1) * result_width;
            assert_eq!(
                bits(&run(&changed)[row.clone()]),
                bits(&expected[row]),
                "{what}: row {kept} of {rows}, the others are {other}"
            );
        }
    }
}

#[test]
fn a_row_of_a_linear_layer_depends_on_no_other() {
    let (input, output) = (67, 35);
    let (weight, bias) = (unit_values(1, output * input), unit_values(2, output));
    // GEMV, partial and whole tiles, several blocks of rows.
    for rows in [2, 4, 5, 6, 13, 150] {
        let shape = LinearShape {
            rows,
            input,
            output,
        };
        let x = unit_values(3, rows * input);
        for weight in [
            Matrix::new(&weight, output, input),
            Matrix::new(&weight, input, output).transposed(),
        ] {
            on_each_instruction_set(|| {
                check("linear", &x, rows, |x| {
                    let mut y = vec![f32::NAN; rows * output];
                    let layer = LinearForward {
                        shape,
                        weight,
                        bias: Some(&bias),
                        activation: Some(Activation::Gelu),
                        pre_activation: None,
                        y: &mut y,
                    };
                    linear::forward(x, [layer]);
                    y
                });
            });
        }
    }
}

#[test]
fn a_row_of_a_product_depends_on_no_other() {
    // Few columns, and so many that A is packed; more than a block of depth.
    for (rows, depth, columns) in [(7, 40, 33), (150, 40, 300), (13, 400, 300)] {
        let (a, b) = (
            unit_values(1, rows * depth),
            unit_values(2, depth * columns),
        );
        let b = Matrix::new(&b, depth, columns);
        on_each_instruction_set(|| {
            check("gemm", &a, rows, |a| {
                let mut c = vec![f32::NAN; rows * columns];
                gemm(
                    Matrix::new(a, rows, depth),
                    b,
                    &mut c,
                    Init::Zero,
                    |_, _, _| (),
                );
                c
            });
        });
    }
}

#[test]
fn a_row_of_a_norm_depends_on_no_other() {
    for (rows, width) in [(2, 17), (7, 65), (300, 130)] {
        let (x, weight, bias) = (
            unit_values(1, rows * width),
            unit_values(2, width),
            unit_values(3, width),
        );
        for has_mean in [false, true] {
            on_each_instruction_set(|| {
                check("norm", &x, rows, |x| {
                    let mut y = vec![f32::NAN; x.len()];
                    let (mut mean, mut rstd) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
                    NormForward {
                        x,
                        sum: None,
                        weight: &weight,
                        bias: Some(&bias),
                        epsilon: 1e-5,
                        y: &mut y,
                        mean: has_mean.then_some(mean.as_mut_slice()),
                        rstd: &mut rstd,
                    }
                    .run();
                    y
                });
            });
        }
    }
}

/// The context, whose rows are `[batch, heads, queries]`.
fn attend(shape: &Shape, causal: bool, [query, key, value]: [&[f32]; 3]) -> Vec<f32> {
    let heads = |data, heads, length, width| Heads {
        data,
        strides: Strides::heads_first(heads, length, width),
    };
    let operands = [
        heads(query, shape.heads, shape.queries, shape.head_width),
        heads(key, shape.key_value_heads, shape.keys, shape.head_width),
        heads(value, shape.key_value_heads, shape.keys, shape.value_width),
    ];
    let options = Options {
        scale: 1.7,
        mask: Masking {
            causal,
            ..Masking::default()
        },
        bias: None,
        dropout: None,
    };
    let rows = shape.batch * shape.heads * shape.queries;
    let mut context = vec![f32::NAN; rows * shape.value_width];
    let strides = Strides::heads_first(shape.heads, shape.queries, shape.value_width);
    let log_sum_exp = &mut vec![f32::NAN; rows];
    attention::forward(
        shape,
        operands,
        &options,
        &mut context,
        strides,
        log_sum_exp,
    );
    context
}

#[test]
fn attention_of_a_query_depends_on_no_other_query_or_head_and_on_no_later_key() {
    // Decoding, partial and whole tiles, more than a block of queries; more than a tile of keys.
    for queries in [2, 4, 5, 13, 97] {
        let shape = Shape {
            batch: 2,
            heads: 2,
            key_value_heads: 1,
            queries,
            keys: 260,
            head_width: 9,
            value_width: 17,
        };
        let key_rows = shape.batch * shape.key_value_heads * shape.keys;
        let query_rows = shape.batch * shape.heads * queries;
        let query = unit_values(1, query_rows * shape.head_width);
        let key = unit_values(2, key_rows * shape.head_width);
        let value = unit_values(3, key_rows * shape.value_width);
        on_each_instruction_set(|| {
            for causal in [false, true] {
                let run = |operands: [&[f32]; 3]| attend(&shape, causal, operands);
                check("queries", &query, query_rows, |it| run([it, &key, &value]));
                // All queries of a sequence have the same key-value head.
                check("keys", &key, shape.batch, |it| run([&query, it, &value]));
                check("values", &value, shape.batch, |it| run([&query, &key, it]));
            }
            check_later_keys(&shape, [&query, &key, &value]);
        });
    }
}

/// Masked keys and values may hold any finite number.
fn check_later_keys(shape: &Shape, [query, key, value]: [&[f32]; 3]) {
    let expected = attend(shape, true, [query, key, value]);
    for index in [0, shape.queries / 2, shape.queries - 1] {
        let position = shape.keys - shape.queries + index;
        for other in [0.3, 1e30] {
            let changed = |data: &[f32], width: usize| -> Vec<f32> {
                let is_later = |i: usize| i / width % shape.keys > position;
                let values = data.iter().enumerate();
                values
                    .map(|(i, value)| if is_later(i) { other } else { *value })
                    .collect()
            };
            let key = changed(key, shape.head_width);
            let value = changed(value, shape.value_width);
            let found = attend(shape, true, [query, &key, &value]);
            for head in 0..shape.batch * shape.heads {
                let start = (head * shape.queries + index) * shape.value_width;
                let row = start..start + shape.value_width;
                assert_eq!(
                    bits(&found[row.clone()]),
                    bits(&expected[row]),
                    "query {index} of {shape:?}, later keys are {other}"
                );
            }
        }
    }
}
