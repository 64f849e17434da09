//! The chunked passes against the naive reference, its gradients against finite differences, and recurrent passes with a carried
//! state against a single one.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::attention::naive::Terms;
use crate::checks::{few_cases, on_each_instruction_set, panic_message, random_values};
use attentive_testing::{Scale, assert_close};

#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    order: Order,
    keys: Option<Vec<Range<usize>>>,
    has_initial_state: bool,
    is_length_first: bool,
}

impl Case {
    fn strides(&self, heads: usize, length: usize, width: usize) -> Strides {
        match self.is_length_first {
            true => Strides::length_first(heads, length, width),
            false => Strides::heads_first(heads, length, width),
        }
    }
}

/// Features between 0.01 and 1: denominators far from zero, as positive feature maps give them.
fn features(seed: u64, count: usize) -> Vec<f32> {
    let draws = random_values(seed, count);
    draws.iter().map(|it| it.abs() / 3.0 + 0.01).collect()
}

struct Inputs {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    context_gradients: Vec<f32>,
    kv_sums: Vec<f32>,
    key_sums: Vec<f32>,
}

impl Inputs {
    fn new(shape: &Shape) -> Self {
        let queries = shape.batch * shape.heads * shape.queries;
        let keys = shape.batch * shape.key_value_heads * shape.keys;
        let state = shape.batch * shape.key_value_heads * shape.head_width;
        Self {
            query: features(1, queries * shape.head_width),
            key: features(2, keys * shape.head_width),
            value: random_values(3, keys * shape.value_width),
            context_gradients: random_values(4, queries * shape.value_width),
            kv_sums: random_values(5, state * shape.value_width),
            key_sums: features(6, state),
        }
    }
}

/// `[batch, length, heads, width]` in the order `[batch, heads, length, width]`.
fn heads_first(data: &[f32], [batch, heads, length, width]: [usize; 4]) -> Vec<f32> {
    let mut out = Vec::with_capacity(data.len());
    for batch in 0..batch {
        for head in 0..heads {
            for row in 0..length {
                let at = ((batch * length + row) * heads + head) * width;
                out.extend_from_slice(&data[at..at + width]);
            }
        }
    }
    out
}

fn heads(data: &[f32], strides: Strides) -> Heads<'_> {
    Heads { data, strides }
}

struct OwnedOutputs {
    context: Vec<f32>,
    denominators: Vec<f32>,
    kv_sums: Vec<f32>,
    key_sums: Vec<f32>,
}

fn attend(shape: &Shape, operands: [Heads; 3], options: &Options) -> OwnedOutputs {
    let rows = shape.batch * shape.heads * shape.queries;
    let state = shape.batch * shape.key_value_heads * shape.head_width;
    let unwritten = |count: usize| vec![f32::NAN; count];
    let mut out = OwnedOutputs {
        context: unwritten(rows * shape.value_width),
        denominators: unwritten(rows),
        kv_sums: unwritten(state * shape.value_width),
        key_sums: unwritten(state),
    };
    let outputs = ForwardOutputs {
        context: &mut out.context,
        denominators: &mut out.denominators,
        kv_sums: &mut out.kv_sums,
        key_sums: &mut out.key_sums,
    };
    forward(shape, operands, options, outputs);
    out
}

fn check(case: &Case) {
    let s = case.shape;
    let inputs = Inputs::new(&s);
    let layout = |heads, length, width| case.strides(heads, length, width);
    let operands = [
        heads(&inputs.query, layout(s.heads, s.queries, s.head_width)),
        heads(&inputs.key, layout(s.key_value_heads, s.keys, s.head_width)),
        heads(
            &inputs.value,
            layout(s.key_value_heads, s.keys, s.value_width),
        ),
    ];
    let options = Options {
        order: case.order,
        keys: case.keys.as_deref(),
        initial_state: case.has_initial_state.then_some(State {
            kv_sums: &inputs.kv_sums,
            key_sums: &inputs.key_sums,
        }),
    };
    let expected = naive::forward(&s, operands, &options);
    let [expected_gradients, magnitudes] = [Terms::Signed, Terms::Magnitudes]
        .map(|terms| naive::backward(&s, operands, &inputs.context_gradients, &options, terms));
    let sizes = |heads, length, width| [s.batch, heads, length, width];
    on_each_instruction_set(|| {
        let found = attend(&s, operands, &options);
        let context = heads_first(&found.context, sizes(s.heads, s.queries, s.value_width));
        assert_close(
            "context",
            &context,
            &expected.context,
            Scale::EachOrOne,
            2e-5,
        );
        let what = "denominators";
        assert_close(
            what,
            &found.denominators,
            &expected.denominators,
            Scale::EachOrOne,
            2e-5,
        );
        assert_close(
            "kv_sums",
            &found.kv_sums,
            &expected.kv_sums,
            Scale::EachOrOne,
            4e-5,
        );
        assert_close(
            "key_sums",
            &found.key_sums,
            &expected.key_sums,
            Scale::EachOrOne,
            2e-5,
        );

        let rows = |count: usize| vec![f32::NAN; count];
        let mut query = rows(inputs.query.len());
        let mut key = rows(inputs.key.len());
        let mut value = rows(inputs.value.len());
        let gradients = Gradients {
            query: &mut query,
            key: &mut key,
            value: &mut value,
        };
        let strides = Strides::length_first(s.heads, s.queries, s.value_width);
        let context = heads(&found.context, strides);
        let strides = Strides::heads_first(s.heads, s.queries, s.value_width);
        let context_gradients = heads(&inputs.context_gradients, strides);
        let context_and_gradients = [context, context_gradients];
        let denominators = &found.denominators;
        backward(
            &s,
            operands,
            context_and_gradients,
            denominators,
            &options,
            gradients,
        );
        let query = heads_first(&query, sizes(s.heads, s.queries, s.head_width));
        assert_close(
            "query",
            &query,
            &expected_gradients.query,
            Scale::Terms(&magnitudes.query),
            1e-5,
        );
        let key = heads_first(&key, sizes(s.key_value_heads, s.keys, s.head_width));
        assert_close(
            "key",
            &key,
            &expected_gradients.key,
            Scale::Terms(&magnitudes.key),
            1e-5,
        );
        let value = heads_first(&value, sizes(s.key_value_heads, s.keys, s.value_width));
        assert_close(
            "value",
            &value,
            &expected_gradients.value,
            Scale::Terms(&magnitudes.value),
            1e-5,
        );
    });
}

