//! The tiled passes against the naive reference, and its gradients against finite differences.

mod weights_backward;

use std::ops::Range;
use std::panic;

use attentive_testing::{Scale, assert_close};
use proptest::prelude::*;

use super::naive::Terms;
use super::*;
use crate::simd::{self, with_instructions};

fn values_from(count: usize, seed: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7919 + seed * 104_729 + 13) % 2003) as f32 / 1001.5 - 1.0)
        .collect()
}

#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    causal: bool,
    window: Option<usize>,
    keys: Option<Vec<Range<usize>>>,
    /// The block size, and whether heads share the pattern.
    blocks: Option<(usize, bool)>,
    bias: Option<BiasLayout>,
    dropout: bool,
    has_log_sum_exp_gradient: bool,
    length_first: bool,
}

impl Case {
    fn strides(&self, heads: usize, length: usize, width: usize) -> Strides {
        match self.length_first {
            true => Strides::length_first(heads, length, width),
            false => Strides::heads_first(heads, length, width),
        }
    }

    fn pattern(&self) -> Option<BlockPattern> {
        let (block, shared) = self.blocks?;
        let heads = if shared { 1 } else { self.shape.heads };
        let rows = self.shape.queries.div_ceil(block);
        let columns = self.shape.keys.div_ceil(block);
        // Every third row sees random blocks only; the others also their neighbours and the first block.
        let is_visible = |head: usize, row: usize, column: usize| {
            let is_random = (head * 7919 + row * 104_729 + column * 31 + 5) % 11 < 2;
            is_random || (!row.is_multiple_of(3) && (column == 0 || row.abs_diff(column) < 2))
        };
        let row = |head, row| {
            (0..columns)
                .filter(|it| is_visible(head, row, *it))
                .collect()
        };
        let head = |head| (0..rows).map(|it| row(head, it)).collect();
        Some(BlockPattern::new(block, (0..heads).map(head).collect()))
    }
}

/// For results of order one, such as averages of values.
fn assert_near_reference(what: &str, case: &Case, found: &[f32], expected: &[f64]) {
    let what = format_args!("{what} of {case:?}");
    assert_close(what, found, expected, Scale::EachOrOne, 2e-5);
}

/// The reference gradients, and the magnitudes of the terms that they sum.
struct ExpectedGradients {
    gradients: naive::NaiveGradients,
    magnitudes: naive::NaiveGradients,
}

impl ExpectedGradients {
    fn new(computed: impl Fn(Terms) -> naive::NaiveGradients) -> Self {
        Self {
            gradients: computed(Terms::Signed),
            magnitudes: computed(Terms::Magnitudes),
        }
    }

    /// Relative to the magnitudes of terms: with one key per query, for example, the gradient of each score is zero, a difference
    /// of two sums in different orders.
    fn assert_close(
        &self,
        what: &str,
        case: &Case,
        found: &[f32],
        of: fn(&naive::NaiveGradients) -> &[f64],
    ) {
        let what = format_args!("{what} of {case:?}");
        let terms = Scale::Terms(of(&self.magnitudes));
        assert_close(what, found, of(&self.gradients), terms, 2e-5);
    }
}

/// The values of strided rows in `[batch, heads, length, width]` order.
fn to_heads_first(
    data: &[f32],
    strides: Strides,
    [batch, heads, length, width]: [usize; 4],
) -> Vec<f32> {
    let mut out = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            for l in 0..length {
                let at = strides.at(b, h, l);
                out.extend_from_slice(&data[at..at + width]);
            }
        }
    }
    out
}