fn cases() -> impl Strategy<Value = Case> {
    let lengths = || prop::sample::select(vec![0usize, 1, 2, 5, 6, 7, 47, 48, 49, 97, 193, 200]);
    let widths =
        || prop::sample::select(vec![1usize, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 33, 64, 70]);
    let heads = prop::sample::select(vec![(1usize, 1usize), (2, 2), (4, 2), (3, 1)]);
    let lengths = prop_oneof![
        2 => lengths().prop_map(|length| (length, length)),
        1 => (lengths(), lengths()),
    ];
    let sizes = (1usize..3, heads, lengths, widths(), widths());
    let order = prop::sample::select(vec![Order::Bidirectional, Order::Causal]);
    let padding = proptest::option::of((0usize..100, 0usize..210));
    (sizes, order, padding, any::<bool>(), any::<bool>()).prop_map(
        |(sizes, order, padding, has_initial_state, is_length_first)| {
            let (batch, (heads, key_value_heads), (queries, keys), head_width, value_width) = sizes;
            let shape = Shape {
                batch,
                heads,
                key_value_heads,
                queries,
                keys,
                head_width,
                value_width,
            };
            let padding = padding.map(|(from, to)| {
                let to = to.min(keys);
                [from.min(to)..to, 0..keys][..batch].to_vec()
            });
            Case {
                shape,
                order,
                keys: padding,
                has_initial_state,
                is_length_first,
            }
        },
    )
}

proptest! {
    #![proptest_config(few_cases())]
    #[test]
    fn equals_the_naive_reference(case in cases()) {
        check(&case);
    }
}

fn shape_of(length: usize) -> Shape {
    Shape {
        batch: 1,
        heads: 4,
        key_value_heads: 2,
        queries: length,
        keys: length,
        head_width: 19,
        value_width: 13,
    }
}

#[test]
fn segments_with_a_carried_state_equal_a_single_pass() {
    let whole = shape_of(131);
    let inputs = Inputs::new(&whole);
    // Positions are the outer axis in memory, so that segments are slices.
    let operands = |range: Range<usize>, length: usize| {
        let slice = |data: &[f32], heads: usize, width: usize| {
            data[range.start * heads * width..range.end * heads * width].to_vec()
        };
        let parts = [
            (slice(&inputs.query, 4, 19), 4, 19),
            (slice(&inputs.key, 2, 19), 2, 19),
            (slice(&inputs.value, 2, 13), 2, 13),
        ];
        parts.map(|(data, heads, width)| (data, Strides::length_first(heads, length, width)))
    };
    let run = |range: Range<usize>, initial_state: Option<State>| {
        let shape = shape_of(range.len());
        let parts = operands(range.clone(), range.len());
        let operands = parts.each_ref().map(|(data, strides)| Heads {
            data,
            strides: *strides,
        });
        let options = Options {
            order: Order::Causal,
            keys: None,
            initial_state,
        };
        attend(&shape, operands, &options)
    };
    on_each_instruction_set(|| {
        let expected = run(0..131, None);
        let (mut context, mut state) = (Vec::new(), None::<OwnedOutputs>);
        for range in [0..50, 50..51, 51..52, 52..130, 130..131] {
            let initial_state = state.as_ref().map(|it| State {
                kv_sums: &it.kv_sums,
                key_sums: &it.key_sums,
            });
            let segment = run(range, initial_state);
            context.extend_from_slice(&segment.context);
            state = Some(segment);
        }
        let to_f64 = crate::checks::to_f64;
        assert_close(
            "context",
            &context,
            &to_f64(&expected.context),
            Scale::EachOrOne,
            1e-5,
        );
        let state = state.expect("there are segments");
        assert_close(
            "kv_sums",
            &state.kv_sums,
            &to_f64(&expected.kv_sums),
            Scale::EachOrOne,
            1e-5,
        );
        assert_close(
            "key_sums",
            &state.key_sums,
            &to_f64(&expected.key_sums),
            Scale::EachOrOne,
            1e-5,
        );
    });
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
    let inputs = Inputs::new(&shape);
    let layout = [
        Strides::heads_first(2, 3, 3),
        Strides::heads_first(1, 4, 3),
        Strides::heads_first(1, 4, 2),
    ];
    let data = [&inputs.query, &inputs.key, &inputs.value].map(Clone::clone);
    for order in [Order::Bidirectional, Order::Causal] {
        for keys in [None, Some(1..4)] {
            let options = Options {
                order,
                keys: keys.as_ref().map(std::slice::from_ref),
                initial_state: Some(State {
                    kv_sums: &inputs.kv_sums,
                    key_sums: &inputs.key_sums,
                }),
            };
            let heads = |data: &[Vec<f32>; 3]| -> Vec<f64> {
                let operands: [Heads; 3] = std::array::from_fn(|i| Heads {
                    data: &data[i],
                    strides: layout[i],
                });
                naive::forward(&shape, operands, &options).context
            };
            let operands: [Heads; 3] = std::array::from_fn(|i| Heads {
                data: &data[i],
                strides: layout[i],
            });
            let gradients = naive::backward(
                &shape,
                operands,
                &inputs.context_gradients,
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
                        let context = heads(&data);
                        let terms = context.iter().zip(&inputs.context_gradients);
                        terms.map(|(a, b)| a * f64::from(*b)).sum::<f64>()
                    };
                    // The inputs are f32, so the step must be large enough to survive rounding.
                    let step = 1.0 / 1024.0;
                    (moved(step) - moved(-step)) / f64::from(2.0 * step)
                };
                let measured: Vec<f64> = (0..gradients.len()).map(measured).collect();
                // Half an ulp of an input is up to 6e-5 of the step; the curvature adds less.
                assert_close(i, &measured, gradients, Scale::EachOrOne, 1e-4);
            }
        }
    }
}

#[test]
fn a_denominator_of_zero_gives_zeros_and_no_gradient() {
    let shape = Shape {
        batch: 1,
        heads: 1,
        key_value_heads: 1,
        queries: 2,
        keys: 2,
        head_width: 2,
        value_width: 1,
    };
    let [two, one] = [2, 1].map(|width| Strides::heads_first(1, 2, width));
    // The first query has no feature in common with the first key.
    let (q, k, v) = ([1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0], [3.0, 5.0]);
    let operands = [heads(&q, two), heads(&k, two), heads(&v, one)];
    let options = Options {
        order: Order::Causal,
        keys: None,
        initial_state: None,
    };
    on_each_instruction_set(|| {
        let found = attend(&shape, operands, &options);
        assert_eq!(found.context, [0.0, 4.0]);
        let [mut query, mut key, mut value] = [vec![1.0; 4], vec![1.0; 4], vec![1.0; 2]];
        let gradients = Gradients {
            query: &mut query,
            key: &mut key,
            value: &mut value,
        };
        let context_and_gradients = [heads(&found.context, one), heads(&[1.0, 1.0], one)];
        let denominators = &found.denominators;
        backward(
            &shape,
            operands,
            context_and_gradients,
            denominators,
            &options,
            gradients,
        );
        assert_eq!(query, [0.0, 0.0, 0.5, -0.5]);
        assert_eq!(key, [-0.5, -0.5, 0.5, 0.5]);
        assert_eq!(value, [0.5, 0.5]);
    });
}

#[test]
fn mismatched_sizes_are_refused() {
    let shape = shape_of(3);
    let inputs = Inputs::new(&shape);
    let rows = |heads, width| Strides::heads_first(heads, 3, width);
    let message = panic_message(|| {
        let operands = [
            heads(&inputs.query, rows(4, 19)),
            heads(&inputs.key, rows(2, 19)),
            heads(&inputs.value, rows(2, 13)),
        ];
        let options = Options {
            order: Order::Bidirectional,
            keys: None,
            initial_state: Some(State {
                kv_sums: &inputs.kv_sums[1..],
                key_sums: &inputs.key_sums,
            }),
        };
        attend(&shape, operands, &options);
    });
    let expected = "linear_attention: kv_sums has 493 values instead of 494";
    assert!(message.contains(expected), "{message}");
}