fn check(case: &Case) {
    let s = case.shape;
    let sizes = |heads: usize, length: usize, width: usize| [s.batch, heads, length, width];
    let q_size = sizes(s.heads, s.queries, s.head_width);
    let k_size = sizes(s.key_value_heads, s.keys, s.head_width);
    let v_size = sizes(s.key_value_heads, s.keys, s.value_width);
    let c_size = sizes(s.heads, s.queries, s.value_width);
    let count = |size: [usize; 4]| size.iter().product::<usize>();
    let strides = |size: [usize; 4]| case.strides(size[1], size[2], size[3]);
    let data =
        [q_size, k_size, v_size, c_size].map(|size| values_from(count(size), size[3] + size[1]));
    let heads = |i: usize, size: [usize; 4]| Heads {
        data: &data[i],
        strides: strides(size),
    };
    let bias_layout = case.bias.unwrap_or_default();
    let mut bias = values_from(s.heads * bias_layout.head_len(&s), 9);
    // Minus infinity masks some scores; with a bias per key, for all queries of a head.
    bias.iter_mut()
        .step_by(7)
        .for_each(|it| *it = f32::NEG_INFINITY);
    if s.keys % 2 == 1 && bias_layout == BiasLayout::PerKey {
        bias[..s.keys].fill(f32::NEG_INFINITY);
    }
    let pattern = case.pattern();
    let options = Options {
        scale: 1.7 / (s.head_width as f32).sqrt(),
        mask: Masking {
            causal: case.causal,
            window: case.window,
            keys: case.keys.as_deref(),
            blocks: pattern.as_ref(),
        },
        bias: case.bias.map(|layout| Bias {
            data: &bias,
            layout,
            batch_stride: 0,
            head_stride: layout.head_len(&s),
        }),
        dropout: case.dropout.then_some(AttentionDropout {
            dropout: Dropout::new(0.3),
            key: [5, 6],
        }),
    };
    let (q, k, v) = (heads(0, q_size), heads(1, k_size), heads(2, v_size));
    let context_gradients = heads(3, c_size);
    let expected = naive::forward(&s, q, k, v, &options);
    let output_gradients = to_heads_first(&data[3], strides(c_size), c_size);
    let log_sum_exp_gradients = values_from(s.batch * s.heads * s.queries, 11);
    let log_sum_exp_gradients = case
        .has_log_sum_exp_gradient
        .then_some(&*log_sum_exp_gradients);
    let expected_gradients = ExpectedGradients::new(|terms| {
        naive::backward(
            &s,
            [q, k, v],
            &output_gradients,
            log_sum_exp_gradients,
            &options,
            terms,
        )
    });
    weights_backward::check(case, [q, k], &options, &expected.weights);
    for &instructions in simd::available() {
        with_instructions(instructions, || {
            let mut context = vec![f32::NAN; count(c_size)];
            let mut log_sum_exp = vec![f32::NAN; s.batch * s.heads * s.queries];
            forward(
                &s,
                [q, k, v],
                &options,
                &mut context,
                strides(c_size),
                &mut log_sum_exp,
            );
            assert_near_reference(
                "context",
                case,
                &to_heads_first(&context, strides(c_size), c_size),
                &expected.context,
            );
            assert_near_reference("log_sum_exp", case, &log_sum_exp, &expected.log_sum_exp);
            let mut computed = vec![f32::NAN; log_sum_exp.len() * s.keys];
            weights(&s, q, k, &options, &mut computed);
            assert_near_reference("weights", case, &computed, &expected.weights);

            let [mut dq, mut dk, mut dv] =
                [q_size, k_size, v_size].map(|size| vec![f32::NAN; count(size)]);
            let mut dbias = vec![f32::NAN; s.batch * s.heads * bias_layout.head_len(&s)];
            let saved = SavedForward {
                context: Heads {
                    data: &context,
                    strides: strides(c_size),
                },
                log_sum_exp: &log_sum_exp,
            };
            let output_gradients = OutputGradients {
                context: context_gradients,
                log_sum_exp: log_sum_exp_gradients,
            };
            let gradients = Gradients {
                query: &mut dq,
                query_strides: strides(q_size),
                key: &mut dk,
                key_strides: strides(k_size),
                value: &mut dv,
                value_strides: strides(v_size),
                bias: Some(&mut dbias),
            };
            backward(&s, [q, k, v], saved, output_gradients, &options, gradients);
            let found = to_heads_first(&dq, strides(q_size), q_size);
            expected_gradients.assert_close("query", case, &found, |it| &it.query);
            let found = to_heads_first(&dk, strides(k_size), k_size);
            expected_gradients.assert_close("key", case, &found, |it| &it.key);
            let found = to_heads_first(&dv, strides(v_size), v_size);
            expected_gradients.assert_close("value", case, &found, |it| &it.value);
            expected_gradients.assert_close("bias", case, &dbias, |it| &it.bias);
            // Without a gradient of the bias, the scores take another code path.
            let mut dq_without_bias = vec![f32::NAN; count(q_size)];
            let gradients = Gradients {
                query: &mut dq_without_bias,
                query_strides: strides(q_size),
                key: &mut dk,
                key_strides: strides(k_size),
                value: &mut dv,
                value_strides: strides(v_size),
                bias: None,
            };
            backward(&s, [q, k, v], saved, output_gradients, &options, gradients);
            let dq_without_bias = to_heads_first(&dq_without_bias, strides(q_size), q_size);
            expected_gradients.assert_close(
                "query, without a bias",
                case,
                &dq_without_bias,
                |it| &it.query,
            );
        });
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let lengths = || {
        prop_oneof![
            Just(1usize),
            Just(2),
            Just(47),
            Just(64),
            Just(65),
            Just(95),
            Just(96),
            Just(97),
            Just(128),
            Just(129),
            Just(192),
            Just(255),
            Just(256),
            Just(257),
            3usize..40,
            Just(0)
        ]
    };
    let widths = || {
        prop_oneof![
            Just(1usize),
            Just(7),
            Just(8),
            Just(15),
            Just(16),
            Just(17),
            Just(32),
            Just(33),
            Just(64),
            Just(96),
            Just(130)
        ]
    };
    let heads = prop_oneof![
        Just((1usize, 1usize)),
        Just((2, 2)),
        Just((4, 2)),
        Just((3, 1))
    ];
    let sizes = (1usize..3, heads, lengths(), lengths(), widths(), widths());
    let window = prop_oneof![
        Just(None),
        Just(Some(1usize)),
        Just(Some(5)),
        Just(Some(200))
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let bias = prop_oneof![
        Just(None),
        Just(Some(BiasLayout::PerPair)),
        Just(Some(BiasLayout::PerKey)),
        Just(Some(BiasLayout::PerDistance))
    ];
    (
        sizes,
        flags,
        bias,
        window,
        proptest::option::of((0usize..60, 0usize..140)),
        proptest::option::of((
            prop_oneof![
                Just(1usize),
                Just(2),
                Just(7),
                Just(13),
                Just(16),
                Just(64),
                Just(200)
            ],
            any::<bool>(),
        )),
    )
        .prop_map(
            |(
                (batch, (heads, key_value_heads), queries, keys, head_width, value_width),
                flags,
                bias,
                window,
                padding,
                blocks,
            )| Case {
                shape: Shape {
                    batch,
                    heads,
                    key_value_heads,
                    queries,
                    keys,
                    head_width,
                    value_width,
                },
                causal: flags.0,
                bias,
                blocks,
                dropout: flags.1,
                length_first: flags.2,
                has_log_sum_exp_gradient: flags.3,
                window,
                keys: padding.map(|(from, to)| {
                    let to = to.min(keys);
                    vec![from.min(to)..to, 0..keys]
                }),
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn equals_the_naive_reference(case in cases()) {
        check(&case);
    }
}

/// One head of many positions.
fn long([queries, keys]: [usize; 2]) -> Case {
    Case {
        shape: Shape {
            batch: 1,
            heads: 1,
            key_value_heads: 1,
            queries,
            keys,
            head_width: 17,
            value_width: 33,
        },
        causal: false,
        window: None,
        keys: None,
        blocks: None,
        bias: None,
        dropout: false,
        has_log_sum_exp_gradient: false,
        length_first: false,
    }
}

#[test]
fn long_sequences_take_several_tasks_blocks_and_tiles() {
    // In the last case, the first queries are before all keys.
    for lengths in [[193, 193], [200, 400], [385, 257], [400, 129]] {
        let (plain, padding) = (long(lengths), 60..lengths[1].min(140));
        check(&plain);
        check(&Case {
            causal: true,
            dropout: true,
            ..plain.clone()
        });
        check(&Case {
            window: Some(5),
            ..plain.clone()
        });
        check(&Case {
            window: Some(200),
            causal: true,
            ..plain.clone()
        });
        check(&Case {
            keys: Some(vec![padding]),
            ..plain.clone()
        });
        check(&Case {
            blocks: Some((64, true)),
            causal: true,
            ..plain.clone()
        });
        check(&Case {
            blocks: Some((7, true)),
            bias: Some(BiasLayout::PerDistance),
            ..plain
        });
    }
}

/// The context of a [`long`] case with this mask and these values.
fn context_of(case: &Case, mask: Masking, values: &[f32], threads: usize) -> Vec<f32> {
    let shape = case.shape;
    let [value_width, head_width] = [shape.value_width, shape.head_width];
    let (query, key) = (
        values_from(shape.queries * head_width, 1),
        values_from(shape.keys * head_width, 2),
    );
    let heads = |data, length, width| Heads {
        data,
        strides: Strides::heads_first(1, length, width),
    };
    let options = Options {
        scale: 0.3,
        mask,
        bias: None,
        dropout: None,
    };
    let operands = [
        heads(&query, shape.queries, head_width),
        heads(&key, shape.keys, head_width),
        heads(values, shape.keys, value_width),
    ];
    let mut context = vec![f32::NAN; shape.queries * value_width];
    let strides = Strides::heads_first(1, shape.queries, value_width);
    let log_sum_exp = &mut vec![f32::NAN; shape.queries];
    forward::forward_for(
        threads,
        &shape,
        operands,
        &options,
        &mut context,
        strides,
        log_sum_exp,
    );
    context
}

#[test]
fn masked_values_may_be_anything() {
    // All queries see the second block of 64 keys, in the middle of a tile, or one of 16, in the middle of a panel; or, decoding
    // with few queries, the last eight keys.
    let pattern = BlockPattern::new(64, vec![vec![vec![1]; 4]]);
    let small = BlockPattern::new(16, vec![vec![vec![3]; 13]]);
    let of_blocks = |blocks| Masking {
        blocks: Some(blocks),
        ..Masking::default()
    };
    let masks = [
        (200, 64..128, of_blocks(&pattern)),
        (200, 48..64, of_blocks(&small)),
        (
            2,
            247..256,
            Masking {
                causal: true,
                window: Some(8),
                ..Masking::default()
            },
        ),
    ];
    for (queries, visible, mask) in masks {
        let case = long([queries, 256]);
        let value_width = case.shape.value_width;
        let mut values = vec![f32::NAN; 256 * value_width];
        values[visible.start * value_width..visible.end * value_width].fill(1.0);
        for &instructions in simd::available() {
            with_instructions(instructions, || {
                let context = context_of(&case, mask, &values, 2);
                let ones = vec![1.0; context.len()];
                assert_close(queries, &context, &ones, Scale::One, 1e-5);
            });
        }
    }
}

#[test]
fn results_do_not_depend_on_how_queries_are_split_into_tasks() {
    let case = long([1000, 1000]);
    let values = values_from(1000 * case.shape.value_width, 3);
    // Blocks whose boundaries are not task boundaries.
    let pattern = BlockPattern::new(
        40,
        vec![(0..25).map(|row| (row / 2..=row).collect()).collect()],
    );
    let window = Masking {
        causal: true,
        window: Some(100),
        ..Masking::default()
    };
    for mask in [
        window,
        Masking {
            blocks: Some(&pattern),
            ..window
        },
    ] {
        let expected = context_of(&case, mask, &values, 1);
        for threads in [2, 3, 8] {
            assert!(
                context_of(&case, mask, &values, threads) == expected,
                "{threads} threads"
            );
        }
    }
}

#[test]
fn the_reference_gradients_match_finite_differences() {
    let shape = Shape {
        batch: 1,
        heads: 2,
        key_value_heads: 1,
        queries: 3,
        keys: 4,
        head_width: 3,
        value_width: 2,
    };
    let options = Options {
        scale: 0.8,
        mask: Masking {
            causal: true,
            ..Masking::default()
        },
        bias: None,
        dropout: Some(AttentionDropout {
            dropout: Dropout::new(0.4),
            key: [1, 2],
        }),
    };
    let data = [values_from(18, 1), values_from(12, 2), values_from(8, 3)];
    let output_gradients = values_from(12, 4);
    let layout = [
        Strides::heads_first(2, 3, 3),
        Strides::heads_first(1, 4, 3),
        Strides::heads_first(1, 4, 2),
    ];
    let view =
        |data: &[Vec<f32>; 3], i: usize| -> (Vec<f32>, Strides) { (data[i].clone(), layout[i]) };
    let loss = |data: &[Vec<f32>; 3]| -> f64 {
        let parts: Vec<_> = (0..3).map(|i| view(data, i)).collect();
        let heads = |i: usize| Heads {
            data: &parts[i].0,
            strides: parts[i].1,
        };
        let out = naive::forward(&shape, heads(0), heads(1), heads(2), &options);
        out.context
            .iter()
            .zip(&output_gradients)
            .map(|(a, b)| a * f64::from(*b))
            .sum()
    };
    let heads = |i: usize| Heads {
        data: &data[i],
        strides: layout[i],
    };
    let operands = [heads(0), heads(1), heads(2)];
    let gradients = naive::backward(
        &shape,
        operands,
        &output_gradients,
        None,
        &options,
        Terms::Signed,
    );
    for (i, gradients) in [gradients.query, gradients.key, gradients.value]
        .iter()
        .enumerate()
    {
        let measured = |j: usize| {
            let moved = |step: f32| {
                let mut data = data.clone();
                data[i][j] += step;
                loss(&data)
            };
            // The inputs are f32, so the step must be large enough to survive rounding.
            let step = 1.0 / 256.0;
            (moved(step) - moved(-step)) / f64::from(2.0 * step)
        };
        let measured: Vec<f64> = (0..gradients.len()).map(measured).collect();
        assert_close(i, gradients, &measured, Scale::One, 1e-4);
    }
}

#[test]
fn nan_propagates_to_the_queries_that_see_it() {
    let shape = Shape {
        batch: 1,
        heads: 1,
        key_value_heads: 1,
        queries: 2,
        keys: 2,
        head_width: 2,
        value_width: 2,
    };
    let options = Options {
        scale: 1.0,
        mask: Masking {
            causal: true,
            ..Masking::default()
        },
        bias: None,
        dropout: None,
    };
    let strides = Strides::heads_first(1, 2, 2);
    let (q, k) = ([1.0, 0.0, 1.0, 0.0], [0.0, 0.0, f32::NAN, 0.0]);
    let mut context = [0.0; 4];
    let heads = |data| Heads { data, strides };
    forward(
        &shape,
        [heads(&q), heads(&k), heads(&[1.0; 4])],
        &options,
        &mut context,
        strides,
        &mut [0.0; 2],
    );
    assert_eq!(context[..2], [1.0, 1.0]);
    assert!(context[2].is_nan());
}

#[test]
fn rows_that_overlap_are_refused() {
    let strides = |batch, head, row| Strides { batch, head, row };
    let check =
        |it: Strides, size: usize| panic::catch_unwind(|| it.check_disjoint([2, 3, 5], 4, size));
    assert!(check(Strides::heads_first(3, 5, 4), 120).is_ok());
    assert!(check(Strides::length_first(3, 5, 4), 120).is_ok());
    assert!(
        check(Strides::heads_first(3, 5, 4), 119).is_err(),
        "too short"
    );
    for overlapping in [
        strides(0, 20, 4),
        strides(60, 16, 4),
        strides(60, 20, 3),
        strides(60, 3, 12),
    ] {
        assert!(check(overlapping, 1000).is_err(), "{overlapping:?}");
    }
}
